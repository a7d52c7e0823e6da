#include "torch/hook/reduction.hpp"

#include <utility>

#include "torch/hook/in_flight.hpp"
#include "torch/hook/run_bucket.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/probe/start_signal.hpp"
#include "torch/reduce/future_work.hpp"
#include "torch/reduce/shared/ranks.hpp"

namespace ddpdiag {

Reduction::Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
                     PathOptions options)
    : recorder_(std::move(recorder)), module_(std::move(module)), options_(std::move(options)) {
    options_.divided_by = module_->identity.group()->size;
}

void Reduction::first_gradient() {
    const std::int64_t now = platform::monotonic_ns();
    module_->marks.first_gradient.store(now, std::memory_order_relaxed);
}

c10::intrusive_ptr<c10d::Work> Reduction::begin(std::size_t index, std::size_t count,
                                                const at::Tensor& buffer, std::vector<at::Tensor> parameters,
                                                std::uint64_t number) {
    const Arrival arrival{
        .ready = platform::monotonic_ns(), .origin = flag_reducer, .sees_taken = true, .number = number};
    const auto visit = require_open(*recorder_);
    c10d::GradBucket bucket(index, count, buffer, {}, {}, {}, std::move(parameters), std::nullopt);
    const auto layout = recorder_->layout(bucket);
    const auto& group = module_->identity.group();
    const auto path = in_flight_of(*module_).path(index, buffer, group, options_);
    if (index == 0) {
        module_->hook.signal_by_copy = StartSignal::by_copy_is_possible();
        pass_ = open_pass(recorder_, module_, *group,
                          StartSignal::needs_probe(path->facts().start, module_->hook));
    }
    Begun begun = run_bucket(recorder_, bucket, layout, path, arrival, Wants::begun);
    if (begun.work != nullptr) {
        return begun.work;
    }
    return work_of(std::move(begun.future), options_.shared != nullptr ? helper_of(options_.shared) : Help());
}

void Reduction::waiting() {
    if (pass_ != nullptr) {
        pass_->finalize_begin();
    }
}

void Reduction::taken() {
    module_->hook.operations.consume_next();
}

void Reduction::done() {
    if (const auto pass = std::exchange(pass_, nullptr); pass != nullptr) {
        pass->finalize_end();
    }
}

}  // namespace ddpdiag
