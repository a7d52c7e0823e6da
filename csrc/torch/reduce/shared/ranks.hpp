// The ranks of a group that share memory, and the thread that averages their buckets.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/shared/exchange.hpp"
#include "torch/reduce/facts.hpp"
#include "torch/reduce/staging.hpp"

namespace ddpdiag {

// For any thread.
class SharedRanks {
public:
    // As SharedExchange. The thread starts at once, and sleeps where there is nothing to do.
    SharedRanks(SharedMember own, std::vector<std::optional<SharedPeer>> peers,
                std::vector<std::string> names, std::chrono::milliseconds timeout,
                std::shared_ptr<SharedBetween> between);
    // Waits for nobody: the thread ends by itself. Buckets that still wait for other ranks get an error.
    ~SharedRanks();
    SharedRanks(const SharedRanks&) = delete;
    SharedRanks& operator=(const SharedRanks&) = delete;

    [[nodiscard]] bool several_hosts() const noexcept;
    // See SharedExchange::enter.
    [[nodiscard]] std::size_t enter(const std::shared_ptr<const SharedBlock>& block);
    // Averages `buffer`, which lies in shared memory as `bucket` says, in the order of the calls. `start`: notified
    // when the thread starts on it, and of values that are not finite; may be nullptr. The future holds the buffer.
    // `staging`: of a buffer on an accelerator, which takes its values; nullptr: it is on the CPU.
    [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> average(const at::Tensor& buffer,
                                                                  SharedBucket bucket,
                                                                  std::shared_ptr<StartListener> start,
                                                                  std::shared_ptr<Staging> staging = nullptr);
    // Returns when no bucket is on its way and nobody is at one, which is soon: from now on, a bucket that would have to
    // wait for other ranks gets an error. Not with the GIL.
    void give_up();
    // For a thread that is about to wait for this future: completes what comes before it, and it, unless the thread of the
    // ranks is at it. So nobody has to be woken only to wake somebody else. Takes as long as the buckets do.
    void help(const c10::ivalue::Future& future);

private:
    struct State;
    std::shared_ptr<State> state_;
};

// Helps the ranks as long as there are any: a bucket that waits must not keep them.
[[nodiscard]] inline auto helper_of(const std::shared_ptr<SharedRanks>& ranks) {
    return [weak = std::weak_ptr<SharedRanks>(ranks)](const c10::ivalue::Future& future) {
        if (const auto alive = weak.lock(); alive != nullptr) {
            alive->help(future);
        }
    };
}

}  // namespace ddpdiag
