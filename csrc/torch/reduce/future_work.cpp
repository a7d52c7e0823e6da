#include "torch/reduce/future_work.hpp"

#include <exception>
#include <utility>

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

class FutureWork final : public c10d::Work {
public:
    explicit FutureWork(c10::intrusive_ptr<Future> future) : future_(std::move(future)) {}

    void end(const std::exception_ptr& error) { finish(error); }
    c10::intrusive_ptr<Future> getFuture() override { return future_; }

private:
    c10::intrusive_ptr<Future> future_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> work_of(c10::intrusive_ptr<Future> future) {
    Future& done = *future;
    auto work = c10::make_intrusive<FutureWork>(std::move(future));
    // The future lets go of its callbacks when they have run, and so of the work that holds it.
    done.addCallback(
        [work](Future& ended) { work->end(ended.hasError() ? ended.exception_ptr() : nullptr); });
    return work;
}

}  // namespace ddpdiag
