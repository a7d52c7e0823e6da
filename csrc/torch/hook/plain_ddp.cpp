#include "torch/hook/plain_ddp.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cstdint>
#include <tuple>
#include <utility>

#include "torch/element.hpp"
#include "torch/hook/reducer_parts.hpp"
#include "torch/hook/run_bucket.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/reduce/collectives.hpp"
#include "torch/reduce/future_work.hpp"

namespace ddpdiag {
namespace {

using Group_ = c10::intrusive_ptr<c10d::ProcessGroup>;
using Reduced = std::tuple<std::vector<at::Tensor>, c10::intrusive_ptr<c10d::Work>>;
using AllReduce = Reduced(at::TensorList, const Group_&, const c10::intrusive_ptr<c10d::ReduceOp>&,
                          const std::optional<at::Tensor>&, bool, std::int64_t);

struct Joined {
    ModuleState* module = nullptr;
    std::size_t next = 0;
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local Joined joined;

struct Found {
    std::shared_ptr<PlainDdp> ddp;
    std::size_t index = 0;
};

// The bucket that a reducer, which calls on this thread, is about to reduce.
std::optional<Found> bucket_among(at::TensorList tensors) {
    if (tensors.size() != 1) {
        return std::nullopt;
    }
    ModuleState* const module = joined.module != nullptr ? joined.module : module_in_backward();
    if (module == nullptr) {
        return std::nullopt;
    }
    auto ddp = module->hook.plain.lock();
    if (ddp == nullptr) {
        return std::nullopt;
    }
    const auto index =
        joined.module != nullptr ? ddp->bucket_like(tensors[0], joined.next) : ddp->bucket_of(tensors[0]);
    if (!index) {
        return std::nullopt;
    }
    joined.next = *index + 1;
    return Found{std::move(ddp), *index};
}

// What torch calls in place of `c10d::allreduce_`, before the backend: it always goes on to that, unchanged.
Reduced observed(c10::DispatchKeySet keys, at::TensorList tensors, const Group_& group,
                 const c10::intrusive_ptr<c10d::ReduceOp>& operation,
                 const std::optional<at::Tensor>& sparse_indices, bool asynchronous, std::int64_t timeout) {
    static const auto all_reduce =
        c10::Dispatcher::singleton().findSchemaOrThrow("c10d::allreduce_", "").typed<AllReduce>();
    const auto go_on = [&] {
        return all_reduce.redispatch(keys & c10::after_ADInplaceOrView_keyset, tensors, group, operation,
                                     sparse_indices, asynchronous, timeout);
    };
    const auto bucket = bucket_among(tensors);
    if (!bucket) {
        return go_on();
    }
    Reduced reduced;
    auto work = bucket->ddp->run(bucket->index, tensors[0], [&] {
        reduced = go_on();
        return std::get<1>(reduced);
    });
    std::get<1>(reduced) = std::move(work);
    return reduced;
}

bool same_kind(const at::Tensor& one, const at::Tensor& other) {
    return one.numel() == other.numel() && one.scalar_type() == other.scalar_type() &&
           one.layout() == other.layout() && one.device() == other.device();
}

}  // namespace

void observe_all_reduces() {
    // Never removed: torch's threads may outlive the statics of this library. The key is one that every tensor has, and that
    // comes before the backend's.
    static auto* const library = [] {
        auto* const made = new torch::Library(torch::Library::IMPL, "c10d", c10::DispatchKey::ADInplaceOrView,
                                              __FILE__, __LINE__);
        made->impl("allreduce_", torch::CppFunction::makeFromUnboxedFunction(TORCH_FN(observed)));
        return made;
    }();
    static_cast<void>(library);
}

// DDP's own way: it has divided the gradients, and calls the all-reduce itself.
class PlainDdp::OwnPath final : public Path {
public:
    OwnPath(const at::Tensor& buffer, std::shared_ptr<Group> group, const BucketLayout& layout,
            double divided_by)
        : Path(buffer, std::move(group),
               {.name = "plain", .bytes = layout.bytes, .dtype = layout.dtype, .divided_by = divided_by}) {}

    void calls(const Call* call) noexcept { call_ = call; }
    Prepared prepare(const at::Tensor& /*buffer*/, bool /*with_statistics*/) override {
        return {.divided_by = facts().divided_by};
    }
    [[nodiscard]] Begun begin(const at::Tensor& /*buffer*/, const Turn& /*turn*/) override {
        return begun_by((*call_)());
    }

private:
    const Call* call_ = nullptr;  // the caller's, which waits for begin()
};

PlainDdp::PlainDdp(std::shared_ptr<Recorder> recorder, const std::shared_ptr<ModuleState>& module)
    : recorder_(std::move(recorder)), module_(module) {}

PlainDdp::~PlainDdp() = default;

std::optional<std::size_t> PlainDdp::bucket_of(const at::Tensor& tensor) const {
    const auto module = module_.lock();
    const auto reducer = module != nullptr ? module->identity.reducer() : nullptr;
    if (reducer == nullptr || hook_of(*reducer) != nullptr) {
        return std::nullopt;
    }
    const auto& buckets = ReducerParts::buckets(*reducer);
    for (std::size_t index = 0; index < buckets.size(); ++index) {
        const at::Tensor& gradients = buckets[index].gradients;
        // Complex ones are reduced as a view of pairs.
        if (gradients.is_same(tensor) ||
            (!tensor.is_sparse() && gradients.defined() && !gradients.is_sparse() && tensor.has_storage() &&
             tensor.is_alias_of(gradients))) {
            return index;
        }
    }
    return std::nullopt;
}

std::optional<std::size_t> PlainDdp::bucket_like(const at::Tensor& tensor, std::size_t next) const {
    const auto module = module_.lock();
    const auto reducer = module != nullptr ? module->identity.reducer() : nullptr;
    if (reducer == nullptr || hook_of(*reducer) != nullptr) {
        return std::nullopt;
    }
    const auto& buckets = ReducerParts::buckets(*reducer);
    return next < buckets.size() && same_kind(buckets[next].gradients, tensor) ? std::optional(next)
                                                                               : std::nullopt;
}

c10::intrusive_ptr<c10d::Work> PlainDdp::run(std::size_t index, const at::Tensor& values, const Call& call) {
    const Arrival arrival{.ready = platform::monotonic_ns(), .origin = flag_native};
    const auto module = module_.lock();
    const auto reducer = module != nullptr ? module->identity.reducer() : nullptr;
    const TraceVisit visit(&recorder_->trace());
    if (reducer == nullptr || recorder_->closed()) {
        return call();
    }
    const auto& buckets = ReducerParts::buckets(*reducer);
    const int divisor = ReducerParts::divisor(*reducer);
    const auto& group = module->identity.group();
    const double divided_by = divisor > 0 ? divisor : static_cast<double>(group->size);
    if (seen_.size() != buckets.size()) {
        seen_.resize(buckets.size());
    }
    Seen& known = seen_[index];
    const bool is_known = known.buffer._unsafe_get_target() == values.unsafeGetTensorImpl();
    // Its parameters are only needed where it is new.
    c10d::GradBucket bucket(index, buckets.size(), values, {}, {}, {},
                            is_known ? std::vector<at::Tensor>{} : buckets[index].variables, std::nullopt);
    if (!is_known) {
        known.buffer = c10::weak_intrusive_ptr<c10::TensorImpl>(values.getIntrusivePtr());
        known.layout = recorder_->layout(bucket);
    }
    if (!is_known || known.path->facts().divided_by != divided_by) {
        known.path = std::make_shared<OwnPath>(values, group, *known.layout, divided_by);
    }
    known.path->calls(&call);
    return work_of(run_bucket(recorder_, bucket, known.layout, known.path, arrival, Wants::same).future);
}

JoinedPass::JoinedPass(const std::shared_ptr<ModuleState>& module) {
    joined = {.module = module.get(), .next = 0};
}

JoinedPass::~JoinedPass() {
    joined = {};
}

}  // namespace ddpdiag
