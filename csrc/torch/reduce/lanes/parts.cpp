#include "torch/reduce/lanes/parts.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/shared/ring_order.hpp"

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

// Parts begin at values that share no cache line with another lane's.
constexpr std::int64_t alignment = 64;

// All parts of one turn, on the threads that end them.
class Together {
public:
    Together(std::size_t parts, std::shared_ptr<Lanes> lanes, at::Tensor buffer)
        : missing_(parts),
          lanes_(std::move(lanes)),
          buffer_(std::move(buffer)),
          future_(c10::make_intrusive<Future>(c10::TensorType::get())) {}

    [[nodiscard]] const c10::intrusive_ptr<Future>& future() const noexcept { return future_; }

    // `error`: empty if the part has ended well.
    void ended(std::size_t lane, const std::string& error) {
        std::string failure;
        {
            const std::lock_guard lock(mutex_);
            if (!error.empty() && failure_.empty()) {
                failure_ = lanes_->description(lane) + ": " + error;
                lanes_->fail(failure_);
            }
            if (--missing_ > 0) {
                return;
            }
            failure = failure_;
        }
        if (failure.empty()) {
            future_->markCompleted(std::move(buffer_));
        } else {
            buffer_.reset();
            future_->setError(std::make_exception_ptr(std::runtime_error(failure)));
        }
    }

private:
    std::mutex mutex_;
    std::size_t missing_;
    std::string failure_;  // of the first part that has failed
    std::shared_ptr<Lanes> lanes_;
    at::Tensor buffer_;
    c10::intrusive_ptr<Future> future_;
};

void begin_part(Lanes& lanes, std::size_t lane, at::Tensor values,
                const std::shared_ptr<Together>& together) {
    try {
        std::vector<at::Tensor> one = {std::move(values)};
        const auto future = lanes.backend(lane)->allreduce(one)->getFuture();
        future->addCallback([together, lane](Future& done) {
            together->ended(lane, done.hasError() ? done.tryRetrieveErrorMessage() : "");
        });
    } catch (const std::exception& error) {
        // The parts that were begun before end by themselves, and then the bucket.
        together->ended(lane, error.what());
    }
}

// With one thread: torch would give Gloo's worker a second team of threads, beside those of the backward pass.
void copy(const at::Tensor& to, std::int64_t to_place, const at::Tensor& from, std::int64_t from_place,
          std::int64_t count) {
    const auto width = static_cast<std::int64_t>(from.element_size());
    std::memcpy(static_cast<std::byte*>(to.mutable_data_ptr()) + to_place * width,
                static_cast<const std::byte*>(from.const_data_ptr()) + from_place * width,
                static_cast<std::size_t>(count * width));
}

}  // namespace

bool LaneParts::possible(const at::Tensor& buffer) {
    return !buffer.is_sparse() && buffer.is_cpu() && buffer.is_contiguous() && buffer.dim() == 1 &&
           buffer.numel() > 0;
}

LaneParts::LaneParts(const at::Tensor& buffer, std::shared_ptr<Lanes> lanes) : lanes_(std::move(lanes)) {
    const auto ends = lanes_->ends(buffer.nbytes());
    const bool divided = std::ranges::any_of(ends, [](auto end) { return end != 0 && end != Lanes::whole; });
    if (divided && lanes_->ranks() > 2) {
        cut_chunks(buffer, ends);
    } else {
        cut(buffer, ends);
    }
}

void LaneParts::cut(const at::Tensor& buffer, const std::vector<std::uint64_t>& ends) {
    const std::int64_t values = buffer.numel();
    const std::int64_t step =
        std::max<std::int64_t>(1, alignment / static_cast<std::int64_t>(buffer.element_size()));
    std::int64_t begin = 0;
    for (std::size_t lane = 0; lane < ends.size(); ++lane) {
        const auto place =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(values) * ends[lane] / Lanes::whole);
        const std::int64_t end = ends[lane] == Lanes::whole ? values : place / step * step;
        if (end > begin) {
            parts_.push_back(
                {.lane = lane, .values = {}, .ranges = {{.in_buffer = begin, .count = end - begin}}});
            begin = end;
        }
    }
}

void LaneParts::cut_chunks(const at::Tensor& buffer, const std::vector<std::uint64_t>& ends) {
    const auto width = static_cast<std::uint64_t>(buffer.element_size());
    const auto ranks = static_cast<std::uint64_t>(lanes_->ranks());
    const std::int64_t values = buffer.numel();
    const auto chunk = static_cast<std::int64_t>(ring_chunk_bytes(buffer.nbytes(), width, ranks) / width);
    copies_ = true;
    std::int64_t begin = 0;
    for (std::size_t lane = 0; lane < ends.size(); ++lane) {
        const auto end =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(chunk) * ends[lane] / Lanes::whole);
        if (end <= begin) {
            continue;
        }
        // What is not the buffer's in it are zeros: enough for the ring to cut chunks of equal sizes.
        std::uint64_t each = static_cast<std::uint64_t>(end - begin) * width;
        while (ring_chunk_bytes(each * ranks, width, ranks) != each) {
            each = ring_chunk_bytes(each * ranks, width, ranks);
        }
        const auto stride = static_cast<std::int64_t>(each / width);
        Part part{
            .lane = lane, .values = at::zeros({stride * lanes_->ranks()}, buffer.options()), .ranges = {}};
        for (std::int64_t index = 0; index < lanes_->ranks(); ++index) {
            const std::int64_t from = std::min(values, index * chunk + begin);
            const std::int64_t to = std::min(values, index * chunk + end);
            if (to > from) {
                part.ranges.push_back({.in_buffer = from, .in_part = index * stride, .count = to - from});
            }
        }
        parts_.push_back(std::move(part));
        begin = end;
    }
}

at::Tensor LaneParts::filled(const Part& part, const at::Tensor& buffer) {
    if (!part.values.defined()) {
        const Range& range = part.ranges.front();
        return buffer.narrow(0, range.in_buffer, range.count);
    }
    for (const Range& range : part.ranges) {
        copy(part.values, range.in_part, buffer, range.in_buffer, range.count);
    }
    return part.values;
}

c10::intrusive_ptr<Future> LaneParts::begin(const at::Tensor& buffer) {
    lanes_->require_sound();
    auto together = std::make_shared<Together>(parts_.size(), lanes_, buffer);
    // Held here: a part that has ended may be the last one.
    auto future = together->future();
    for (const Part& part : parts_) {
        begin_part(*lanes_, part.lane, filled(part, buffer), together);
    }
    return future;
}

void LaneParts::bring_back(const at::Tensor& buffer) {
    for (const Part& part : parts_) {
        if (part.values.defined()) {
            for (const Range& range : part.ranges) {
                copy(buffer, range.in_buffer, part.values, range.in_part, range.count);
            }
        }
    }
}

}  // namespace ddpdiag
