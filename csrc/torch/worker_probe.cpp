#include "torch/worker_probe.hpp"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/hash.hpp"
#include "torch/bucket_operation.hpp"
#include "torch/compat.hpp"

namespace ddpdiag {
namespace {

constexpr std::string_view gloo_prefix = "gloo:";

// torch calls plain functions without an argument of ours, so who is listening must be known process-wide.
struct Watchers {
    std::mutex mutex;
    std::vector<std::weak_ptr<Recorder>> recorders;
    std::unordered_map<std::uint64_t, std::uint64_t> sequences;  // by name
    at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
    std::atomic<bool> listening{false};  // the handle is that of a listener
    bool wanted = false;                 // a recorder is open and not paused
    std::size_t silences = 0;
    std::atomic<std::uint64_t> others{0};

    // To be let go after the mutex: the last owner of a recorder destroys it, and that may wait for Python's lock.
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
    std::vector<std::pair<std::shared_ptr<Recorder>, Operation>> operations;
};

// What a bucket is reduced by; the last one for those in 16 bits (bucket_exchange.hpp).
bool reduces_a_bucket(std::string_view name) {
    return name == "gloo:all_reduce" || name == "gloo:sparse_all_reduce" || name == "gloo:all_to_all";
}

Record collective_record(std::string_view name, std::int64_t now, std::uint64_t sequence) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::collective);
    record.reference = fnv1a(name);
    record.sequence = sequence;
    record.thread = platform::thread_id();
    record.times[collective_time::started] = now;
    std::memcpy(reinterpret_cast<char*>(&record) + name_offset, name.data(),
                std::min(name.size(), name_size - 1));
    return record;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    const char* const c_name = function.name();
    if (c_name == nullptr || std::strncmp(c_name, gloo_prefix.data(), gloo_prefix.size()) != 0) {
        return nullptr;
    }
    const std::string_view name = c_name;
    if (auto* const bucket = dynamic_cast<BucketOperation*>(c10::ThreadLocalDebugInfo::get(operation_slot));
        bucket != nullptr && reduces_a_bucket(name)) {
        bucket->started();
        return nullptr;
    }
    const std::int64_t now = platform::monotonic_ns();
    auto seen = std::make_unique<Seen>();
    Watchers& all = watchers();
    all.others.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t sequence = 0;
    std::vector<std::shared_ptr<Recorder>> recorders;
    {
        const std::lock_guard lock(all.mutex);
        sequence = all.sequences[fnv1a(name)]++;
        recorders = all.alive();
    }
    for (auto& recorder : recorders) {
        if (!recorder->paused()) {
            const Operation operation = recorder->trace().open(collective_record(name, now, sequence));
            seen->operations.emplace_back(std::move(recorder), operation);
        }
    }
    return seen;
}

void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    if (auto* const seen = dynamic_cast<Seen*>(context)) {
        const std::int64_t now = platform::monotonic_ns();
        for (const auto& [recorder, operation] : seen->operations) {
            operation.stamp(collective_time::ended, now);
            operation.complete();
        }
    }
}

// Under the mutex. Removed and not disabled: torch rebuilds its lists for a disabled listener just as well.
void listen_or_not(Watchers& all) {
    const bool wanted = all.wanted && all.silences == 0;
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

WorkerSilence::WorkerSilence() {
    Watchers& all = watchers();
    const std::lock_guard lock(all.mutex);
    ++all.silences;
    listen_or_not(all);
}

WorkerSilence::~WorkerSilence() {
    Watchers& all = watchers();
    const std::lock_guard lock(all.mutex);
    --all.silences;
    listen_or_not(all);
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
