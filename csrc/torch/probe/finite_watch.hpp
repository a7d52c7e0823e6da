// Whether this rank's gradients are finite, in passes that nobody watches: within a small share of their time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace ddpdiag {

// For the thread that reduces a module's buckets. It reads all values as long as that takes at most a 200th of the time
// from pass to pass, which is half of what recording may cost; otherwise one part in so many of each bucket, by turns, and
// a value that is not finite may be seen some passes later.
class FiniteWatch {
public:
    // False: some value is not. Nothing: none was seen, but not all were read; or they are not of a type that it reads.
    [[nodiscard]] std::optional<bool> look(const at::Tensor& buffer);
    void end_pass(std::int64_t now_ns);

private:
    std::size_t parts_ = 1;  // it reads one part in so many
    std::size_t turn_ = 0;
    // The least so far: what takes longer was interrupted.
    double ns_per_byte_ = std::numeric_limits<double>::infinity();
    std::uint64_t bytes_ = 0;       // of this pass's buckets
    std::int64_t last_end_ns_ = 0;  // of the pass before
};

}  // namespace ddpdiag
