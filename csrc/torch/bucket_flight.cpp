#include "torch/bucket_flight.hpp"

#include <functional>
#include <utility>
#include <vector>

#include "torch/idle.hpp"

namespace ddpdiag {

using c10::ivalue::Future;

// What the end of a bucket's all-reduce needs. Kept by the module and used again, so that nothing which one thread
// allocates is freed by another.
struct BucketFlight {
    Enqueued bucket;  // without its future, which the module holds
    c10::intrusive_ptr<Future> averaged;
    c10::IValue result;
    std::shared_ptr<BucketFlight> self;  // while under way: the callback's own hold
};

namespace {

// On the worker's thread, when the all-reduce has ended well.
void finish(const Enqueued& bucket) {
    if (bucket.compressed != nullptr) {
        bucket.compressed->collect(bucket.buffer);
    }
    if (bucket.operation != nullptr) {
        bucket.operation->ended();
    }
    if (bucket.compressed != nullptr) {
        bucket.compressed->expand(bucket.buffer);
    }
    if (bucket.operation != nullptr) {
        bucket.operation->reduced(bucket.buffer);
    }
}

// What torch keeps until the result was taken, which only matters to the streams of accelerators. Given here, so that it
// need not look into the result, whose Python object takes Python's lock.
std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_of(const Enqueued& bucket, Future& done) {
    if (bucket.buffer.is_cpu()) {
        return {};
    }
    if (bucket.compressed == nullptr) {
        return done.storages();
    }
    return {bucket.buffer.storage().getWeakStorageImpl()};
}

void land(BucketFlight& flight, Future& done) {
    // Until it is empty: only then may it be used again.
    const std::shared_ptr<BucketFlight> hold = std::move(flight.self);
    const auto averaged = std::move(flight.averaged);
    const auto fail = [&](const std::exception_ptr& error) {
        const auto& operation = flight.bucket.operation;
        averaged->setError(operation != nullptr ? operation->failed(error) : error);
    };
    if (done.hasError()) {
        fail(done.exception_ptr());
    } else {
        try {
            finish(flight.bucket);
            // The result goes with it: the worker, which has not Python's lock, should not be its last owner.
            averaged->markCompleted(std::move(flight.result), storages_of(flight.bucket, done));
        } catch (...) {
            fail(std::current_exception());
        }
    }
    flight.bucket = {};
    flight.result = {};
}

}  // namespace

c10::intrusive_ptr<Future> finished(Enqueued enqueued, ModuleState& module, std::size_t index,
                                    const c10::TypePtr& type, c10::IValue result) {
    const auto& future = module.futures.emplace_back(std::move(enqueued.future));
    auto averaged = c10::make_intrusive<Future>(type, future->devices());
    const auto& known = idle(module.flights, index);
    BucketFlight& flight = *known;
    flight.self = known;
    flight.bucket = std::move(enqueued);
    flight.averaged = averaged;
    flight.result = std::move(result);
    // Nothing but an address, which std::function has room for. Made before it is handed over: that happens under a
    // mutex which the worker may want just then.
    std::function<void(Future&)> callback = [to = &flight](Future& done) { land(*to, done); };
    future->addCallback(std::move(callback));
    return averaged;
}

}  // namespace ddpdiag
