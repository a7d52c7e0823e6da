#include "torch/probe/backward_pass.hpp"

#include <utility>

namespace ddpdiag {
namespace {

constexpr std::uint32_t first_passes = 2;
constexpr std::uint32_t attentive_interval = 16;

}  // namespace

BackwardPass::BackwardPass(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
                           const Group& group, std::uint32_t number, const Operation& operation,
                           bool needs_probe)
    : number_(number),
      recorder_(std::move(recorder)),
      module_(std::move(module)),
      group_(&group),
      operation_(operation),
      others_of_group_before_(others_of_group()),
      others_before_(other_collectives()) {
    if (!needs_probe && !module_->hook.other_collectives && number >= first_passes &&
        number % attentive_interval != 0) {
        pause_.emplace();
    }
}

BackwardPass::~BackwardPass() {
    if (!ended_) {
        operation_.set_flags(flag_abandoned);
        operation_.complete();
    }
}

std::optional<std::uint64_t> BackwardPass::others_of_group() const {
    const auto handle = group_->handle.lock();
    if (!handle) {
        return std::nullopt;
    }
    const auto begun = collectives_begun(*handle);
    if (!begun) {
        return std::nullopt;
    }
    return *begun - group_->bucket_collectives.load(std::memory_order_relaxed);
}

void BackwardPass::finalize_begin() {
    finalize_begin_ns_ = platform::monotonic_ns();
    operation_.stamp(backward_time::finalize_begin, finalize_begin_ns_);
}

void BackwardPass::finalize_end() {
    const std::int64_t end = platform::monotonic_ns();
    operation_.stamp(backward_time::finalize_end, end);
    if (finalize_begin_ns_ != 0) {
        module_->marks.waited_ns.fetch_add(end - finalize_begin_ns_, std::memory_order_relaxed);
    }
    operation_.complete();
    ended_ = true;
    module_->used.end_pass();
    if (operation_) {
        recorder_->record_usage(*module_);
        recorder_->record_weights(*module_, number_);
    }
    HookThread& hook = module_->hook;
    hook.operations.end_pass();
    pause_.reset();
    if (!others_of_group_before_ || others_of_group() != others_of_group_before_ ||
        other_collectives() != others_before_) {
        hook.other_collectives = true;
    }
    if (hook.watched.compares) {
        recorder_->compare(*module_);
    }
    recorder_->check_trace();
}

}  // namespace ddpdiag
