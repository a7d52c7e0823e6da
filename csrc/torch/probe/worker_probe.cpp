#include "torch/probe/worker_probe.hpp"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/trace/hash.hpp"
#include "torch/compat.hpp"
#include "torch/element.hpp"
#include "torch/probe/bucket_operation.hpp"
#include "torch/probe/worker_group.hpp"

namespace ddpdiag {
namespace {

constexpr std::string_view gloo_prefix = "gloo:";

// torch calls plain functions without our own argument, so the listeners must be known process-wide.
struct Watchers {
    std::mutex mutex;
    std::vector<std::weak_ptr<Recorder>> recorders;
    struct Counted {
        std::uint64_t count = 0;
        std::uint64_t fingerprint = 0;
    };
    std::unordered_map<std::uint64_t, Counted> counted;  // by name
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
    std::atomic<bool> listening{false};  // the handle is that of a listener
    GroupSearch search;
    bool wanted = false;  // a recorder is open and not paused
    std::size_t pauses = 0;
    std::atomic<std::uint64_t> others{0};

    // Released after the mutex: the last owner of a recorder destroys it, and that may wait for the GIL.
    [[nodiscard]] std::vector<std::shared_ptr<Recorder>> alive() const {
        std::vector<std::shared_ptr<Recorder>> result;
        for (const auto& watcher : recorders) {
            if (auto recorder = watcher.lock(); recorder != nullptr) {
                result.push_back(std::move(recorder));
            }
        }
        return result;
    }
};

// Never destroyed: Gloo's threads may outlive the statics of this library.
Watchers& watchers() {
    static auto* const instance = new Watchers;
    return *instance;
}

// Recorders that noted a collective's start, to note its end.
struct Seen : at::ObserverContext {
    struct Noted {
        std::shared_ptr<Recorder> recorder;
        Operation operation;
        Record record;
    };
    std::vector<Noted> operations;
};

// What a collective sends from this rank.
struct Payload {
    std::uint64_t bytes = 0;
    Dtype dtype = Dtype::other;

    [[nodiscard]] std::uint64_t hash() const {
        return Fnv1a{}
            .add(static_cast<std::uint32_t>(bytes))
            .add(static_cast<std::uint32_t>(bytes >> 32U))
            .add(static_cast<std::uint32_t>(dtype))
            .value();
    }
};

// ProcessGroupGloo gives its span the tensors that this rank puts in.
Payload payload_of(const at::RecordFunction& function) {
    Payload payload;
    for (const c10::IValue& input : function.inputs()) {
        if (input.isTensor() && input.toTensor().defined()) {
            payload.bytes += bytes_of(input.toTensor());
            payload.dtype = dtype_of(input.toTensor().scalar_type());
        }
    }
    return payload;
}

// The operations that reduce a bucket; the last one for buckets in 16 bits (reduce/sixteen_bit/exchange.hpp).
bool reduces_a_bucket(std::string_view name) {
    return name == "gloo:all_reduce" || name == "gloo:sparse_all_reduce" || name == "gloo:all_to_all";
}

Record collective_record(std::string_view name, const Payload& payload, std::int64_t now) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::collective);
    record.group = group_of_operation();
    record.reference = fnv1a(name);
    record.bytes = payload.bytes;
    record.dtype = static_cast<std::uint8_t>(payload.dtype);
    record.thread = platform::thread_id();
    record.times[collective_time::started] = now;
    std::memcpy(reinterpret_cast<char*>(&record) + name_offset, name.data(),
                std::min(name.size(), name_size - 1));
    return record;
}

void listen_or_not(Watchers& all);

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    const char* const c_name = function.name();
    if (c_name == nullptr || std::strncmp(c_name, gloo_prefix.data(), gloo_prefix.size()) != 0) {
        return nullptr;
    }
    const std::string_view name = c_name;
    if (auto* const bucket = dynamic_cast<BucketOperation*>(c10::ThreadLocalDebugInfo::get(operation_slot));
        // The callbacks of another hook begin more operations, in whose state the bucket is still found.
        bucket != nullptr && (bucket->foreign() || reduces_a_bucket(name)) &&
        (bucket->started() || !bucket->foreign())) {
        return nullptr;
    }
    const std::int64_t now = platform::monotonic_ns();
    auto seen = std::make_unique<Seen>();
    Watchers& all = watchers();
    all.others.fetch_add(1, std::memory_order_relaxed);
    const Payload payload = payload_of(function);
    Record record = collective_record(name, payload, now);
    std::vector<std::shared_ptr<Recorder>> recorders;
    {
        const std::lock_guard lock(all.mutex);
        Watchers::Counted& counted = all.counted[record.reference];
        record.sequence = counted.count++;
        // A sum, since two workers may start on neighbours in either order.
        counted.fingerprint += payload.hash();
        record.times[collective_time::fingerprint] = static_cast<std::int64_t>(counted.fingerprint);
        recorders = all.alive();
        if (record.group == 0 && GroupSearch::renew_for_this_worker()) {
            listen_or_not(all);
        }
    }
    for (auto& recorder : recorders) {
        if (!recorder->paused()) {
            record.step = recorder->current_step();
            const Operation operation = recorder->trace().open(record);
            seen->operations.push_back({std::move(recorder), operation, record});
        }
    }
    return seen;
}

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const c10::Error& e) {
        return e.what_without_backtrace();
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "an exception that is not a std::exception";
    }
}

void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    if (auto* const seen = dynamic_cast<Seen*>(context)) {
        const std::int64_t now = platform::monotonic_ns();
        // Gloo ends the span of a failed operation while it handles the exception.
        const std::exception_ptr error = std::current_exception();
        for (const auto& [recorder, operation, record] : seen->operations) {
            operation.stamp(collective_time::ended, now);
            if (error != nullptr) {
                operation.set_flags(flag_error);
                recorder->trace().write_error(record, operation.ticket(), text_of(error));
            }
            operation.complete();
        }
    }
}

// Under the mutex. Removed and not disabled: torch rebuilds its lists for a disabled listener just as well.
void listen_or_not(Watchers& all) {
    const bool wanted = all.wanted && all.pauses == 0;
    all.search.listen(wanted && GroupSearch::due());
    if (wanted == all.listening.load(std::memory_order_relaxed)) {
        return;
    }
    all.listening.store(wanted, std::memory_order_relaxed);
    if (wanted) {
        all.handle = at::addGlobalCallback(
            at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::USER_SCOPE}));
    } else {
        at::removeCallback(all.handle);
    }
}

}  // namespace

void watch_workers(const std::shared_ptr<Recorder>& recorder) {
    Watchers& all = watchers();
    {
        const std::lock_guard lock(all.mutex);
        all.recorders.emplace_back(recorder);
        GroupSearch::renew();
    }
    refresh_worker_watch();
}

void refresh_worker_watch() {
    Watchers& all = watchers();
    std::vector<std::shared_ptr<Recorder>> alive;
    const std::lock_guard lock(all.mutex);
    alive = all.alive();
    all.recorders.clear();
    std::ranges::copy_if(alive, std::back_inserter(all.recorders),
                         [](const auto& recorder) { return !recorder->closed(); });
    all.wanted = std::ranges::any_of(
        alive, [](const auto& recorder) { return !recorder->closed() && !recorder->paused(); });
    listen_or_not(all);
}

WorkerProbePause::WorkerProbePause() {
    Watchers& all = watchers();
    const std::lock_guard lock(all.mutex);
    ++all.pauses;
    listen_or_not(all);
}

WorkerProbePause::~WorkerProbePause() {
    Watchers& all = watchers();
    const std::lock_guard lock(all.mutex);
    --all.pauses;
    listen_or_not(all);
}

std::vector<std::shared_ptr<Recorder>> watching_recorders() {
    Watchers& all = watchers();
    const std::lock_guard lock(all.mutex);
    return all.alive();
}

bool probe_listens() noexcept {
    return watchers().listening.load(std::memory_order_relaxed);
}

std::uint64_t other_collectives() noexcept {
    return watchers().others.load(std::memory_order_relaxed);
}

bool only_our_probe_listens() {
    const auto listeners = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    return !listeners || std::all_of(listeners->callbacks_.begin(), listeners->callbacks_.end(),
                                     [](const auto& listener) { return listener.start_ == &on_start; });
}

}  // namespace ddpdiag
