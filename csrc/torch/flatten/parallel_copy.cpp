#include "torch/flatten/parallel_copy.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>

namespace ddpdiag {
namespace {

// Values below which another thread costs more than it saves: some 10 us of work.
constexpr std::int64_t grain = 32768;

// Calls body(begin, end) for equal shares of [0, total) on torch's own threads, as many as torch.set_num_threads allows.
// at::parallel_for is a template and only parallel if the compiler that uses it has OpenMP, and ours would
// bring a second runtime on Windows. So the shares are the elements of a tensor, and torch's iteration over
// tensors, which is compiled in torch, divides those among its threads.
template <class Body>
void share_out(std::int64_t total, const Body& body) {
    const std::int64_t most = at::in_parallel_region() ? 1 : at::get_num_threads();
    const std::int64_t count = std::min(most, at::divup(total, grain));
    if (count <= 1) {
        body(std::int64_t{0}, total);
        return;
    }
    const std::int64_t share = at::divup(total, count);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    const at::Tensor tensor = at::from_blob(numbers.data(), {count}, at::kLong);
    at::TensorIterator::borrowing_nullary_op(tensor).for_each(
        [&](char** data, const std::int64_t* strides, std::int64_t columns, std::int64_t rows) {
            for (std::int64_t row = 0; row < rows; ++row) {
                for (std::int64_t column = 0; column < columns; ++column) {
                    const char* number = data[0] + column * strides[0] + row * strides[1];
                    const std::int64_t begin = share * *reinterpret_cast<const std::int64_t*>(number);
                    body(begin, std::min(total, begin + share));
                }
            }
        },
        /*grain_size=*/1);
}

}  // namespace

void add_parts(std::vector<Part>& parts, const std::byte* source, Element from, std::byte* target, Element to,
               std::int64_t count, std::size_t tensor) {
    const std::int64_t before = parts.empty() ? 0 : parts.back().begin + parts.back().count;
    for (std::int64_t offset = 0; offset < count; offset += values_per_part) {
        const auto at = static_cast<std::size_t>(offset);
        parts.push_back({source + at * size_of(from), target + at * size_of(to), before + offset,
                         std::min(values_per_part, count - offset), tensor, offset, from, to});
    }
}

std::vector<GradientStatistics> copy_parts(const std::vector<Part>& parts, double scale, bool streaming) {
    std::vector<GradientStatistics> results(parts.size());
    const std::int64_t total = parts.empty() ? 0 : parts.back().begin + parts.back().count;
    // Divided by values and not by tensors, so that each thread has the same amount of work; a part belongs
    // to the thread in whose range it begins.
    share_out(total, [&](std::int64_t begin, std::int64_t end) {
        auto part = std::ranges::lower_bound(parts, begin, {}, &Part::begin);
        for (; part != parts.end() && part->begin < end; ++part) {
            results[static_cast<std::size_t>(part - parts.begin())] =
                fused_copy(part->source, part->from, part->target, part->to,
                           static_cast<std::size_t>(part->count), scale, streaming);
        }
    });
    return results;
}

GradientStatistics copy_in_parallel(const void* source, Element from, void* target, Element to,
                                    std::size_t count, double scale) {
    std::vector<Part> parts;
    add_parts(parts, static_cast<const std::byte*>(source), from, static_cast<std::byte*>(target), to,
              static_cast<std::int64_t>(count), 0);
    const auto of_parts = copy_parts(parts, scale, /*streaming=*/false);
    GradientStatistics result;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        result.merge(of_parts[i], static_cast<std::uint64_t>(parts[i].offset));
    }
    return result;
}

}  // namespace ddpdiag
