#include "torch/backward_pass.hpp"

#include <exception>
#include <utility>

namespace ddpdiag {
namespace {

constexpr std::uint32_t first_passes = 2;
constexpr std::uint32_t attentive_interval = 16;

}  // namespace

BackwardPass::BackwardPass(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
                           const Group& group, std::uint32_t number, const Operation& operation,
                           bool needs_probe)
    : recorder_(std::move(recorder)),
      module_(std::move(module)),
      group_(&group),
      operation_(operation),
      strangers_before_(strangers()),
      others_before_(other_collectives()) {
    if (!needs_probe && !module_->strangers && number >= first_passes && number % attentive_interval != 0) {
        silence_.emplace();
    }
}

std::optional<std::uint64_t> BackwardPass::strangers() const {
    const auto handle = group_->handle.lock();
    if (!handle) {
        return std::nullopt;
    }
    try {
        return handle->getSequenceNumberForGroup() - group_->next_sequence.load(std::memory_order_relaxed);
    } catch (const std::exception&) {
        return std::nullopt;  // this torch's groups do not count
    }
}

void BackwardPass::finalize_begin() const {
    operation_.stamp(backward_time::finalize_begin, platform::monotonic_ns());
}

void BackwardPass::finalize_end() {
    operation_.stamp(backward_time::finalize_end, platform::monotonic_ns());
    operation_.complete();
    module_->futures.clear();
    silence_.reset();
    if (!strangers_before_ || strangers() != strangers_before_ || other_collectives() != others_before_) {
        module_->strangers = true;
    }
    if (module_->gradients.comparing()) {
        recorder_->compare(*module_);
    }
}

}  // namespace ddpdiag
