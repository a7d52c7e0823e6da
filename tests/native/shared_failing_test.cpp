// One rank gives up, and the others have not noticed: they get what all ranks brought, or an error.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/shared/exchange.hpp"
#include "core/shared/failure.hpp"
#include "shared_cluster.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::SharedExchange;
using ddpdiag::SharedExchangeError;
using shared_cluster::Cluster;
using shared_group::Bucket;
using shared_group::error_of;
using shared_group::fill;
using shared_group::in_this_process;
using shared_group::is_averaged;
using shared_group::on_all_ranks;
using shared_group::unit;
using std::chrono::milliseconds;

constexpr float other_value = 1e6F;

void overwrite(const Bucket& bucket) {
    std::fill_n(bucket.values(), bucket.count(), other_value);
}

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

CASE("a rank that comes when another one's wait is over gets an error, and both know who was late") {
    for (const std::size_t count : {std::size_t{10}, 9 * unit}) {
        auto exchanges = in_this_process(3, milliseconds(100));
        std::vector<Bucket> buckets;
        buckets.reserve(3);
        for (const std::size_t rank : {0UL, 1UL, 2UL}) {
            buckets.emplace_back(*exchanges[rank], count);
        }
        // The second one finds that the first has failed, and the third that all have announced.
        std::vector<std::string> errors;
        for (std::size_t rank = 0; rank < 3; ++rank) {
            fill(buckets[rank], rank, 0);
            exchanges[rank]->announce(buckets[rank].turn(0));
            CHECK(!exchanges[rank]->complete_at_once());
            errors.push_back(error_of(*exchanges[rank]));
            overwrite(buckets[rank]);
        }
        CHECK(mentions(errors[0], "waited 0 s for rank 1, rank 2, which still runs"));
        for (const std::size_t rank : {1UL, 2UL}) {
            CHECK_EQ(errors[rank],
                     "rank 1, rank 2 ran but did not take part: rank 0 has waited 0 s and given up.");
        }
        // And so does every later one.
        for (std::size_t rank = 0; rank < 3; ++rank) {
            fill(buckets[rank], rank, 1);
            exchanges[rank]->announce(buckets[rank].turn(1));
            CHECK(!exchanges[rank]->complete_at_once());
            CHECK_EQ(error_of(*exchanges[rank]), errors[rank]);
            CHECK_EQ(buckets[rank].values()[5], shared_group::value(rank, 1, 5));
        }
    }
}

CASE("a rank that waits longer than another one gets that one's error, and not later") {
    const std::vector<milliseconds> timeouts = {milliseconds(100), std::chrono::hours(1),
                                                std::chrono::hours(1)};
    auto exchanges = in_this_process(timeouts);
    const Bucket first(*exchanges[0], unit);
    const Bucket second(*exchanges[1], unit);
    // Before anybody waits: on a busy machine the second one could come after the first one's time.
    exchanges[0]->announce(first.turn(0));
    exchanges[1]->announce(second.turn(0));
    std::vector<std::string> errors(3);
    on_all_ranks(2, [&](std::size_t rank) { errors[rank] = error_of(*exchanges[rank]); });
    CHECK(mentions(errors[0], "waited 0 s for rank 2"));
    CHECK_EQ(errors[1], "rank 2 ran but did not take part: another rank has waited 0 s and given up.");
}

CASE("what a rank has announced is summed by nobody once its exchange is gone") {
    auto exchanges = in_this_process(2, std::chrono::hours(1));
    const Bucket ours(*exchanges[0], 9 * unit);
    const Bucket theirs(*exchanges[1], 9 * unit);
    exchanges[0]->announce(ours.turn(0));
    exchanges[0].reset();
    overwrite(ours);
    exchanges[1]->announce(theirs.turn(0));
    CHECK(mentions(error_of(*exchanges[1]), "rank 0 does not take part"));
}

CASE("what a failed rank shows never leads out of bounds") {
    ddpdiag::SharedMember member;
    for (const std::uint64_t word : {~0ULL, 0xff00ULL, 5ULL, 0x4000ULL}) {
        member.control().failure = word;
        member.control().blamed = ~0ULL;
        const auto failure = shown(member.control(), 1, 3);
        CHECK_EQ(failure.origin, 1U);
        CHECK_EQ(failure.blamed, 0U);
    }
    show(member.control(),
         {.cause = ddpdiag::FailureCause::late, .origin = 2, .seconds = 7, .blamed = ~0ULL});
    const auto failure = shown(member.control(), 1, 3);
    CHECK_EQ(failure.origin, 2U);
    CHECK_EQ(failure.seconds, 7U);
    CHECK_EQ(failure.blamed, 7U);
}

namespace {

// All ranks announce some buckets. One completes a few, gives up at some moment, and overwrites the rest of its own.
void give_up_at_random(const std::vector<std::unique_ptr<SharedExchange>>& exchanges,
                       const std::function<std::string(std::size_t)>& error_of_rank, unsigned seed) {
    constexpr std::uint64_t each = 4;
    std::mt19937 random(seed);
    const std::size_t ranks = exchanges.size();
    const std::size_t victim = random() % ranks;
    const std::uint64_t completed = random() % each;
    const auto pause = std::chrono::microseconds(random() % 200);
    const std::size_t count = random() % 2 == 0 ? 1000 : 20 * unit;
    std::latch ready(static_cast<std::ptrdiff_t>(ranks));
    std::latch done(static_cast<std::ptrdiff_t>(ranks));
    on_all_ranks(ranks, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        std::vector<Bucket> buckets;
        buckets.reserve(each);
        for (std::uint64_t number = 0; number < each; ++number) {
            buckets.emplace_back(exchange, count);
            fill(buckets.back(), rank, number);
            exchange.announce(buckets.back().turn(number));
        }
        ready.arrive_and_wait();
        std::string error;
        for (std::uint64_t number = 0; number < each; ++number) {
            if (rank == victim && number == completed) {
                std::this_thread::sleep_for(pause);
                exchange.give_up(" has given up.");
                std::for_each(buckets.begin() + static_cast<std::ptrdiff_t>(number), buckets.end(),
                              overwrite);
            }
            const bool failed = !error.empty();
            error = error_of_rank(rank);
            CHECK(!failed || !error.empty());
            CHECK(!error.empty() || is_averaged(buckets[number], ranks, number));
        }
        done.arrive_and_wait();
        if (rank == victim) {
            CHECK(!error.empty());
            // Nobody has written to what it has back.
            for (std::uint64_t number = completed; number < each; ++number) {
                CHECK(std::all_of(buckets[number].values(), buckets[number].values() + count,
                                  [](float value) { return value == other_value; }));
            }
        }
    });
}

}  // namespace

CASE("whenever a rank gives up, the others get the average of what all brought, or an error") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        const auto exchanges = in_this_process(2 + seed % 2, std::chrono::hours(1));
        give_up_at_random(exchanges, [&](std::size_t rank) { return error_of(*exchanges[rank]); }, seed);
    }
}

CASE("so do those on several hosts") {
    for (const unsigned seed : {4U, 5U, 8U, 9U}) {  // in each, several buckets are left
        Cluster cluster(2, 2, std::chrono::hours(1));
        give_up_at_random(cluster.ranks, [&](std::size_t rank) { return cluster.error_of(rank); }, seed);
    }
}

CASE("a rank that fails while its part is between the hosts learns that its bucket is in use") {
    Cluster cluster(2, 2, std::chrono::hours(1));
    std::array<bool, 4> in_use{};
    cluster.on_all([&](std::size_t rank) {
        if (rank == 3) {
            return;  // its host never sums, so nothing of the other one's comes back
        }
        const Bucket bucket(*cluster.ranks[rank], 10 * unit);
        cluster.ranks[rank]->announce(bucket.turn(0));
        const auto until = std::chrono::steady_clock::now() + milliseconds(300);
        try {
            cluster.ranks[rank]->complete([&] { return std::chrono::steady_clock::now() < until; });
        } catch (const SharedExchangeError& error) {
            in_use[rank] = error.in_use();
        }
    });
    CHECK(in_use[0]);
    CHECK(!in_use[2]);
}
