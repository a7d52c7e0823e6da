#include "torch/reduce/average.hpp"

#include <ATen/Functions.h>

#include <bit>

#include "core/kernels/finite.hpp"
#include "torch/change.hpp"
#include "torch/element.hpp"
#include "torch/flatten/parallel_copy.hpp"

namespace ddpdiag {
namespace {

// On the thread that calls: it is Gloo's, and torch's other threads are computing gradients.
template <typename Value>
bool divide_all(const at::Tensor& buffer, std::int64_t ranks) {
    auto* const values = static_cast<Value*>(buffer.mutable_data_ptr());
    const auto divisor = static_cast<Value>(ranks);
    const std::int64_t count = buffer.numel();
    AllFinite<Value> finite;
    for (std::int64_t i = 0; i < count; ++i) {
        values[i] /= divisor;
        finite.see(values[i]);
    }
    note_change(buffer);
    return finite.so_far();
}

bool is_simple(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    return buffer.is_cpu() && !buffer.is_sparse() && buffer.is_contiguous() &&
           (type == c10::ScalarType::Float || type == c10::ScalarType::Double);
}

}  // namespace

std::optional<bool> divide(const at::Tensor& buffer, std::int64_t ranks) {
    if (!is_simple(buffer)) {
        buffer.div_(ranks);
        return std::nullopt;
    }
    return buffer.scalar_type() == c10::ScalarType::Float ? divide_all<float>(buffer, ranks)
                                                          : divide_all<double>(buffer, ranks);
}

bool divides_with_statistics(const at::Tensor& buffer, std::int64_t ranks) {
    // Only then is a multiplication, which is what the kernels do, the same as a division.
    return is_simple(buffer) && std::has_single_bit(static_cast<std::uint64_t>(ranks));
}

GradientStatistics divide_with_statistics(const at::Tensor& buffer, std::int64_t ranks) {
    const Element element = known_element(buffer.scalar_type());
    const auto statistics =
        copy_in_parallel(buffer.const_data_ptr(), element, buffer.mutable_data_ptr(), element,
                         static_cast<std::size_t>(buffer.numel()), 1.0 / static_cast<double>(ranks));
    note_change(buffer);
    return statistics;
}

Prepared divided_among(const at::Tensor& buffer, std::int64_t ranks, bool with_statistics) {
    const auto by = static_cast<double>(ranks);
    if (with_statistics) {
        const auto statistics = divide_with_statistics(buffer, ranks);
        return {.statistics = statistics, .finite = statistics.non_finite == 0, .divided_by = by};
    }
    return {.finite = divide(buffer, ranks), .divided_by = by};
}

}  // namespace ddpdiag
