#include "torch/foreign_hook.hpp"

#include "torch/bucket_start.hpp"
#include "torch/start_signal.hpp"

namespace ddpdiag {

using c10::ivalue::Future;

c10::intrusive_ptr<Future> timed_foreign(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                                         const std::shared_ptr<Group>& group,
                                         const std::function<c10::intrusive_ptr<Future>()>& hook) {
    const std::int64_t ready = platform::monotonic_ns();
    require_open(*recorder);
    const auto layout = recorder->layout(bucket);
    const auto operation =
        start_bucket(recorder, bucket, layout, group.get(),
                     {.ready = ready, .flags = flag_foreign, .dtype = layout->dtype, .bytes = layout->bytes})
            .operation;
    if (operation == nullptr) {
        return hook();
    }
    c10::intrusive_ptr<Future> future;
    try {
        operation->look(bucket.getBufferRef());
        operation->enqueued(bucket.getBufferRef());
        // By the span: it tells one operation from the next, and a hook may start several.
        const StartSignal signal(operation, false);
        future = hook();
        operation->returned();
    } catch (...) {
        // As it is: it is the hook's own error, perhaps a Python one.
        static_cast<void>(operation->failed(std::current_exception()));
        throw;
    }
    future->addCallback([operation](Future& done) {
        if (done.hasError()) {
            static_cast<void>(operation->failed(done.exception_ptr()));
        } else {
            operation->ended();
            operation->reduced(std::nullopt);
        }
    });
    return future;
}

}  // namespace ddpdiag
