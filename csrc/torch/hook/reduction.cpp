#include "torch/hook/reduction.hpp"

#include <utility>

#include "torch/hook/in_flight.hpp"
#include "torch/hook/run_bucket.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/probe/start_signal.hpp"
#include "torch/reduce/future_work.hpp"

namespace ddpdiag {

Reduction::Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module,
                     std::shared_ptr<SharedRanks> shared)
    : recorder_(std::move(recorder)), module_(std::move(module)), shared_(std::move(shared)) {}

void Reduction::first_gradient() {
    const std::int64_t now = platform::monotonic_ns();
    module_->marks.first_gradient.store(now, std::memory_order_relaxed);
}

c10::intrusive_ptr<c10d::Work> Reduction::begin(std::size_t index, std::size_t count,
                                                const at::Tensor& buffer, std::vector<at::Tensor> parameters,
                                                std::uint64_t number) {
    const Arrival arrival{.ready = platform::monotonic_ns(), .origin = flag_reducer};
    const auto visit = require_open(*recorder_);
    c10d::GradBucket bucket(index, count, buffer, {}, {}, {}, std::move(parameters), std::nullopt);
    const auto layout = recorder_->layout(bucket);
    const auto& group = module_->identity.group();
    const auto path = this->path(index, buffer, number);
    if (index == 0) {
        module_->hook.signal_by_copy = StartSignal::by_copy_is_possible();
        pass_ = open_pass(recorder_, module_, *group,
                          StartSignal::needs_probe(path->facts().start, module_->hook));
    }
    Begun begun = run_bucket(recorder_, bucket, layout, path, arrival, Wants::begun);
    if (begun.work != nullptr) {
        return begun.work;
    }
    return work_of(std::move(begun.future), shared_ != nullptr ? helper_of(shared_) : Help());
}

// Not by way of the group's own sharing, which is the recorder's: it goes on when the recorder is closed.
std::shared_ptr<Path> Reduction::path(std::size_t index, const at::Tensor& buffer, std::uint64_t number) {
    const auto& group = module_->identity.group();
    if (shared_ == nullptr || !SharedPath::possible(buffer)) {
        return in_flight_of(*module_).path(
            index, buffer, group,
            {.compression = Compression::none, .error_feedback = false, .divided_by = group->size});
    }
    if (index >= shared_paths_.size()) {
        shared_paths_.resize(index + 1);
    }
    auto& known = shared_paths_[index];
    if (known == nullptr || !known->serves(buffer, *group)) {
        known = std::make_shared<SharedPath>(buffer, group, shared_, group->size);
    }
    known->call_next(number);
    return known;
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
