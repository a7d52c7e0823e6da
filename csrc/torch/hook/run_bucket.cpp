#include "torch/hook/run_bucket.hpp"

#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "torch/hook/in_flight.hpp"
#include "torch/probe/start_signal.hpp"

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

// The gradients are examined as they came, or by the path in its own pass if it can. True: while it sums.
bool prepare(Path& path, const at::Tensor& buffer, BucketOperation& operation) {
    const PathFacts& facts = path.facts();
    const bool watched = operation.watched();
    const bool while_summing =
        watched && facts.statistics == StatisticsFrom::sum && operation.await_look(buffer);
    if (watched && !while_summing && facts.statistics != StatisticsFrom::prepare) {
        operation.look(buffer, facts.divided_by);
    }
    const Prepared seen = path.prepare(buffer, watched && facts.statistics == StatisticsFrom::prepare);
    if (seen.statistics) {
        operation.look(buffer, seen.divided_by, seen.statistics);
    }
    const auto finite = watched || seen.finite || facts.statistics == StatisticsFrom::sum
                            ? seen.finite
                            : operation.search(buffer);
    if (finite == true) {
        operation.finite();
    } else if (finite == false && !watched) {
        operation.look_at_fault(buffer, seen.divided_by);
    }
    return while_summing;
}

Begun begin_recorded(Path& path, const at::Tensor& buffer, const BucketStart& start, std::uint64_t number,
                     const HookThread& hook, Wants wants) {
    const auto& operation = start.operation;
    const StartFrom from = path.facts().start;
    const bool watched = prepare(path, buffer, *operation);
    operation->enqueued(buffer);
    const StartSignal signal(operation, from, hook);
    Begun begun = path.begin(
        buffer,
        {.sequence = number, .start = from == StartFrom::path ? operation : nullptr, .watched = watched});
    if (wants != Wants::begun) {
        begun.work.reset();
    }
    operation->returned();
    return begun;
}

// Unchanged if it is a foreign hook's own error, perhaps a Python one.
[[noreturn]] void throw_failed(BucketOperation& operation, std::uint32_t flags) {
    const auto described = operation.failed(std::current_exception());
    if ((flags & flag_foreign) != 0) {
        throw;
    }
    std::rethrow_exception(described);
}

// When what was begun has ended well, on the thread that ended it.
void finish(const BucketInFlight& held) {
    if (held.path != nullptr) {
        held.path->collect(held.buffer);
    }
    if (held.operation != nullptr) {
        held.operation->ended();
    }
    if (held.path != nullptr) {
        held.path->finish(held.buffer);
    }
    if (held.operation != nullptr) {
        held.operation->reduced(held.buffer);
    }
}

// What torch keeps until the result is taken; only the streams of accelerators need it. We pass it here so
// that torch need not look into the result, whose Python object takes the GIL.
std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_of(const BucketInFlight& held, Future& done) {
    if (held.buffer.is_cpu()) {
        return {};
    }
    if (held.path == nullptr) {
        return done.storages();
    }
    return {held.buffer.storage().getWeakStorageImpl()};
}

void on_completed(BucketInFlight& held, Future& done) {
    // Until it is empty: only then may it be reused.
    const std::shared_ptr<BucketInFlight> hold = std::move(held.self);
    const auto averaged = std::move(held.averaged);
    const auto fail = [&](const std::exception_ptr& error) {
        const auto described = held.operation != nullptr ? held.operation->failed(error) : error;
        if (averaged) {
            averaged->setError(described);
        }
    };
    if (done.hasError()) {
        fail(done.exception_ptr());
    } else {
        try {
            finish(held);
            if (averaged) {
                // This also releases the result: the worker, which does not hold the GIL, should not be its
                // last owner.
                averaged->markCompleted(held.result.isNone() ? done.value() : std::move(held.result),
                                        storages_of(held, done));
            }
        } catch (...) {
            fail(std::current_exception());
        }
    }
    held.operation.reset();
    held.buffer.reset();
    held.result = {};
}

void complete_when_done(BucketInFlight& held, Future& future) {
    // Only an address, which std::function has room for. Created before it is handed over: that happens under
    // a mutex that the worker may want at that moment.
    std::function<void(Future&)> callback = [to = &held](Future& done) { on_completed(*to, done); };
    future.addCallback(std::move(callback));
}

// The future that DDP waits for. We hold the path's own: if the worker were its last owner, it would destroy
// it under Gloo's mutex.
c10::intrusive_ptr<Future> averaged_of(BucketInFlight& held, Begun begun, OperationPool& pool, Wants wants,
                                       const c10::IValue& object) {
    c10::TypePtr type = begun.future->elementType();
    if (wants == Wants::tensor) {
        type = c10::TensorType::get();
    } else if (wants == Wants::object) {
        type = c10::PyObjectType::get();
    }
    auto averaged = c10::make_intrusive<Future>(type, begun.future->devices());
    held.result = wants == Wants::tensor ? c10::IValue(held.buffer) : object;  // none for Wants::same
    held.averaged = averaged;
    Future& future = *begun.future;
    pool.hold(std::move(begun.future));
    complete_when_done(held, future);
    return averaged;
}

// Arranges for the end of what a path has begun.
Begun track(c10d::GradBucket& bucket, const std::shared_ptr<Path>& path, Begun begun,
            std::shared_ptr<BucketOperation> operation, const std::shared_ptr<BucketInFlight>& idle,
            OperationPool& futures, Wants wants, const c10::IValue& object) {
    const PathFacts& facts = path->facts();
    BucketInFlight& held = *idle;
    held.self = idle;
    held.operation = std::move(operation);
    if ((facts.flags & flag_foreign) == 0) {
        held.buffer = bucket.getBufferRef();
    }
    if (!facts.finishes) {
        held.path.reset();
    } else if (held.path != path) {
        held.path = path;
    }
    if (wants == Wants::begun) {
        complete_when_done(held, *begun.future);
        return begun;
    }
    return {.future = averaged_of(held, std::move(begun), futures, wants, object), .work = nullptr};
}

}  // namespace

Begun run_bucket(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                 const std::shared_ptr<const BucketLayout>& layout, const std::shared_ptr<Path>& path,
                 const Arrival& arrival, Wants wants, const c10::IValue& object) {
    HookThread& hook = layout->module->hook;
    const at::Tensor& buffer = bucket.getBufferRef();
    const PathFacts& facts = path->facts();
    auto start = start_bucket(recorder, bucket, layout, path->group(), arrival, facts);
    const std::uint64_t number = arrival.number.value_or(start.sequence);
    Begun begun;
    if (start.operation == nullptr) {
        path->prepare(buffer, /*with_statistics=*/false);
        begun = path->begin(buffer, {.sequence = number, .start = nullptr});
        if (!facts.finishes && wants != Wants::object) {
            return begun;
        }
        begun.work.reset();
    } else {
        try {
            begun = begin_recorded(*path, buffer, start, number, hook, wants);
        } catch (...) {
            throw_failed(*start.operation, facts.flags);
        }
    }
    return track(bucket, path, std::move(begun), std::move(start.operation),
                 in_flight_of(*layout->module).take(bucket.getIndex()), hook.operations, wants, object);
}

Begun run_unrecorded(c10d::GradBucket& bucket, const std::shared_ptr<Path>& path, InFlight& in_flight,
                     OperationPool& futures, Wants wants, const c10::IValue& object) {
    const at::Tensor& buffer = bucket.getBufferRef();
    path->prepare(buffer, /*with_statistics=*/false);
    Begun begun = path->begin(buffer, {});
    if (!path->facts().finishes && wants != Wants::object) {
        return begun;
    }
    begun.work.reset();
    return track(bucket, path, std::move(begun), nullptr, in_flight.take(bucket.getIndex()), futures, wants,
                 object);
}

}  // namespace ddpdiag
