#include "torch/hook/ddp_hook.hpp"

#include <stdexcept>
#include <utility>
#include <vector>

#include "torch/hook/detached.hpp"
#include "torch/hook/hook_of_module.hpp"
#include "torch/hook/in_flight.hpp"
#include "torch/hook/plain_ddp.hpp"
#include "torch/hook/reducer_parts.hpp"
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

Attachment::Attachment(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                       const std::vector<at::Tensor>& parameters, const PathOptions& options) {
    serve(recorder, module, parameters, options);
}

Attachment::Attachment(std::shared_ptr<Group> group, const std::vector<at::Tensor>& parameters)
    : pythons_(std::make_shared<HookOfModule>(std::move(group))) {
    keep_for_detached(pythons_, parameters);
}

Attachment::~Attachment() = default;

void Attachment::serve(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                       const std::vector<at::Tensor>& parameters, const PathOptions& options) {
    if (pythons_ != nullptr) {
        pythons_->serve({recorder, module, options});
    } else if (options == PathOptions{}) {
        observe(recorder, module);
    } else {
        hook(recorder, module, options);
    }
    if (parameters_) {
        parameters_->end();
    }
    parameters_.emplace(recorder, module, parameters);
}

void Attachment::observe(const std::shared_ptr<Recorder>& recorder,
                         const std::shared_ptr<ModuleState>& module) {
    take_hook_away();
    const auto reducer = module->identity.reducer();
    if (reducer != nullptr && hook_of(*reducer) != nullptr) {
        throw std::runtime_error("its reducer has a communication hook already");
    }
    observe_all_reduces();
    plain_ = std::make_shared<PlainDdp>(recorder, module);
    module->hook.plain = plain_;
}

void Attachment::hook(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                      const PathOptions& options) {
    take_hook_away();
    plain_.reset();
    const auto reducer = module->identity.reducer();
    if (reducer == nullptr) {
        throw std::runtime_error("its reducer is gone");
    }
    auto hook = std::make_unique<TimedBucketHook>(
        std::make_shared<HookOfModule>(HookOfModule::Service{recorder, module, options}));
    const auto* const ours = hook.get();
    reducer->register_comm_hook(std::move(hook));
    reducer_ = reducer;
    ours_ = ours;
}

void Attachment::take_hook_away() {
    const auto reducer = reducer_.lock();
    if (reducer != nullptr && ours_ != nullptr && hook_of(*reducer).get() == ours_) {
        hook_of(*reducer).reset();
    }
    ours_ = nullptr;
    reducer_.reset();
}

void Attachment::release() {
    if (pythons_ != nullptr) {
        pythons_->release();
    }
    take_hook_away();
    plain_.reset();
    if (parameters_) {
        parameters_->end();
        parameters_.reset();
    }
}

}  // namespace ddpdiag
