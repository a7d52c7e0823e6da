// What the ranks find while they sum the units of a bucket.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "check.hpp"
#include "core/shared/exchange.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::GradientStatistics;
using ddpdiag::SharedExchange;
using shared_group::Bucket;
using shared_group::fill;
using shared_group::in_this_process;
using shared_group::on_all_ranks;
using shared_group::unit;

}  // namespace

CASE("each rank learns what it brought that is not finite, whoever sums it") {
    constexpr std::size_t ranks = 3;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    auto exchanges = in_this_process(ranks);
    on_all_ranks(ranks, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        const Bucket bucket(exchange, 9 * unit + 77);
        // More than there are places for announcements: none may keep what an earlier one found.
        for (std::uint64_t number = 0; number < 600; ++number) {
            fill(bucket, rank, number);
            const bool spoils = rank == number % 4;
            if (spoils) {
                bucket.values()[5 * unit] = infinity;
                bucket.values()[3 * unit + number] = -infinity;
            }
            exchange.announce(bucket.turn(number));
            const GradientStatistics found = exchange.complete();
            CHECK_EQ(found.non_finite, spoils ? 2U : 0U);
            CHECK_EQ(found.first_non_finite, spoils ? 3 * unit + number : ddpdiag::no_index);
        }
    });
}

CASE("whoever sums takes the statistics of those who want them") {
    constexpr std::size_t ranks = 3;
    auto exchanges = in_this_process(ranks);
    on_all_ranks(ranks, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        const Bucket bucket(exchange, 9 * unit + 77);
        for (std::uint64_t number = 0; number < 600; ++number) {
            fill(bucket, rank, number);
            const auto wanted = ddpdiag::statistics(bucket.values(), ddpdiag::Element::f32, bucket.count());
            auto turn = bucket.turn(number);
            turn.watched = (rank + number) % 3 != 0;
            exchange.announce(turn);
            const GradientStatistics found = exchange.complete();
            CHECK_EQ(found.absolute_maximum, turn.watched ? wanted.absolute_maximum : 0);
            CHECK(std::abs(found.sum_squares - (turn.watched ? wanted.sum_squares : 0)) <=
                  1e-13 * wanted.sum_squares);
            CHECK_EQ(found.non_finite, 0U);
        }
    });
}
