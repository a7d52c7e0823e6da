#include "torch/reduce/shared/gloo_between.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "platform/beside.hpp"
#include "torch/reduce/messages.hpp"

namespace ddpdiag {
namespace {

using std::chrono::milliseconds;

// What an answer of the store may take, beyond what we wait for on purpose.
constexpr milliseconds answer{500};

c10::ScalarType type_of(Element element) {
    switch (element) {
        case Element::f32:
            return c10::ScalarType::Float;
        case Element::f64:
            return c10::ScalarType::Double;
        case Element::f16:
            return c10::ScalarType::Half;
        case Element::bf16:
            return c10::ScalarType::BFloat16;
    }
    throw std::invalid_argument("an unknown type of values.");
}

std::optional<std::string> found(c10d::Store& store, const std::string& key, milliseconds within) {
    const auto until = std::chrono::steady_clock::now() + within;
    while (!store.check({key})) {
        if (std::chrono::steady_clock::now() >= until) {
            return std::nullopt;
        }
        std::this_thread::sleep_for(milliseconds{20});
    }
    const auto text = store.get(key);
    return std::string(text.begin(), text.end());
}

// Of ranks that say a reason at once, one counts. Not every store can compare and set.
std::string first_reason(c10d::Store& store, const std::string& ours, milliseconds secondary_error_delay) {
    if (auto theirs = found(store, "reason", secondary_error_delay)) {
        return *std::move(theirs);
    }
    if (store.add("reasons", 1) == 1) {
        store.set("reason", std::vector<std::uint8_t>(ours.begin(), ours.end()));
        return ours;
    }
    return found(store, "reason", answer).value_or(ours);
}

}  // namespace

// Shared with Gloo's thread, which may be late.
struct GlooBetween::Arrival {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::string error;  // empty: none

    [[nodiscard]] bool arrived() {
        const std::lock_guard lock(mutex);
        return done;
    }
    void arrived(const std::string& failure) {
        const std::lock_guard lock(mutex);
        done = true;
        error = failure;
        changed.notify_one();
    }
    // False: not within `limit`. Throws SharedBetweenError: it has failed.
    bool wait(milliseconds limit) {
        std::unique_lock lock(mutex);
        if (!changed.wait_for(lock, limit, [this] { return done; })) {
            return false;
        }
        if (!error.empty()) {
            throw SharedBetweenError(error);
        }
        return true;
    }
};

GlooBetween::GlooBetween(const std::shared_ptr<OwnBackend>& link,
                         const c10::intrusive_ptr<c10d::Store>& store, std::vector<std::string> names,
                         std::size_t home)
    : link_(link),
      // A connection of its own: another thread may wait on that of the training.
      store_(store->clone()),
      names_(std::move(names)),
      home_(home) {
    for (std::size_t host = 0; host < names_.size(); ++host) {
        if (host != home) {
            others_ += (others_.empty() ? "" : ", ") + names_[host];
        }
    }
}

GlooBetween::~GlooBetween() = default;

c10::intrusive_ptr<c10d::Backend> GlooBetween::backend() const {
    auto backend = OwnBackend::of(link_);
    if (backend == nullptr) {
        throw SharedBetweenError("the process group was destroyed, or an earlier bucket has failed");
    }
    return backend;
}

std::shared_ptr<GlooBetween::Arrival> GlooBetween::begun(const Begin& begin) const {
    const auto group = backend();
    const at::RecordFunctionGuard no_spans(/*is_enabled=*/false);
    auto arrival = std::make_shared<Arrival>();
    try {
        begin(*group)->getFuture()->addCallback([arrival](c10::ivalue::Future& done) {
            arrival->arrived(done.hasError() ? done.tryRetrieveErrorMessage() : "");
        });
    } catch (const std::exception& error) {
        throw SharedBetweenError(error.what());
    }
    return arrival;
}

void GlooBetween::tell(const BucketKey& ours) {
    keys_arrival_ = begun([&](c10d::Backend& backend) {
        const auto words = at::TensorOptions().dtype(c10::ScalarType::Long);
        const auto count = static_cast<std::int64_t>(ours.size());
        std::vector<at::Tensor> mine = {at::empty({count}, words)};
        std::memcpy(mine.front().mutable_data_ptr(), ours.data(), sizeof ours);
        keys_.clear();
        for (std::size_t host = 0; host < names_.size(); ++host) {
            keys_.push_back(at::empty({count}, words));
        }
        std::vector<std::vector<at::Tensor>> theirs = {keys_};
        return backend.allgather(theirs, mine);
    });
}

std::vector<BucketKey> GlooBetween::keys(milliseconds limit) {
    if (!keys_arrival_->wait(limit)) {
        return {};
    }
    std::vector<BucketKey> result(keys_.size());
    for (std::size_t host = 0; host < result.size(); ++host) {
        std::memcpy(result[host].data(), keys_[host].const_data_ptr(), sizeof(BucketKey));
    }
    return result;
}

void GlooBetween::begin(const std::shared_ptr<const SharedBlock>& block, std::uint64_t offset,
                        std::uint64_t bytes, Element element) {
    arrival_ = begun([&](c10d::Backend& backend) {
        // It holds the block until Gloo has let go of it.
        std::vector<at::Tensor> part = {at::from_blob(
            block->data() + offset, {static_cast<std::int64_t>(bytes / size_of(element))},
            [block](void* /*data*/) {}, at::TensorOptions().dtype(type_of(element)))};
        return backend.allreduce(part);
    });
    block_ = arrival_;
}

bool GlooBetween::uses_block() const noexcept {
    return block_ != nullptr && !block_->arrived();
}

// Messages have no future, and a wait for one that takes too long breaks the connection: a thread of their own waits. Left
// alone, it ends when the messages are there, when a connection is lost, or when the group's time is over.
void GlooBetween::begin(const SharedSwap& swap) {
    auto arrival = std::make_shared<Arrival>();
    try {
        Messages messages(backend(), /*tag=*/0);
        // It holds the values until Gloo has let go of them.
        const auto tensor = [&values = swap.values](const Range& part) {
            return at::from_blob(
                values->data() + part.begin, {static_cast<std::int64_t>(part.count)},
                [values](void* /*data*/) {}, at::TensorOptions().dtype(c10::ScalarType::Short));
        };
        messages.swap_with_all(
            [&](std::int64_t host) { return tensor(swap.received[static_cast<std::size_t>(host)]); },
            [&](std::int64_t host) { return tensor(swap.sent[static_cast<std::size_t>(host)]); });
        platform::start_beside([arrival, messages = std::move(messages)]() mutable {
            std::string failure;
            try {
                // Gone before the end is reported: whoever gets the report may end the group.
                Messages ours = std::move(messages);
                ours.await_all();
            } catch (const std::exception& error) {
                failure = error.what();
            }
            arrival->arrived(failure);
        }).detach();
    } catch (const SharedBetweenError&) {
        throw;
    } catch (const std::exception& error) {
        throw SharedBetweenError(error.what());
    }
    arrival_ = std::move(arrival);
}

bool GlooBetween::wait(milliseconds limit) {
    return arrival_->wait(limit);
}

// On a thread of its own, left alone if it takes too long: the store may be that of a rank which has stopped.
std::string GlooBetween::agreed(const std::string& reason, milliseconds secondary_error_delay) noexcept {
    try {
        auto result = std::make_shared<std::promise<std::string>>();
        auto said = result->get_future();
        platform::start_beside([store = store_, result, reason, secondary_error_delay] {
            try {
                result->set_value(first_reason(*store, reason, secondary_error_delay));
            } catch (...) {
                result->set_value(reason);
            }
        }).detach();
        return said.wait_for(secondary_error_delay + 2 * answer) == std::future_status::ready ? said.get()
                                                                                              : reason;
    } catch (...) {
        return reason;
    }
}

// On a thread of its own: Gloo waits for what is on its way, for as long as the group's timeout.
void GlooBetween::give_up() noexcept {
    const auto link = link_.lock();
    auto last = link != nullptr ? link->take() : nullptr;
    if (last == nullptr) {
        return;
    }
    try {
        platform::start_beside([backend = std::move(last)]() mutable { backend.reset(); }).detach();
    } catch (...) {  // no thread: it ends here and now
        last.reset();
    }
}

}  // namespace ddpdiag
