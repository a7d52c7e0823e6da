#include "torch/reduce/staging.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace ddpdiag {
namespace {

using Clock = std::chrono::steady_clock;

// How long to wait for the last copies before their memory is kept for good.
constexpr std::chrono::milliseconds last_copies{2000};
// No device tells a thread without blocking it. How often to ask, at most and at least.
constexpr std::chrono::microseconds shortest_sleep{20};
constexpr std::chrono::microseconds longest_sleep{500};

c10::Stream pool_stream(const c10::Device& device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// Late by a sixteenth of what it took, or little. False: `until` or `goes_on` ended it.
bool happens(const c10::Event& event, Clock::time_point until, const std::function<bool()>& goes_on) {
    const auto begun = Clock::now();
    while (!event.query()) {
        const auto now = Clock::now();
        if (now >= until || (goes_on && !goes_on())) {
            return false;
        }
        const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - begun);
        std::this_thread::sleep_for(std::clamp(waited / 16, shortest_sleep, longest_sleep));
    }
    return true;
}

}  // namespace

bool Staging::possible(const at::Tensor& buffer) {
    return !buffer.is_meta() && buffer.has_storage() && c10::impl::hasDeviceGuardImpl(buffer.device().type());
}

Staging::Staging(const at::Tensor& buffer)
    : block_(std::make_shared<const SharedBlock>(buffer.nbytes())),
      pinned_(
          std::make_unique<Pinned>(buffer.device().type(), block_->memory().data(), block_->memory().size())),
      host_(at::from_blob(block_->data(), {buffer.numel()},
                          buffer.options().device(c10::kCPU).requires_grad(false))),
      stream_(pool_stream(buffer.device())),
      produced_(buffer.device().type()),
      copied_(buffer.device().type()) {}

Staging::~Staging() {
    bool still = false;
    try {
        still = happens(copied_, Clock::now() + last_copies, {});
    } catch (const std::exception&) {
        still = false;  // the device is lost; what it does to the memory is not known
    }
    if (!still) {
        // Nobody will free them. NOLINTBEGIN(bugprone-unused-return-value)
        static_cast<void>(std::make_unique<std::shared_ptr<const SharedBlock>>(block_).release());
        static_cast<void>(pinned_.release());
        // NOLINTEND(bugprone-unused-return-value)
    }
}

bool Staging::serves(const at::Tensor& buffer) const {
    return buffer.device() == stream_.device() && buffer.numel() == host_.numel() &&
           buffer.scalar_type() == host_.scalar_type();
}

void Staging::take(const at::Tensor& buffer) {
    const c10::impl::VirtualGuardImpl device(buffer.device().type());
    produced_.record(device.getStream(buffer.device()));
    produced_.block(stream_);
    // Into other memory, the driver would hold up this thread until the gradients are there.
    if (pinned_->is()) {
        copy(host_, buffer);
    }
}

void Staging::await(const at::Tensor& buffer, std::chrono::milliseconds timeout,
                    const std::function<bool()>& goes_on, const std::function<void()>& produced) {
    const auto until = Clock::now() + timeout;
    const auto require = [&](const c10::Event& event) {
        if (!happens(event, until, goes_on)) {
            throw StagingError(Clock::now() < until
                                   ? " has given up while waiting for its device."
                                   : " has waited " + std::to_string(timeout.count() / 1000) +
                                         " s for its gradients, which " + buffer.device().str() +
                                         " does not finish.");
        }
    };
    try {
        require(produced_);
        if (produced) {
            produced();
        }
        if (!pinned_->is()) {
            copy(host_, buffer);
        }
        require(copied_);
    } catch (const c10::Error& error) {
        throw StagingError(" cannot copy its gradients from " + buffer.device().str() + ": " +
                           error.what_without_backtrace());
    }
}

void Staging::put_back(const at::Tensor& buffer) {
    try {
        copy(buffer, host_);
    } catch (const c10::Error& error) {
        throw StagingError(" cannot copy the average to " + buffer.device().str() + ": " +
                           error.what_without_backtrace());
    }
}

// One of the two is on the device, and may be given back before the copy is done.
void Staging::copy(const at::Tensor& to, const at::Tensor& from) {
    const at::AutoDispatchBelowADInplaceOrView below;  // the path tells autograd
    const c10::StreamGuard guard(stream_);
    const at::Tensor& buffer = to.is_cpu() ? from : to;
    to.view({-1}).copy_(from.view({-1}), /*non_blocking=*/true);
    copied_.record(stream_);
    const c10::impl::VirtualGuardImpl device(buffer.device().type());
    device.recordDataPtrOnStream(buffer.storage().data_ptr(), stream_);
}

}  // namespace ddpdiag
