#include "torch/hook/ddp_hook.hpp"

#include <utility>
#include <vector>

#include "torch/hook/detached.hpp"
#include "torch/hook/hook_of_module.hpp"
#include "torch/hook/in_flight.hpp"
#include "torch/hook/run_bucket.hpp"
#include "torch/hook/uneven.hpp"

namespace ddpdiag {
using c10::ivalue::Future;

namespace {

class TimedBucketHook final : public c10d::CommHookInterface {
public:
    explicit TimedBucketHook(std::shared_ptr<HookOfModule> hook) : hook_(std::move(hook)) {}

    c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
        return hook_->run(bucket, {.origin = flag_native, .wants = Wants::tensor, .object = {}});
    }

    at::Tensor parseHookResult(const c10::IValue& result) override {
        hook_->taken();
        return c10d::detail::parseCppCommHookResult(result);
    }

private:
    std::shared_ptr<HookOfModule> hook_;
};

}  // namespace

c10::intrusive_ptr<Future> timed_allreduce(const std::shared_ptr<Recorder>& recorder,
                                           c10d::GradBucket& bucket, const std::shared_ptr<Group>& group,
                                           const c10::IValue& result, const PathOptions& options) {
    const Arrival arrival{.ready = platform::monotonic_ns()};
    const auto visit = require_open(*recorder);
    const auto layout = recorder->layout(bucket);
    ModuleState& module = *layout->module;
    const auto& over = group != nullptr ? group : module.identity.group();
    InFlight& in_flight = in_flight_of(module);
    if (bucket.getIndex() == 0) {
        count_ranks_left(module);
        in_flight.begin_pass(options);
    }
    const at::Tensor& buffer = bucket.getBufferRef();
    const auto& path = in_flight.path(bucket.getIndex(), buffer, over,
                                      for_ranks_left(module, buffer, in_flight.pass_options()));
    return run_bucket(recorder, bucket, layout, path, arrival, Wants::object, result).future;
}

Attachment::Attachment(c10d::Reducer& reducer, const std::shared_ptr<Recorder>& recorder,
                       const std::shared_ptr<ModuleState>& module, const std::vector<at::Tensor>& parameters,
                       const PathOptions& options)
    : hook_(std::make_shared<HookOfModule>(HookOfModule::Service{recorder, module, options})) {
    reducer.register_comm_hook(std::make_unique<TimedBucketHook>(hook_));
    parameters_.emplace(recorder, module, parameters);
}

Attachment::Attachment(std::shared_ptr<Group> group, const std::vector<at::Tensor>& parameters)
    : hook_(std::make_shared<HookOfModule>(std::move(group))) {
    keep_for_detached(hook_, parameters);
}

void Attachment::serve(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                       const std::vector<at::Tensor>& parameters, const PathOptions& options) {
    hook_->serve({recorder, module, options});
    if (parameters_) {
        parameters_->end();
    }
    parameters_.emplace(recorder, module, parameters);
}

void Attachment::release() {
    hook_->release();
    if (parameters_) {
        parameters_->end();
        parameters_.reset();
    }
}

}  // namespace ddpdiag
