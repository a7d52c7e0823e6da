#include "torch/average.hpp"

#include <ATen/Functions.h>

#include <bit>

#include "torch/change.hpp"
#include "torch/element.hpp"
#include "torch/parallel_copy.hpp"

namespace ddpdiag {
namespace {

// Above that, torch would divide the work among threads, and its way to the division, some 4 us, is little beside it.
constexpr std::size_t small = std::size_t{128} << 10U;

template <typename Value>
void divide_all(const at::Tensor& buffer, std::int64_t ranks) {
    auto* const values = static_cast<Value*>(buffer.mutable_data_ptr());
    const auto divisor = static_cast<Value>(ranks);
    const auto count = static_cast<std::size_t>(buffer.numel());
    for (std::size_t i = 0; i < count; ++i) {
        values[i] /= divisor;
    }
    note_change(buffer);
}

bool is_simple(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    return buffer.is_cpu() && !buffer.is_sparse() && buffer.is_contiguous() &&
           (type == c10::ScalarType::Float || type == c10::ScalarType::Double);
}

}  // namespace

void divide(const at::Tensor& buffer, std::int64_t ranks) {
    if (is_simple(buffer) && buffer.nbytes() <= small) {
        if (buffer.scalar_type() == c10::ScalarType::Float) {
            divide_all<float>(buffer, ranks);
        } else {
            divide_all<double>(buffer, ranks);
        }
        return;
    }
    buffer.div_(ranks);
}

std::optional<GradientStatistics> divide_with_statistics(const at::Tensor& buffer, std::int64_t ranks) {
    // Only then is a multiplication, which is what the kernels do, the same as a division.
    const bool power_of_two = std::has_single_bit(static_cast<std::uint64_t>(ranks));
    if (!is_simple(buffer) || !power_of_two) {
        return std::nullopt;
    }
    const Element element = known_element(buffer.scalar_type());
    const auto statistics =
        copy_in_parallel(buffer.const_data_ptr(), element, buffer.mutable_data_ptr(), element,
                         static_cast<std::size_t>(buffer.numel()), 1.0 / static_cast<double>(ranks));
    note_change(buffer);
    return statistics;
}

}  // namespace ddpdiag
