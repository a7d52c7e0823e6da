#include "torch/probe/gradient_watch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/kernels/checksum.hpp"
#include "torch/element.hpp"
#include "torch/probe/recorder.hpp"

namespace ddpdiag {
namespace {

at::Tensor dense(const at::Tensor& buffer) {
    return buffer.is_sparse() ? buffer._values() : buffer;
}

// On an accelerator this waits for the device. Watched passes are few.
at::Tensor on_host(const at::Tensor& buffer) {
    return dense(buffer).cpu().contiguous();
}

std::optional<GradientStatistics> statistics_of(const at::Tensor& values) {
    const auto element = element_of(values.scalar_type());
    if (!element) {
        return std::nullopt;
    }
    return statistics(values.const_data_ptr(), *element, static_cast<std::size_t>(values.numel()));
}

// Position of the parameter that holds element `index` of the flat buffer.
std::optional<std::size_t> holder(const BucketLayout& layout, std::uint64_t index) {
    const auto end = std::ranges::upper_bound(layout.ends, index);
    if (end == layout.ends.end()) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(end - layout.ends.begin());
}

void fill(Record& record, const GradientStatistics& found, std::uint64_t count, double divided_by) {
    record.times[gradient_value::sum_squares] =
        std::bit_cast<std::int64_t>(found.sum_squares * divided_by * divided_by);
    record.times[gradient_value::absolute_maximum] =
        std::bit_cast<std::int64_t>(found.absolute_maximum * divided_by);
    record.times[gradient_value::non_finite] = static_cast<std::int64_t>(found.non_finite);
    record.times[gradient_value::first_non_finite] = static_cast<std::int64_t>(found.first_non_finite);
    record.times[gradient_value::elements] = static_cast<std::int64_t>(count);
}

Record gradient_record(const Record& bucket) {
    Record record = bucket;
    record.kind = static_cast<std::uint16_t>(Kind::gradient);
    record.flags &= static_cast<std::uint32_t>(flag_native | flag_compressed);
    std::ranges::fill(record.times, 0);
    record.times[gradient_value::parameter] = -1;
    return record;
}

void write_parameters(Recorder& recorder, const BucketLayout& layout, const Record& bucket,
                      const at::Tensor& values, double divided_by) {
    const Element element = known_element(values.scalar_type());
    std::uint64_t begin = 0;
    for (std::size_t i = 0; i < layout.ends.size(); ++i) {
        const std::uint64_t count = layout.ends[i] - begin;
        Record record = gradient_record(bucket);
        record.flags |= flag_parameter;
        record.index = layout.parameters[i];
        record.bytes = count * size_of(element);
        const auto* const first = static_cast<const std::byte*>(values.const_data_ptr());
        const auto found = statistics(first + begin * size_of(element), element, count);
        fill(record, found, count, divided_by);
        record.times[gradient_value::parameter] = found.non_finite == 0 ? -1 : layout.parameters[i];
        recorder.trace().write(record);
        begin = layout.ends[i];
    }
}

}  // namespace

double level_of(const BucketLayout& layout, const at::Tensor& values, double divided_by) {
    const auto element = element_of(values.scalar_type());
    // Of a sparse gradient a rank brings some rows only.
    if (!element || layout.ends.empty() || std::cmp_not_equal(layout.ends.back(), values.numel())) {
        return 0;
    }
    const auto* const first = static_cast<const std::byte*>(values.const_data_ptr());
    double sum = 0;
    std::uint64_t begin = 0;
    for (const std::uint64_t end : layout.ends) {
        sum += std::log(statistics(first + begin * size_of(*element), *element, end - begin).sum_squares);
        begin = end;
    }
    const double level = sum / static_cast<double>(layout.ends.size()) + 2 * std::log(divided_by);
    return std::isfinite(level) ? level : 0;
}

WatchedPass WatchedPass::due(const GradientOptions& options, std::uint32_t pass) noexcept {
    const auto due = [pass](std::uint64_t interval) { return interval != 0 && pass % interval == 0; };
    const bool compares = due(options.sentinel_interval);
    return {.looks = compares || due(interval_at(options.statistics_interval, pass)), .compares = compares};
}

void Fingerprints::clear() {
    const std::lock_guard lock(mutex_);
    noted_.clear();
}

void Fingerprints::note(const Fingerprint& fingerprint) {
    const std::lock_guard lock(mutex_);
    noted_.push_back(fingerprint);
}

std::vector<Fingerprint> Fingerprints::take() {
    const std::lock_guard lock(mutex_);
    std::ranges::sort(noted_, {}, &Fingerprint::sequence);
    return std::exchange(noted_, {});
}

GradientNote::GradientNote(Recorder& recorder, const BucketLayout& layout, const Record& bucket,
                           const Look& seen, std::uint64_t collectives)
    : record_(gradient_record(bucket)) {
    const at::Tensor& buffer = seen.values;
    const bool per_parameter =
        recorder.gradient_options().per_parameter && !buffer.is_sparse() && !seen.averaged;
    const at::Tensor values = seen.statistics && !per_parameter ? dense(buffer) : on_host(buffer);
    fingerprint_.sequence = bucket.sequence;
    fingerprint_.collectives = collectives;
    fingerprint_.identity = bucket.reference;
    fingerprint_.bytes = bucket.bytes;
    fingerprint_.step = bucket.step;
    fingerprint_.bucket = bucket.index;
    fingerprint_.parameter = no_parameter;
    if (layout.module->hook.watched.compares) {
        fingerprint_.weights = layout.module->weights.bits_of(layout.parameters);
    }
    fingerprint_.type = bucket.dtype | static_cast<std::uint32_t>(bucket.reduce_op) << 8U;
    record_.dtype = static_cast<std::uint8_t>(layout.dtype);
    record_.bytes = values.nbytes();
    const auto found = seen.statistics ? seen.statistics : statistics_of(values);
    if (!found) {
        return;
    }
    fill(record_, *found, static_cast<std::uint64_t>(values.numel()), seen.divided_by);
    const double level = seen.averaged ? seen.level : level_of(layout, values, seen.divided_by);
    record_.times[gradient_value::level] = std::bit_cast<std::int64_t>(level);
    fingerprint_.non_finite = found->non_finite;
    fingerprint_.first_non_finite = found->first_non_finite;
    if (found->non_finite != 0 && !buffer.is_sparse()) {
        if (const auto position = holder(layout, found->first_non_finite)) {
            fingerprint_.parameter = layout.parameters[*position];
            record_.times[gradient_value::parameter] = layout.parameters[*position];
        }
    }
    if (per_parameter) {
        write_parameters(recorder, layout, bucket, values, seen.divided_by);
    }
}

void GradientNote::reduced(Recorder& recorder, const BucketLayout& layout, const at::Tensor& buffer) {
    // Sparse gradients are concatenated and not summed in place: the ranks need not hold them in the same
    // order.
    if (buffer.defined() && !buffer.is_sparse()) {
        const at::Tensor values = on_host(buffer);
        fingerprint_.checksum = checksum(values.const_data_ptr(), values.nbytes());
        record_.times[gradient_value::checksum] = static_cast<std::int64_t>(fingerprint_.checksum);
    }
    recorder.trace().write(record_);
    layout.module->fingerprints.note(fingerprint_);
}

}  // namespace ddpdiag
