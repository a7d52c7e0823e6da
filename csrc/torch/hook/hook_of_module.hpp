// What the hook of one DDP module does, whoever registered it, and whom it serves.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "torch/hook/in_flight.hpp"
#include "torch/hook/run_bucket.hpp"
#include "torch/probe/operation_pool.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/choose_path.hpp"

namespace ddpdiag {

// DDP runs it on one thread at a time; Python's threads change whom it serves.
class HookOfModule {
public:
    // Whom it serves in a pass.
    struct Service {
        std::shared_ptr<Recorder> recorder;  // nullptr: nobody
        std::shared_ptr<ModuleState> module;
        PathOptions options;
    };
    // How DDP calls it.
    struct Caller {
        std::uint32_t origin = 0;  // as in Arrival
        Wants wants = Wants::tensor;
        c10::IValue object;  // for Wants::object
    };

    explicit HookOfModule(Service service) : serving_(std::move(service)) {}
    // Serves nobody, and averages over `group`.
    explicit HookOfModule(std::shared_ptr<Group> group) : group_(std::move(group)) {}

    // From the next pass on.
    void serve(Service next);
    void release() { serve({.recorder = nullptr, .module = nullptr, .options = {}}); }

    c10::intrusive_ptr<c10::ivalue::Future> run(c10d::GradBucket& bucket, const Caller& caller);
    // DDP takes the buckets in the order in which it ran the hook on them.
    void taken();

private:
    struct Seen {
        // Prevents another buffer from getting the same address.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer{c10::intrusive_ptr<c10::TensorImpl>()};
        std::shared_ptr<const BucketLayout> layout;
        std::shared_ptr<Path> path;
        PathOptions options;
    };

    void begin_pass();
    // Like torch's builtin hook, which its libraries do not export.
    c10::intrusive_ptr<c10::ivalue::Future> average(c10d::GradBucket& bucket, const Caller& caller);
    const Seen& seen(c10d::GradBucket& bucket);

    Service serving_;
    std::shared_ptr<Group> group_;  // of the module, while nobody is served
    InFlight unserved_;
    OperationPool unserved_futures_;
    std::vector<Seen> seen_;

    std::mutex mutex_;
    std::atomic<bool> changed_{false};
    Service next_;
};

}  // namespace ddpdiag
