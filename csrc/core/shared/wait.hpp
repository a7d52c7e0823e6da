// How a SharedExchange waits for the other ranks; only for its own files.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/shared/between.hpp"
#include "core/shared/exchange.hpp"
#include "core/shared/pause.hpp"

namespace ddpdiag {

inline constexpr const char* rank_has_ended = " has ended in the middle of training.";
inline constexpr const char* rank_has_failed =
    " does not take part in any further bucket: it has failed, or its module or recorder is gone.";
// Of errors that follow from those of other ranks, which are to be first: of a connection, of the ranks of the own host.
inline constexpr std::chrono::milliseconds connection_error_delay{1000};
inline constexpr std::chrono::milliseconds follower_error_delay{2000};

// The wait for the other ranks in one operation.
class SharedExchange::Wait {
public:
    Wait(const SharedExchange& exchange, const std::function<bool()>& goes_on)
        : exchange_(&exchange), goes_on_(&goes_on), deadline_(Clock::now() + exchange.timeout_) {}

    // `awaited`: the ranks that it waits for; asked only when they are late. They must not leave meanwhile if
    // `must_stay`. `secondary_error_delay`: see SharedExchangeError, of an error for being late.
    template <typename Condition, typename Awaited>
    void until(const Condition& condition, const Awaited& awaited, bool must_stay,
               std::chrono::milliseconds secondary_error_delay = {}) const {
        for (int i = 0; i < spins; ++i) {
            if (condition()) {
                return;
            }
            pause_processor();
        }
        auto look_at = Clock::now() + look_every;
        while (!condition()) {
            sleep(condition);
            if (const auto now = Clock::now(); now >= look_at) {
                look_at = now + look_every;
                look(condition, awaited, must_stay, secondary_error_delay, now);
            }
        }
    }

    // Until `step`, which deals with the other hosts for a limited time, returns true.
    template <typename Step>
    void over_hosts(SharedBetween& between, const Step& step) const {
        try {
            while (!step(look_every)) {
                require_none(exchange_->ended(), exchange_->failed());
                require_time(between.others(), {}, connection_error_delay, Clock::now());
            }
        } catch (const SharedBetweenError& error) {
            throw SharedExchangeError(
                "the sum over the hosts with " + between.others() + " failed: " + error.what(), {},
                connection_error_delay);
        }
    }

private:
    // How long a wait spins before it sleeps: about as long as waking up takes.
    static constexpr int spins = 64;
    // After that, it looks whether the others still run.
    static constexpr std::chrono::milliseconds look_every{50};

    template <typename Condition>
    void sleep(const Condition& condition) const {
        SharedControl& ours = exchange_->own_.control();
        const std::uint32_t seen = ours.rings.load();
        ours.sleeping.store(1);
        if (!condition()) {
            exchange_->own_.bell().wait(ours.rings, seen, look_every);
        }
        ours.sleeping.store(0);
    }

    template <typename Condition, typename Awaited>
    void look(const Condition& condition, const Awaited& awaited, bool must_stay,
              std::chrono::milliseconds secondary_error_delay, Clock::time_point now) const {
        const Ranks ended = exchange_->ended();
        const Ranks failed = exchange_->failed();
        Ranks left;
        const Ranks late = awaited();
        for (const std::size_t rank : late) {
            if (must_stay && exchange_->control(rank).standing.load() == Standing::left) {
                left.push_back(rank);
            }
        }
        // Seen only now: they may have done their part just before they went.
        if (condition()) {
            return;
        }
        require_none(ended, failed);
        if (!left.empty()) {
            throw SharedExchangeError(exchange_->listed(left) + rank_has_failed,
                                      {.cause = FailureCause::own, .origin = left.front()},
                                      follower_error_delay);
        }
        require_time(late.empty() ? std::string("the other ranks") : exchange_->listed(late), late,
                     secondary_error_delay, now);
    }

    void require_none(const Ranks& ended, const Ranks& failed) const {
        if (!ended.empty()) {
            throw exchange_->ended_error(ended);
        }
        if (!failed.empty()) {
            throw exchange_->failed_error(failed);
        }
    }

    // `late`: of the own host.
    void require_time(const std::string& awaited, const Ranks& late,
                      std::chrono::milliseconds secondary_error_delay, Clock::time_point now) const {
        const std::uint64_t blamed = bits_of(late);
        if (*goes_on_ && !(*goes_on_)()) {
            throw SharedExchangeError("given up while waiting for " + awaited + ".",
                                      {.cause = FailureCause::given_up, .blamed = blamed});
        }
        if (now >= deadline_) {
            const auto waited = static_cast<std::uint64_t>(exchange_->timeout_.count() / 1000);
            throw SharedExchangeError("waited " + std::to_string(waited) + " s for " + awaited +
                                          ", which still runs but does not take part.",
                                      {.cause = FailureCause::late, .seconds = waited, .blamed = blamed},
                                      secondary_error_delay);
        }
    }

    const SharedExchange* exchange_;
    const std::function<bool()>* goes_on_;
    Clock::time_point deadline_;
};

}  // namespace ddpdiag
