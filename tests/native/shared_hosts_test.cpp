// Several hosts in one process (shared_cluster.hpp).
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/shared/exchange.hpp"
#include "shared_cluster.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::SharedExchange;
using shared_cluster::Cluster;
using shared_group::Bucket;
using shared_group::fill;
using shared_group::is_averaged;
using shared_group::unit;
using std::chrono::milliseconds;

}  // namespace

CASE("buckets of every size are averaged over all ranks of all hosts") {
    for (const std::size_t hosts : {2UL, 3UL}) {
        for (const std::size_t each : {2UL, 3UL}) {
            Cluster cluster(hosts, each);
            cluster.on_all([&](std::size_t rank) {
                SharedExchange& exchange = *cluster.ranks[rank];
                std::uint64_t number = 0;
                for (const std::size_t count :
                     std::vector<std::size_t>{1, 100, unit, unit + 1, 2 * unit, 9 * unit + 77}) {
                    const Bucket bucket(exchange, count);
                    for (int pass = 0; pass < 20; ++pass, ++number) {
                        fill(bucket, rank, number);
                        exchange.announce(bucket.turn(number));
                        exchange.complete();
                        CHECK(is_averaged(bucket, hosts * each, number));
                    }
                }
            });
        }
    }
}

CASE("each rank learns what it brought that is not finite") {
    Cluster cluster(2, 2);
    cluster.on_all([&](std::size_t rank) {
        SharedExchange& exchange = *cluster.ranks[rank];
        const Bucket bucket(exchange, 4 * unit);
        for (std::uint64_t number = 0; number < 20; ++number) {
            fill(bucket, rank, number);
            const bool spoils = rank == number % 5;
            if (spoils) {
                bucket.values()[3 * unit] = std::nanf("");
            }
            exchange.announce(bucket.turn(number));
            CHECK_EQ(exchange.complete().non_finite, spoils ? 1U : 0U);
        }
    });
}

CASE("many buckets are announced before the first is complete") {
    Cluster cluster(2, 2);
    cluster.on_all([&](std::size_t rank) {
        SharedExchange& exchange = *cluster.ranks[rank];
        std::vector<Bucket> buckets;
        buckets.reserve(600);
        for (std::uint64_t number = 0; number < 600; ++number) {
            buckets.emplace_back(exchange, 200 + number);
            fill(buckets.back(), rank, number);
            exchange.announce(buckets.back().turn(number));
        }
        for (std::uint64_t number = 0; number < 600; ++number) {
            exchange.complete();
            CHECK(is_averaged(buckets[number], 4, number));
        }
    });
}

CASE("a rank that leaves is the reason that all ranks of all hosts give") {
    Cluster cluster(2, 2, std::chrono::hours(1));
    std::vector<std::string> errors(4);
    cluster.on_all([&](std::size_t rank) {
        if (rank == 3) {
            std::this_thread::sleep_for(milliseconds(100));
            cluster.ranks[rank].reset();
            return;
        }
        const Bucket bucket(*cluster.ranks[rank], 10 * unit);
        cluster.ranks[rank]->announce(bucket.turn(0));
        errors[rank] = cluster.error_of(rank);
    });
    for (const std::size_t rank : {0UL, 1UL, 2UL}) {
        CHECK(errors[rank].find("rank 1 does not take part") != std::string::npos);  // of the second host
    }
}

CASE("ranks of one host that bring different buckets fail everywhere, with the difference as the reason") {
    Cluster cluster(2, 2, std::chrono::hours(1));
    std::vector<std::string> errors(4);
    cluster.on_all([&](std::size_t rank) {
        const Bucket bucket(*cluster.ranks[rank], rank == 3 ? 1000 : 999);
        cluster.ranks[rank]->announce(bucket.turn(17));
        errors[rank] = cluster.error_of(rank);
    });
    for (const std::string& error : errors) {
        CHECK(error.find("do not bring the same bucket") != std::string::npos);
    }
}

CASE("hosts that bring different buckets fail everywhere, and both sides are named") {
    // Of one part and of several, of other sizes and in another order.
    using Sizes = std::vector<std::size_t>;
    for (const auto& [one, other] : {std::pair<Sizes, Sizes>{{100, 200}, {100, 201}},
                                     std::pair<Sizes, Sizes>{{9 * unit, 100}, {100, 9 * unit}},
                                     std::pair<Sizes, Sizes>{{unit, 2 * unit}, {unit, 5 * unit}}}) {
        Cluster cluster(2, 2, std::chrono::hours(1));
        std::vector<std::string> errors(4);
        cluster.on_all([&](std::size_t rank) {
            std::uint64_t number = 0;
            for (const std::size_t count : rank < 2 ? one : other) {
                const Bucket bucket(*cluster.ranks[rank], count);
                cluster.ranks[rank]->announce(bucket.turn(number++));
                errors[rank] = cluster.error_of(rank);
                if (!errors[rank].empty()) {
                    return;
                }
            }
        });
        for (const std::string& error : errors) {
            CHECK(error.find("do not bring the same bucket") != std::string::npos);
            CHECK(error.find("the peer on host ") != std::string::npos);
        }
    }
}

CASE("a host that does not come gives an error when the time is over, and no sum") {
    // Long enough for the ranks of one host to meet on a busy machine.
    Cluster cluster(2, 2, milliseconds(3000));
    std::vector<std::string> errors(4);
    cluster.on_all([&](std::size_t rank) {
        if (rank < 2) {
            const Bucket bucket(*cluster.ranks[rank], 10 * unit);
            cluster.ranks[rank]->announce(bucket.turn(0));
            errors[rank] = cluster.error_of(rank);
        }
    });
    CHECK(errors[0].find("its peer on another host") != std::string::npos);
    CHECK_EQ(errors[0], errors[1]);
}
