#include "torch/probe/values_mark.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/kernels/checksum.hpp"

namespace ddpdiag {
namespace {

bool is_readable_here(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.device().is_cpu() ||
        !tensor.has_storage() || tensor.storage().data() == nullptr || tensor.numel() == 0) {
        return false;
    }
    std::int64_t last = tensor.storage_offset();
    for (std::int64_t axis = 0; axis < tensor.dim(); ++axis) {
        last += (tensor.size(axis) - 1) * tensor.stride(axis);
    }
    return static_cast<std::size_t>((last + 1) * tensor.element_size()) <= tensor.storage().nbytes();
}

// Where a value lies, in elements from the first one; `position`: in the order of the indices.
std::int64_t offset_of(const at::Tensor& tensor, std::int64_t position) {
    std::int64_t offset = 0;
    for (std::int64_t axis = tensor.dim() - 1; axis >= 0; --axis) {
        offset += position % tensor.size(axis) * tensor.stride(axis);
        position /= tensor.size(axis);
    }
    return offset;
}

// `mask`: without the sign of a floating-point number, as -0 is 0.
template <class Bits>
bool are_zero(const std::byte* first, std::size_t bytes, Bits mask) {
    Bits found{};
    for (std::size_t at = 0; at < bytes; at += sizeof(Bits)) {
        Bits one{};
        std::memcpy(&one, first + at, sizeof(Bits));
        found |= one;
    }
    return (found & mask) == 0;
}

bool are_zero(const std::byte* first, std::size_t bytes, c10::ScalarType type) {
    const bool is_complex = c10::isComplexType(type);
    // Those of 8 bits have no -0, or give that pattern to another value.
    const bool is_signed_zero = is_complex || c10::isFloatingType(type);
    switch (c10::elementSize(type) / (is_complex ? 2 : 1)) {
        case 2:
            return are_zero<std::uint16_t>(first, bytes, is_signed_zero ? 0x7FFFU : 0xFFFFU);
        case 4:
            return are_zero<std::uint32_t>(first, bytes, is_signed_zero ? 0x7FFFFFFFU : 0xFFFFFFFFU);
        case 8:
            return are_zero<std::uint64_t>(first, bytes,
                                           is_signed_zero ? ~std::uint64_t{0} >> 1U : ~std::uint64_t{0});
        default:
            return are_zero<std::uint8_t>(first, bytes, 0xFFU);
    }
}

bool is_zero(const at::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return true;
    }
    if (!is_readable_here(tensor)) {
        return false;
    }
    const auto bytes = static_cast<std::size_t>(tensor.element_size());
    const auto* const first = static_cast<const std::byte*>(tensor.storage().data()) +
                              static_cast<std::size_t>(tensor.storage_offset()) * bytes;
    const std::int64_t count = tensor.numel();
    if (tensor.is_non_overlapping_and_dense()) {
        return are_zero(first, static_cast<std::size_t>(count) * bytes, tensor.scalar_type());
    }
    for (std::int64_t position = 0; position < count; ++position) {
        const auto offset = static_cast<std::size_t>(offset_of(tensor, position)) * bytes;
        if (!are_zero(first + offset, bytes, tensor.scalar_type())) {
            return false;
        }
    }
    return true;
}

}  // namespace

std::uint64_t mark_of_values(const at::Tensor& tensor, std::int64_t most, std::uint64_t mark) {
    if (!is_readable_here(tensor)) {
        return 0;
    }
    mark = detail::checksum_step(mark, static_cast<std::uint64_t>(tensor.scalar_type()));
    for (const std::int64_t size : tensor.sizes()) {
        mark = detail::checksum_step(mark, static_cast<std::uint64_t>(size));
    }
    const std::int64_t count = tensor.numel();
    // Odd, so that they do not all lie in one column of a picture.
    const std::int64_t least = (count + most - 1) / most;
    const std::int64_t apart = least + 1 - least % 2;
    const auto bytes = static_cast<std::size_t>(tensor.element_size());
    const auto* const first = static_cast<const std::byte*>(tensor.storage().data()) +
                              static_cast<std::size_t>(tensor.storage_offset()) * bytes;
    // Without gaps, any order will do, and that in memory takes the least time.
    const bool dense = tensor.is_non_overlapping_and_dense();
    std::vector<std::byte> chosen(static_cast<std::size_t>((count + apart - 1) / apart) * bytes);
    std::byte* to = chosen.data();
    for (std::int64_t position = 0; position < count; position += apart, to += bytes) {
        const std::int64_t offset = dense ? position : offset_of(tensor, position);
        std::memcpy(to, first + static_cast<std::size_t>(offset) * bytes, bytes);
    }
    mark = detail::checksum_step(mark, checksum(chosen.data(), chosen.size()));
    return std::max<std::uint64_t>(mark, 1);
}

bool are_without_gradients(const std::vector<at::Tensor>& parameters) {
    return std::ranges::all_of(parameters, [](const at::Tensor& parameter) {
        // As at::Tensor::grad(), without its warning of tensors that have none of their own.
        const at::Tensor& gradient = parameter.unsafeGetTensorImpl()->grad();
        return !gradient.defined() || is_zero(gradient);
    });
}

}  // namespace ddpdiag
