#include "torch/hook/foreign_hook.hpp"

#include <optional>
#include <utility>

#include "torch/hook/run_bucket.hpp"

namespace ddpdiag {
namespace {

using Hook = std::function<c10::intrusive_ptr<c10::ivalue::Future>()>;

// A foreign way to sum a bucket; only its future is visible.
class ForeignPath final : public Path {
public:
    ForeignPath(const at::Tensor& buffer, std::shared_ptr<Group> group, const BucketLayout& layout,
                const Hook& hook)
        : Path(buffer, std::move(group),
               {.name = "foreign",
                .bytes = layout.bytes,
                .dtype = layout.dtype,
                .flags = flag_foreign,
                .collectives = std::nullopt,
                .start = StartFrom::first_span}),
          hook_(&hook) {}

    Prepared prepare(const at::Tensor& /*buffer*/, bool /*with_statistics*/) override { return {}; }
    [[nodiscard]] Begun begin(const at::Tensor& /*buffer*/, const Turn& /*turn*/) override {
        return {.future = (*hook_)(), .work = nullptr};
    }

private:
    const Hook* hook_;  // the caller's, which waits for begin()
};

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> timed_foreign(const std::shared_ptr<Recorder>& recorder,
                                                      c10d::GradBucket& bucket,
                                                      const std::shared_ptr<Group>& group, const Hook& hook) {
    const Arrival arrival{.ready = platform::monotonic_ns()};
    const auto visit = require_open(*recorder);
    const auto layout = recorder->layout(bucket);
    // One for each bucket: each has its own hook with its arguments.
    const auto path = std::make_shared<ForeignPath>(
        bucket.getBufferRef(), group != nullptr ? group : layout->module->identity.group(), *layout, hook);
    return run_bucket(recorder, bucket, layout, path, arrival, Wants::begun).future;
}

}  // namespace ddpdiag
