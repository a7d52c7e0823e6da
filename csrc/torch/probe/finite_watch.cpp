#include "torch/probe/finite_watch.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/finite.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

constexpr double share = 1.0 / 200;
constexpr double most_parts = 64;
// In bytes. A multiple of what the memory brings at once, and less than most parameters: where all values of one are not
// finite, the first look at any part of the bucket sees it.
constexpr std::size_t part_size = 1024;

template <typename Value>
bool finite(const at::Tensor& buffer, std::size_t first, std::size_t parts) {
    constexpr std::size_t values_of_part = part_size / sizeof(Value);
    const auto* const values = static_cast<const Value*>(buffer.const_data_ptr());
    const auto count = static_cast<std::size_t>(buffer.numel());
    AllFinite<Value> seen;
    for (std::size_t begin = first * values_of_part; begin < count; begin += parts * values_of_part) {
        const std::size_t end = std::min(begin + values_of_part, count);
        for (std::size_t i = begin; i < end; ++i) {
            seen.see(values[i]);
        }
    }
    return seen.so_far();
}

}  // namespace

std::optional<bool> FiniteWatch::look(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    if (!buffer.is_cpu() || buffer.is_sparse() || !buffer.is_contiguous() ||
        (type != c10::ScalarType::Float && type != c10::ScalarType::Double)) {
        return std::nullopt;
    }
    const std::int64_t begin = platform::monotonic_ns();
    const std::size_t first = turn_ % parts_;
    const bool so_far = type == c10::ScalarType::Float ? finite<float>(buffer, first, parts_)
                                                       : finite<double>(buffer, first, parts_);
    const auto took = static_cast<double>(platform::monotonic_ns() - begin);
    bytes_ += buffer.nbytes();
    const double read = static_cast<double>(buffer.nbytes()) / static_cast<double>(parts_);
    if (read >= part_size) {
        ns_per_byte_ = std::min(ns_per_byte_, took / read);
    }
    if (so_far && parts_ > 1) {
        return std::nullopt;
    }
    return so_far;
}

void FiniteWatch::end_pass(std::int64_t now_ns) {
    if (last_end_ns_ != 0 && std::isfinite(ns_per_byte_)) {
        const double all = ns_per_byte_ * static_cast<double>(bytes_);
        const double parts = std::ceil(all / (share * static_cast<double>(now_ns - last_end_ns_)));
        parts_ = static_cast<std::size_t>(std::clamp(parts, 1.0, most_parts));
    }
    ++turn_;
    bytes_ = 0;
    last_end_ns_ = now_ns;
}

}  // namespace ddpdiag
