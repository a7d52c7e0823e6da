// A buffer in parts, one for each lane, all summed at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "torch/reduce/lanes/lanes.hpp"

namespace ddpdiag {

// The sum has the bits of one all-reduce of the whole buffer, however it is divided. Gloo's ring cuts a buffer into one
// chunk per rank and adds each chunk in another order of the ranks (core/shared/ring_order.hpp). Two ranks
// have one order, so their parts are ranges of the buffer. With more, a part is the same range of every chunk, copied
// together so that the lane's ring cuts it into just these.
class LaneParts {
public:
    // Dense and contiguous values on the CPU.
    [[nodiscard]] static bool possible(const at::Tensor& buffer);

    // `buffer` must be possible, and outlive it.
    LaneParts(const at::Tensor& buffer, std::shared_ptr<Lanes> lanes);

    // Whether bring_back() may have something to do in some turn.
    [[nodiscard]] bool copies() const noexcept { return lanes_->ranks() > 2 && divides_; }
    // Starts all parts. The future is done when all have ended, with the buffer as its value; or with one error, which
    // names the lane. Gloo limits how long each waits.
    [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> begin(const at::Tensor& buffer);
    // Then the buffer holds the sum.
    void bring_back(const at::Tensor& buffer);

private:
    struct Range {
        std::int64_t in_buffer = 0;  // in values
        std::int64_t in_part = 0;
        std::int64_t count = 0;
    };
    struct Part {
        std::size_t lane = 0;
        at::Tensor values;          // undefined: a range of the buffer itself
        std::vector<Range> ranges;  // the buffer's values in it
    };

    // As the ranks divide this size now.
    void cut(const at::Tensor& buffer);
    [[nodiscard]] static std::vector<Part> ranges(const at::Tensor& buffer, const LaneShares& shares);
    [[nodiscard]] std::vector<Part> ranges_of_chunks(const at::Tensor& buffer,
                                                     const LaneShares& shares) const;
    [[nodiscard]] static at::Tensor filled(const Part& part, const at::Tensor& buffer);

    std::shared_ptr<Lanes> lanes_;
    std::vector<Part> whole_;
    std::vector<Part> divided_;
    bool divides_ = false;
    std::uint64_t version_ = 0;  // of the cut
    LaneTurn turn_;              // the last one
};

}  // namespace ddpdiag
