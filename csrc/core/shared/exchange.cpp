#include "core/shared/exchange.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "core/shared/pause.hpp"
#include "core/shared/wait.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

using std::chrono::milliseconds;

// How long a process that ends is taken to keep its number after its memory is gone.
constexpr milliseconds ending{1000};

Announced announced(const SharedBucket& bucket) noexcept {
    Announced result{.sequence = bucket.sequence,
                     .bytes = bucket.sum.bytes,
                     .kind = kind_of(bucket.sum, bucket.wire.get()),
                     .offset = bucket.offset,
                     .place = bucket.place,
                     .id = bucket.block->id(),
                     .memory_bytes = bucket.block->memory().size(),
                     .watched = bucket.watched ? 1U : 0U};
    const std::string& name = bucket.block->memory().name();
    name.copy(reinterpret_cast<char*>(result.name.data()), sizeof result.name);
    return result;
}

// Whether a process whose memory cannot be opened any more has ended, or is about to.
bool ends(const SharedPeer& peer) {
    const auto until = std::chrono::steady_clock::now() + ending;
    while (peer.runs()) {
        if (std::chrono::steady_clock::now() >= until) {
            return false;
        }
        std::this_thread::sleep_for(milliseconds{1});
    }
    return true;
}

std::size_t own_rank(const std::vector<std::optional<SharedPeer>>& peers) {
    const auto is_own = [](const auto& peer) { return !peer.has_value(); };
    if (peers.size() > most_shared_ranks || std::ranges::count_if(peers, is_own) != 1) {
        throw std::invalid_argument("up to " + std::to_string(most_shared_ranks) +
                                    " ranks can share memory, one of which is our own.");
    }
    return static_cast<std::size_t>(std::ranges::find_if(peers, is_own) - peers.begin());
}

}  // namespace

SharedExchange::SharedExchange(SharedMember own, std::vector<std::optional<SharedPeer>> peers,
                               std::vector<std::string> names, milliseconds timeout,
                               std::shared_ptr<SharedBetween> between)
    : own_(std::move(own)),
      peers_(std::move(peers)),
      names_(std::move(names)),
      timeout_(timeout),
      between_(std::move(between)),
      rank_(own_rank(peers_)),
      process_(platform::process_id()),
      outnumbers_cores_(peers_.size() > std::thread::hardware_concurrency()),
      places_(own_.control()) {
    if (names_.size() != peers_.size()) {
        throw std::invalid_argument("each rank needs a name.");
    }
    for (const auto& peer : peers_) {
        mapped_.push_back(peer ? std::optional<PeerPlaces>(peer->control()) : std::nullopt);
    }
}

SharedExchange::~SharedExchange() {
    if (platform::process_id() != process_) {
        return;  // a forked child, which is no rank
    }
    if (!queue_.empty() && broken_.empty()) {
        stand_down({});
        static_cast<void>(others_let_go());
        return;
    }
    auto here = Standing::here;
    own_.control().standing.compare_exchange_strong(here, Standing::left);
    ring_all();
}

SharedControl& SharedExchange::control(std::size_t rank) const noexcept {
    const auto& peer = peers_[rank];
    return peer ? peer->control() : own_.control();
}

std::string SharedExchange::listed(const Ranks& ranks) const {
    std::string text;
    for (const std::size_t rank : ranks) {
        text += (text.empty() ? "" : ", ") + names_[rank];
    }
    return text;
}

void SharedExchange::ring_all() const noexcept {
    for (const auto& peer : peers_) {
        if (peer) {
            peer->ring();
        }
    }
}

bool SharedExchange::has_announced(std::size_t rank, std::uint64_t number) const noexcept {
    return control(rank).announcements[number % shared_operations].tag.load() == number + 1;
}

bool SharedExchange::all_have_announced(std::uint64_t number) const noexcept {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (!has_announced(rank, number)) {
            return false;
        }
    }
    return true;
}

SharedExchange::Ranks SharedExchange::not_announced_by(std::uint64_t number) const {
    Ranks result;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (!has_announced(rank, number)) {
            result.push_back(rank);
        }
    }
    return result;
}

SharedExchange::Ranks SharedExchange::busy_with(std::uint64_t number) const {
    Ranks result;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (control(rank).busy.load() == number + 1) {
            result.push_back(rank);
        }
    }
    return result;
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
        write(own_.control().announcements[number % shared_operations], number,
              announced(queue_[static_cast<std::size_t>(number - completed_)]));
        // The others sleep until the last rank has announced; of two that come at once, at least one sees both.
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (all_have_announced(number)) {
            ring_all();
        }
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
    const GradientStatistics found = found_in(own_.control().announcements[number % shared_operations]);
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
    const auto done = [&] { return is_done(number, ours); };
    if (!comes_soon([&] { return done() || all_have_announced(number); })) {
        return std::nullopt;
    }
    if (begins) {
        begins();
    }
    try {
        if (!done()) {
            sum_units(number, ours, buckets(number, ours));
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
            Wait wait(*this, goes_on);
            if (between_ != nullptr) {
                complete_over_hosts(number, ours, wait);
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

void SharedExchange::complete(std::uint64_t number, const SharedBucket& ours, Wait& wait) {
    const auto done = [&] { return is_done(number, ours); };
    std::vector<std::byte*> all;
    while (all.empty() && !done()) {
        wait.until([&] { return done() || all_have_announced(number); },
                   [&] { return not_announced_by(number); }, true);
        all = buckets(number, ours);
    }
    sum_units(number, ours, all);
    wait.until(done, [&] { return busy_with(number); }, false);
}

// All are compared before any is opened: a rank that has found a difference may have let go of its bucket.
std::vector<std::byte*> SharedExchange::buckets(std::uint64_t number, const SharedBucket& ours) {
    const Announced wanted = announced(ours);
    std::vector<Announced> all;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const auto theirs = read(control(rank).announcements[number % shared_operations], number);
        if (!theirs) {
            return {};
        }
        require_same(wanted.key(), names_[rank], theirs->key(), std::uint64_t{1} << rank);
        all.push_back(*theirs);
    }
    std::vector<std::byte*> result;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
        std::byte* const bucket = bucket_of(rank, all[rank], number, ours);
        if (bucket == nullptr) {
            return {};
        }
        result.push_back(bucket);
    }
    return result;
}

void SharedExchange::require_same(const BucketKey& ours, const std::string& name, const BucketKey& theirs,
                                  std::uint64_t blamed) const {
    if (theirs != ours) {
        throw SharedExchangeError("the ranks do not bring the same bucket: " + names_[rank_] + " has " +
                                      described(ours) + "; " + name + " has " + described(theirs) + ".",
                                  {.cause = FailureCause::differs, .blamed = blamed});
    }
}

// nullptr: the operation is done meanwhile.
std::byte* SharedExchange::bucket_of(std::size_t rank, const Announced& theirs, std::uint64_t number,
                                     const SharedBucket& ours) {
    auto& mapped = mapped_[rank];
    if (!mapped) {
        return ours.block->data() + ours.offset;
    }
    try {
        return mapped->bucket(theirs);
    } catch (const platform::SystemError& error) {
        if (between_ == nullptr && is_done(number, ours)) {
            return nullptr;  // its memory may be given back by now
        }
        if (one_has_failed()) {
            throw failed_error(failed());
        }
        if (ends(*peers_[rank])) {
            throw ended_error(ended());
        }
        throw SharedExchangeError("cannot reach the bucket of " + names_[rank] + ": " + error.what());
    }
}

}  // namespace ddpdiag
