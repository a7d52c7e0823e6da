// How a rank waits for the others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/shared/between.hpp"
#include "core/shared/board.hpp"
#include "core/shared/errors.hpp"
#include "core/shared/failure.hpp"
#include "core/shared/pause.hpp"

namespace ddpdiag {

// The wait for the other ranks in one operation.
class Wait {
public:
    // `timeout`: from now on. `goes_on`: asked now and then; false ends the wait with an error.
    Wait(const Board& board, std::chrono::milliseconds timeout, const std::function<bool()>& goes_on)
        : board_(&board), goes_on_(&goes_on), timeout_(timeout), deadline_(Clock::now() + timeout) {}

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
            board_->sleep(condition, look_every);
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
                require_none(board_->ended(), board_->failed());
                require_time(between.others(), {}, connection_error_delay, Clock::now());
            }
        } catch (const SharedBetweenError& error) {
            throw SharedExchangeError(
                "the sum over the hosts with " + between.others() + " failed: " + error.what(), {},
                connection_error_delay);
        }
    }

private:
    using Clock = std::chrono::steady_clock;

    // How long a wait spins before it sleeps: about as long as waking up takes.
    static constexpr int spins = 64;
    // After that, it looks whether the others still run.
    static constexpr std::chrono::milliseconds look_every{50};

    template <typename Condition, typename Awaited>
    void look(const Condition& condition, const Awaited& awaited, bool must_stay,
              std::chrono::milliseconds secondary_error_delay, Clock::time_point now) const {
        const Ranks ended = board_->ended();
        const Ranks failed = board_->failed();
        Ranks left;
        const Ranks late = awaited();
        for (const std::size_t rank : late) {
            if (must_stay && board_->standing(rank) == Standing::left) {
                left.push_back(rank);
            }
        }
        // Seen only now: they may have done their part just before they went.
        if (condition()) {
            return;
        }
        require_none(ended, failed);
        if (!left.empty()) {
            throw left_error(*board_, left);
        }
        require_time(late.empty() ? std::string("the other ranks") : board_->listed(late), late,
                     secondary_error_delay, now);
    }

    void require_none(const Ranks& ended, const Ranks& failed) const {
        if (!ended.empty()) {
            throw ended_error(*board_, ended);
        }
        if (!failed.empty()) {
            throw failed_error(*board_, failed);
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
            const auto waited = static_cast<std::uint64_t>(timeout_.count() / 1000);
            throw SharedExchangeError("waited " + std::to_string(waited) + " s for " + awaited +
                                          ", which still runs but does not take part.",
                                      {.cause = FailureCause::late, .seconds = waited, .blamed = blamed},
                                      secondary_error_delay);
        }
    }

    const Board* board_;
    const std::function<bool()>* goes_on_;
    std::chrono::milliseconds timeout_;
    Clock::time_point deadline_;
};

}  // namespace ddpdiag
