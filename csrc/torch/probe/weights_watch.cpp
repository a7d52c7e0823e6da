#include "torch/probe/weights_watch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "core/kernels/checksum.hpp"
#include "core/trace/trace_file.hpp"
#include "torch/element.hpp"

namespace ddpdiag {
namespace {

// Both kernels read it while it is in the cache. A share ends with a piece, so that a parameter's mark is the
// same however many passes share it.
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 12U;

constexpr std::uint64_t whole_pieces(std::uint64_t bytes) noexcept {
    return (bytes + piece_bytes - 1) / piece_bytes * piece_bytes;
}

bool readable(const at::Tensor& parameter) {
    return parameter.defined() && parameter.layout() == c10::kStrided && parameter.device().is_cpu() &&
           element_of(parameter.scalar_type()) && parameter.has_storage() &&
           parameter.is_non_overlapping_and_dense() &&
           // Mixed precision and sharding free the memory of parameters that are not in use.
           parameter.storage().nbytes() >=
               parameter.nbytes() + static_cast<std::uint64_t>(parameter.storage_offset()) *
                                        static_cast<std::uint64_t>(parameter.element_size());
}

// Adds the bytes [begin, end) of a readable parameter.
void add_bytes(WeightMark& mark, const at::Tensor& parameter, std::uint64_t begin, std::uint64_t end) {
    const Element element = known_element(parameter.scalar_type());
    const auto* const data = static_cast<const std::byte*>(parameter.const_data_ptr());
    for (; begin < end; begin += piece_bytes) {
        const std::uint64_t bytes = std::min(piece_bytes, end - begin);
        mark.bits = detail::checksum_step(mark.bits, checksum(data + begin, bytes));
        mark.sum_squares += statistics(data + begin, element, bytes / size_of(element)).sum_squares;
    }
}

// 32 bits of the checksum, never 0, and the norm as f32.
std::int64_t packed(const WeightMark& mark) noexcept {
    const auto bits = static_cast<std::uint32_t>(mark.bits ^ (mark.bits >> 32U));
    const auto norm = std::bit_cast<std::uint32_t>(static_cast<float>(std::sqrt(mark.sum_squares)));
    return static_cast<std::int64_t>(std::uint64_t{norm} << 32U | (bits == 0 ? 1U : bits));
}

// Puts the marks of neighbouring parameters into records.
class MarkWriter {
public:
    MarkWriter(TraceFile& trace, const Record& record) : trace_(&trace), record_(record) {
        record_.index = 0;
    }

    void add(std::size_t index, std::int64_t mark) {
        if (count_ == 0) {
            record_.index = static_cast<std::uint32_t>(index);
        }
        record_.times[count_++] = mark;
        if (count_ == time_count) {
            write();
        }
    }

    // What is not in a record yet, if one of them could be read.
    void write() {
        if (std::ranges::any_of(record_.times, [](std::int64_t word) { return word != 0; })) {
            trace_->write(record_);
        }
        std::ranges::fill(record_.times, 0);
        count_ = 0;
    }

private:
    TraceFile* trace_;
    Record record_;
    std::size_t count_ = 0;
};

}  // namespace

std::optional<WeightMark> mark_of(const at::Tensor& parameter) {
    if (!readable(parameter)) {
        return std::nullopt;
    }
    WeightMark mark;
    add_bytes(mark, parameter, 0, parameter.nbytes());
    mark.bits = std::max<std::uint64_t>(mark.bits, 1);
    return mark;
}

WeightsWatch::WeightsWatch(const std::vector<at::Tensor>& parameters) {
    std::uint64_t end = 0;
    for (const at::Tensor& parameter : parameters) {
        parameters_.emplace_back(parameter.getIntrusivePtr());
        end += whole_pieces(parameter.nbytes());
        ends_.push_back(end);
    }
}

at::Tensor WeightsWatch::parameter(std::size_t index) const {
    return at::Tensor(parameters_[index].lock());
}

std::uint64_t WeightsWatch::begin_of(std::size_t index) const noexcept {
    return index == 0 ? 0 : ends_[index - 1];
}

std::optional<WeightMark> WeightsWatch::begun(const at::Tensor& values, std::size_t index, std::uint64_t from,
                                              std::uint32_t pass) const {
    if (!readable(values) || whole_pieces(values.nbytes()) != ends_[index] - begin_of(index)) {
        return std::nullopt;
    }
    if (begin_of(index) >= from) {
        return WeightMark{};
    }
    // A look that was left out, while the recorder was paused, leaves a hole.
    return part_.next_pass == pass ? part_.mark : std::nullopt;
}

void WeightsWatch::look(TraceFile& trace, const Record& record, std::uint32_t pass, std::uint64_t interval) {
    if (interval == 0 || ends_.empty()) {
        return;
    }
    const std::uint64_t share = whole_pieces((ends_.back() + interval - 1) / interval);
    const std::uint64_t from = share * (pass % interval);
    const std::uint64_t to = std::min(from + share, ends_.back());
    MarkWriter writer(trace, record);
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends_, from) - ends_.begin());
    for (; index < ends_.size() && begin_of(index) < to; ++index) {
        const std::uint64_t first = begin_of(index);
        const std::uint64_t end = std::min(ends_[index], to);
        const at::Tensor values = parameter(index);
        std::optional<WeightMark> mark = begun(values, index, from, pass);
        if (mark) {
            add_bytes(*mark, values, std::max(first, from) - first,
                      std::min<std::uint64_t>(end - first, values.nbytes()));
        }
        if (end < ends_[index]) {
            part_ = {.next_pass = pass + 1, .mark = mark};
            break;
        }
        writer.add(index, mark ? packed(*mark) : 0);
    }
    writer.write();
}

std::uint64_t WeightsWatch::bits_of(const std::vector<std::uint32_t>& parameters) const {
    std::uint64_t bits = 0;
    for (const std::uint32_t index : parameters) {
        const auto mark = index < parameters_.size() ? mark_of(parameter(index)) : std::nullopt;
        if (!mark) {
            return 0;
        }
        bits = detail::checksum_step(bits, mark->bits);
    }
    return bits;
}

}  // namespace ddpdiag
