#include "torch/reduce/future_work.hpp"

#include <chrono>
#include <exception>
#include <utility>

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

class FutureWork final : public c10d::Work {
public:
    FutureWork(c10::intrusive_ptr<Future> future, Help help)
        : future_(std::move(future)), help_(std::move(help)) {}

    void end(const std::exception_ptr& error) { finish(error); }
    c10::intrusive_ptr<Future> getFuture() override { return future_; }
    bool wait(std::chrono::milliseconds timeout) override {
        // Help knows the group's timeout only.
        if (help_ && timeout == kNoTimeout) {
            help_(*future_);
        }
        return Work::wait(timeout);
    }
    // At the end of a wait: on an accelerator, the current streams wait, too.
    void synchronize() override { future_->wait(); }

private:
    c10::intrusive_ptr<Future> future_;
    Help help_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> work_of(c10::intrusive_ptr<Future> future, Help help) {
    Future& done = *future;
    auto work = c10::make_intrusive<FutureWork>(std::move(future), std::move(help));
    // The future lets go of its callbacks when they have run, and so of the work that holds it.
    done.addCallback(
        [work](Future& ended) { work->end(ended.hasError() ? ended.exception_ptr() : nullptr); });
    return work;
}

}  // namespace ddpdiag
