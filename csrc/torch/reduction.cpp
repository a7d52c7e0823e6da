#include "torch/reduction.hpp"

#include <utility>

#include "torch/backward_probe.hpp"
#include "torch/bucket_start.hpp"
#include "torch/start_signal.hpp"

namespace ddpdiag {

Reduction::Reduction(std::shared_ptr<Recorder> recorder, std::shared_ptr<ModuleState> module)
    : recorder_(std::move(recorder)), module_(std::move(module)) {}

void Reduction::first_gradient() {
    const std::int64_t now = platform::monotonic_ns();
    module_->first_gradient.store(now, std::memory_order_relaxed);
}

c10::intrusive_ptr<c10d::Work> Reduction::begin(std::size_t index, std::size_t count,
                                                const at::Tensor& buffer,
                                                std::vector<at::Tensor> parameters) {
    const std::int64_t ready = platform::monotonic_ns();
    require_open(*recorder_);
    c10d::GradBucket bucket(index, count, buffer, {}, {}, {}, std::move(parameters), std::nullopt);
    const auto layout = recorder_->layout(bucket);
    if (index == 0) {
        pass_ = open_pass(recorder_, module_, *module_->group, !StartSignal::by_copy_is_possible());
    }
    const auto start =
        start_bucket(recorder_, bucket, layout, nullptr,
                     {.ready = ready, .flags = flag_reducer, .dtype = layout->dtype, .bytes = layout->bytes});
    std::vector<at::Tensor> tensors = {buffer};
    const auto group = start.group->lock();
    const auto& operation = start.operation;
    if (operation == nullptr) {
        return group->allreduce(tensors);
    }
    c10::intrusive_ptr<c10d::Work> work;
    try {
        operation->look(buffer, static_cast<double>(start.group->size));
        operation->enqueued(buffer);
        const StartSignal signal(operation, module_->signal_by_copy);
        work = group->allreduce(tensors);
        operation->returned();
    } catch (...) {
        std::rethrow_exception(operation->failed(std::current_exception()));
    }
    // Before the work's own end, so that whoever waited for it finds the record as it should be.
    work->getFuture()->addCallback([operation, buffer](c10::ivalue::Future& done) {
        if (done.hasError()) {
            static_cast<void>(operation->failed(done.exception_ptr()));
            return;
        }
        operation->ended();
        operation->reduced(buffer);
    });
    return work;
}

void Reduction::waiting() {
    if (pass_ != nullptr) {
        pass_->finalize_begin();
    }
}

void Reduction::taken() {
    consume_next(*module_);
}

void Reduction::done() {
    if (const auto pass = std::exchange(pass_, nullptr); pass != nullptr) {
        pass->finalize_end();
    }
}

}  // namespace ddpdiag
