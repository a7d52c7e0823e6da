#include "core/shared/exchange.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/shared/hosts.hpp"
#include "core/shared/pause.hpp"
#include "core/shared/units.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {

SharedExchange::SharedExchange(SharedMember own, std::vector<std::optional<SharedPeer>> peers,
                               std::vector<std::string> names, std::chrono::milliseconds timeout,
                               std::shared_ptr<SharedBetween> between)
    : board_(std::move(own), std::move(peers), std::move(names)),
      timeout_(timeout),
      between_(std::move(between)),
      process_(platform::process_id()),
      outnumbers_cores_(ranks() > std::thread::hardware_concurrency()),
      places_(board_.own()),
      mapped_(board_, /*hands_out=*/between_ != nullptr) {}

SharedExchange::~SharedExchange() {
    if (platform::process_id() != process_) {
        return;  // a forked child, which is no rank
    }
    if (!queue_.empty() && broken_.empty()) {
        stand_down({});
        static_cast<void>(board_.others_let_go());
        return;
    }
    board_.leave();
}

void SharedExchange::announce(SharedBucket bucket) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(bucket));
    announce_what_fits();
}

// Under the mutex. An announcement takes the place of one that is complete here, and so on all ranks.
void SharedExchange::announce_what_fits() {
    while (!has_failed_ && announced_ < completed_ + queue_.size() &&
           announced_ < completed_ + shared_operations) {
        const std::uint64_t number = announced_++;
        board_.announce(number, queue_[static_cast<std::size_t>(number - completed_)].announced());
    }
}

SharedBucket SharedExchange::oldest(std::uint64_t& number) {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) {
        throw std::logic_error("no bucket was announced.");
    }
    number = completed_;
    return queue_.front();
}

GradientStatistics SharedExchange::let_go_of_oldest(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    // Before another bucket is announced in its place.
    const GradientStatistics found = found_in(board_.announcement(board_.own_rank(), number));
    queue_.pop_front();
    ++completed_;
    announced_ = std::max(announced_, completed_);
    announce_what_fits();
    return found;
}

template <typename Condition>
bool SharedExchange::comes_soon(const Condition& condition) noexcept {
    auto now = Clock::now();
    const auto limit = spin_budget_.left(now);
    const auto until = now + limit;
    while (!condition()) {
        if (now >= until) {
            spin_budget_.in_vain(limit);
            return false;
        }
        if (outnumbers_cores_) {
            std::this_thread::yield();  // the rank that we wait for may need this core
        } else {
            pause_processor();  // to yield would be to wait for a whole slice of somebody else's on a busy machine
        }
        now = Clock::now();
    }
    return true;
}

std::optional<GradientStatistics> SharedExchange::complete_at_once(const std::function<void()>& begins) {
    const std::unique_lock turn(completing_, std::try_to_lock);
    if (!turn.owns_lock() || between_ != nullptr || !broken_.empty()) {
        return std::nullopt;
    }
    {
        const std::lock_guard lock(mutex_);
        if (queue_.size() != 1) {
            return std::nullopt;
        }
    }
    std::uint64_t number = 0;
    const SharedBucket ours = oldest(number);
    if (ours.sum.bytes > at_once_bytes) {
        return std::nullopt;
    }
    const auto done = [&] { return is_done(board_, number, ours); };
    if (!comes_soon([&] { return done() || board_.all_have_announced(number); })) {
        return std::nullopt;
    }
    if (begins) {
        begins();
    }
    try {
        if (!done()) {
            sum_units(board_, number, ours, mapped_.of(number, ours));
        }
    } catch (const SharedExchangeError&) {
        return std::nullopt;  // complete() will find the same
    }
    if (!comes_soon(done)) {
        return std::nullopt;  // another rank sums the rest
    }
    return let_go_of_oldest(number);
}

GradientStatistics SharedExchange::complete(const std::function<bool()>& goes_on) {
    const std::lock_guard turn(completing_);
    std::uint64_t number = 0;
    const SharedBucket ours = oldest(number);
    if (broken_.empty()) {
        try {
            const Wait wait(board_, timeout_, goes_on);
            if (between_ != nullptr) {
                HostsSum(board_, *between_, wait, number, ours).complete(mapped_);
            } else {
                complete(number, ours, wait);
            }
        } catch (const SharedExchangeError& error) {
            fail(error);
        }
    }
    const GradientStatistics found = let_go_of_oldest(number);
    if (!broken_.empty()) {
        throw SharedExchangeError(broken_, {}, {}, std::exchange(in_use_, false));
    }
    return found;
}

void SharedExchange::complete(std::uint64_t number, const SharedBucket& ours, const Wait& wait) {
    const auto done = [&] { return is_done(board_, number, ours); };
    std::vector<std::byte*> all;
    while (all.empty() && !done()) {
        wait.until([&] { return done() || board_.all_have_announced(number); },
                   [&] { return board_.not_announced_by(number); }, true);
        all = mapped_.of(number, ours);
    }
    sum_units(board_, number, ours, all);
    wait.until(done, [&] { return board_.busy_with(number); }, false);
}

void SharedExchange::stand_down(const SharedFailure& failure) noexcept {
    {
        const std::lock_guard lock(mutex_);
        has_failed_ = true;
    }
    board_.fail(failure);
}

void SharedExchange::fail(const SharedExchangeError& error) {
    broken_ = error.what();
    stand_down(error.failure());
    in_use_ = !board_.others_let_go();
    if (between_ != nullptr) {
        broken_ = between_->agreed(broken_, error.secondary_error_delay());
        in_use_ = in_use_ || between_->uses_block();
    }
}

void SharedExchange::fail_unless_broken(const SharedExchangeError& error) {
    const std::lock_guard turn(completing_);
    if (broken_.empty()) {
        fail(error);
    }
}

void SharedExchange::give_up(const std::string& why) {
    fail_unless_broken(SharedExchangeError(board_.name(board_.own_rank()) + why));
}

bool SharedExchange::give_up_if_one_has_ended() {
    const Ranks gone = board_.ended();
    if (!gone.empty()) {
        fail_unless_broken(ended_error(board_, gone));
    }
    return !gone.empty();
}

}  // namespace ddpdiag
