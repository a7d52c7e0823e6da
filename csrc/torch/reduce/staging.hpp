// A bucket on an accelerator passes through memory that the ranks share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>

#include "core/shared/block.hpp"
#include "torch/reduce/pinning.hpp"

namespace ddpdiag {

// The device did not copy the bucket. The text goes on after the rank's name.
class StagingError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Kept from pass to pass. One pass is take(), await(), put_back(), one after the other; all copies are on one stream of
// the device's pool, so those of the next pass follow those of this one.
class Staging {
public:
    // The same on all ranks. `buffer` is not on the CPU.
    [[nodiscard]] static bool possible(const at::Tensor& buffer);

    explicit Staging(const at::Tensor& buffer);
    // Waits a little for copies on their way. The memory of one that does not end is never given back.
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    [[nodiscard]] bool serves(const at::Tensor& buffer) const;
    // The bucket begins where the block begins.
    [[nodiscard]] const std::shared_ptr<const SharedBlock>& block() const noexcept { return block_; }

    // On the thread whose current stream has the values: orders the copy into the block behind them. Waits for nothing.
    void take(const at::Tensor& buffer);
    // On any thread: waits until the values are in the block. `produced`: called when the device has made them. `goes_on`:
    // asked now and then; false ends the wait. Throws StagingError.
    void await(const at::Tensor& buffer, std::chrono::milliseconds timeout,
               const std::function<bool()>& goes_on, const std::function<void()>& produced);
    // Orders the copy out of the block. Whoever needs the buffer must wait for the stream. Throws StagingError.
    void put_back(const at::Tensor& buffer);
    [[nodiscard]] const c10::Stream& stream() const noexcept { return stream_; }

private:
    void copy(const at::Tensor& to, const at::Tensor& from);

    std::shared_ptr<const SharedBlock> block_;
    std::unique_ptr<Pinned> pinned_;
    at::Tensor host_;  // the block
    c10::Stream stream_;
    c10::Event produced_;  // of the current stream: the gradients
    c10::Event copied_;    // of ours: the last copy
};

}  // namespace ddpdiag
