#include "torch/probe/finite_watch.hpp"

#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

// Two readings of the clock cost more than to save a part of these.
constexpr std::size_t small_bytes = std::size_t{1} << 16U;

template <typename Value>
bool finite(const at::Tensor& buffer, const SearchedPart& part, bool all) {
    return finite_lines(static_cast<const Value*>(buffer.const_data_ptr()),
                        static_cast<std::size_t>(buffer.numel()), all ? 1 : part.every(), part.pass());
}

}  // namespace

std::optional<bool> all_finite(const at::Tensor& buffer, SearchedPart& part, bool begins_pass) {
    if (begins_pass) {
        part.begin_pass(platform::monotonic_ns());
    }
    const auto type = buffer.scalar_type();
    if (!buffer.is_cpu() || buffer.is_sparse() || !buffer.is_contiguous() ||
        (type != c10::ScalarType::Float && type != c10::ScalarType::Double)) {
        return std::nullopt;
    }
    const bool small = buffer.nbytes() < small_bytes;
    const std::int64_t before = small ? 0 : platform::monotonic_ns();
    const bool found = type == c10::ScalarType::Float ? finite<float>(buffer, part, small)
                                                      : finite<double>(buffer, part, small);
    if (!small) {
        part.took(platform::monotonic_ns() - before);
    }
    return found;
}

}  // namespace ddpdiag
