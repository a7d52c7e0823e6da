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

}  // namespace ddpdiag
