#include "torch/reduce/shared/ranks.hpp"

#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "platform/beside.hpp"
#include "platform/platform.hpp"
#include "torch/reduce/shared/storage.hpp"

namespace ddpdiag {
namespace {

// How often it is asked whether the other ranks still run, while a device is waited for.
constexpr std::chrono::milliseconds look_every{50};

std::vector<c10::Device> devices_of(const at::Tensor& buffer) {
    return buffer.is_cpu() ? std::vector<c10::Device>{} : std::vector{buffer.device()};
}

// Of a buffer on an accelerator: after the work that is on the current stream.
void done(c10::ivalue::Future& future, const at::Tensor& buffer) {
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
    if (!buffer.is_cpu()) {
        storages.push_back(buffer.storage().getWeakStorageImpl());
    }
    future.markCompleted(c10::IValue(buffer), std::move(storages));
}

}  // namespace

// Shared with the thread, which may outlive us for a moment.
struct SharedRanks::State {
    // A bucket on its way.
    struct Job {
        at::Tensor buffer;
        c10::intrusive_ptr<c10::ivalue::Future> future;
        std::shared_ptr<StartListener> start;
        std::shared_ptr<Staging> staging;         // nullptr: the buffer is on the CPU
        std::unique_ptr<SharedBucket> announces;  // when the job's turn comes; nullptr: it is announced
    };

    State(SharedMember own, std::vector<std::optional<SharedPeer>> peers, std::vector<std::string> names,
          std::chrono::milliseconds limit, std::shared_ptr<SharedBetween> way)
        : timeout(limit),
          between(std::move(way)),
          exchange(std::move(own), std::move(peers), std::move(names), timeout, between) {}

    static void run(const std::shared_ptr<State>& state) {
        platform::set_thread_name("ddpdiag_shared");
        while (state->has_job()) {
            std::unique_lock lock(state->turn);
            state->complete_next(lock);
        }
    }

    // Waits for a job; false: there will be none.
    bool has_job() {
        std::unique_lock lock(mutex);
        wake.wait(lock, [this] { return !jobs.empty() || stop; });
        return !jobs.empty();
    }

    // Lets go of the turn. False: nothing was left.
    bool complete_next(std::unique_lock<std::mutex>& my_turn) {
        std::optional<Job> job;
        {
            const std::lock_guard lock(mutex);
            if (jobs.empty()) {
                return false;
            }
            job = std::move(jobs.front());
            jobs.pop_front();
        }
        if (job->staging == nullptr) {
            finish(*job, my_turn);
        } else {
            const c10::StreamGuard on_stream(job->staging->stream());
            finish(*job, my_turn);
        }
        return true;
    }

    void finish(Job& job, std::unique_lock<std::mutex>& my_turn) {
        const std::exception_ptr error = complete(job);
        // Whoever learns of the end may want to use it again.
        job.start.reset();
        // And may help with the next one.
        my_turn.unlock();
        job.staging.reset();
        if (error == nullptr) {
            done(*job.future, job.buffer);
            return;
        }
        job.future->setError(error);
        if (between != nullptr) {
            const std::lock_guard lock(turn);
            between->give_up();
        }
    }

    bool goes_on() {
        const std::lock_guard lock(mutex);
        return !stop && !given_up;
    }

    // When the device has brought it. If it does not, nobody may sum what is in the block.
    void announce(Job& job) {
        if (job.staging != nullptr) {
            try {
                const auto produced = [&job] {
                    if (job.start != nullptr) {
                        job.start->produced();
                    }
                };
                // A rank that dies meanwhile must not go unnoticed until the device is done.
                auto look_at = std::chrono::steady_clock::now();
                const auto waits = [&] {
                    if (const auto now = std::chrono::steady_clock::now(); now >= look_at) {
                        look_at = now + look_every;
                        return goes_on() && !exchange.give_up_if_one_has_ended();
                    }
                    return goes_on();
                };
                job.staging->await(job.buffer, timeout, waits, produced);
            } catch (const StagingError& error) {
                exchange.give_up(error.what());
            }
        }
        const std::lock_guard lock(mutex);
        exchange.announce(std::move(*job.announces));
        --unannounced;
    }

    std::exception_ptr complete(Job& job) {
        if (job.start != nullptr) {
            static_cast<void>(job.start->started());
        }
        try {
            if (job.announces != nullptr) {
                announce(job);
            }
            const GradientStatistics found = exchange.complete([this] { return goes_on(); });
            if (job.staging != nullptr) {
                job.staging->put_back(job.buffer);
            }
            if (job.start != nullptr) {
                job.start->examined(job.buffer, found);
            }
        } catch (const StagingError& failed) {
            exchange.give_up(failed.what());
            return std::current_exception();
        } catch (const SharedExchangeError& failed) {
            if (failed.in_use()) {
                leave(job);
            }
            return std::current_exception();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    // Others are still at the job's block, which nobody here may use any more: neither the owner of the buffer nor a
    // later bucket that would be copied into it.
    void leave(const Job& job) noexcept {
        try {
            if (job.staging != nullptr) {
                left.push_back(job.staging);
            } else {
                move_out_of_shared_memory(job.buffer);
            }
        } catch (const std::exception& error) {
            static_cast<void>(error);  // no memory is left; the bucket's failure is reported all the same
        }
    }

    const std::uint64_t process = platform::process_id();
    const std::chrono::milliseconds timeout;
    const std::shared_ptr<SharedBetween> between;  // nullptr: one host
    SharedExchange exchange;
    // Held by whoever completes jobs, so that they are completed in their order; taken before the other one.
    std::mutex turn;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Job> jobs;
    std::size_t unannounced = 0;  // jobs, also the one at work
    bool stop = false;
    bool given_up = false;
    std::vector<std::shared_ptr<Staging>> left;  // under the turn
};

SharedRanks::SharedRanks(SharedMember own, std::vector<std::optional<SharedPeer>> peers,
                         std::vector<std::string> names, std::chrono::milliseconds timeout,
                         std::shared_ptr<SharedBetween> between)
    : state_(std::make_shared<State>(std::move(own), std::move(peers), std::move(names), timeout,
                                     std::move(between))) {
    platform::start_beside(&State::run, state_).detach();
}

// Not joined: this may be that very thread, the last owner of what owned us; or one that holds the GIL, which the
// other waits for; or a forked child, which does not have it.
SharedRanks::~SharedRanks() {
    if (platform::process_id() != state_->process) {
        return;  // the mutex may have been held when we were forked
    }
    {
        const std::lock_guard lock(state_->mutex);
        state_->stop = true;
    }
    state_->wake.notify_one();
}

bool SharedRanks::several_hosts() const noexcept {
    return state_->between != nullptr;
}

std::size_t SharedRanks::enter(const std::shared_ptr<const SharedBlock>& block) {
    const std::lock_guard lock(state_->mutex);
    return state_->exchange.enter(block);
}

c10::intrusive_ptr<c10::ivalue::Future> SharedRanks::average(const at::Tensor& buffer, SharedBucket bucket,
                                                             std::shared_ptr<StartListener> start,
                                                             std::shared_ptr<Staging> staging) {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices_of(buffer));
    std::optional<GradientStatistics> found;
    {
        const std::lock_guard lock(state_->mutex);
        // Announced in the order of the calls, on all ranks.
        if (staging != nullptr || state_->unannounced != 0) {
            ++state_->unannounced;
            state_->jobs.push_back({.buffer = buffer,
                                    .future = future,
                                    .start = std::move(start),
                                    .staging = std::move(staging),
                                    .announces = std::make_unique<SharedBucket>(std::move(bucket))});
            state_->wake.notify_one();
            return future;
        }
        state_->exchange.announce(std::move(bucket));
        // Waking the thread would take longer than a small sum does.
        const auto begins = [&start] {
            if (start != nullptr) {
                static_cast<void>(start->started());
            }
        };
        if (state_->jobs.empty()) {
            found = state_->exchange.complete_at_once(begins);
        }
        if (!found) {
            state_->jobs.push_back({.buffer = buffer,
                                    .future = future,
                                    .start = std::move(start),
                                    .staging = nullptr,
                                    .announces = nullptr});
            state_->wake.notify_one();
            return future;
        }
    }
    if (start != nullptr) {
        start->examined(buffer, *found);
    }
    done(*future, buffer);
    return future;
}

void SharedRanks::give_up() {
    const auto state = state_;
    {
        const std::lock_guard lock(state->mutex);
        state->given_up = true;
    }
    for (bool more = true; more;) {
        std::unique_lock turn(state->turn);
        more = state->complete_next(turn);
    }
}

void SharedRanks::help(const c10::ivalue::Future& future) {
    const auto state = state_;
    while (!future.completed()) {
        std::unique_lock turn(state->turn, std::try_to_lock);
        if (!turn.owns_lock() || !state->complete_next(turn)) {
            return;
        }
    }
}

}  // namespace ddpdiag
