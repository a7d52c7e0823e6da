#include "core/shared/exchange.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::SharedExchange;
using shared_group::Bucket;
using shared_group::error_of;
using shared_group::fill;
using shared_group::in_this_process;
using shared_group::is_averaged;
using shared_group::on_all_ranks;
using shared_group::unit;
using std::chrono::milliseconds;

bool mentions(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

CASE("buckets of every size are averaged on all ranks") {
    for (const std::size_t ranks : {2UL, 3UL, 5UL}) {
        auto exchanges = in_this_process(ranks);
        on_all_ranks(ranks, [&](std::size_t rank) {
            SharedExchange& exchange = *exchanges[rank];
            std::uint64_t number = 0;
            for (const std::size_t count :
                 std::vector<std::size_t>{1, 100, unit, unit + 1, 9 * unit + 77, 133 * unit + 5}) {
                const Bucket bucket(exchange, count);
                for (int pass = 0; pass < 4; ++pass, ++number) {
                    fill(bucket, rank, number);
                    exchange.announce(bucket.turn(number));
                    exchange.complete();
                    CHECK(is_averaged(bucket, ranks, number));
                }
            }
        });
    }
}

CASE("one thread announces while another completes, hundreds of buckets ahead") {
    constexpr std::size_t ranks = 3;
    constexpr std::uint64_t each = 1000;
    auto exchanges = in_this_process(ranks);
    on_all_ranks(ranks, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        std::vector<Bucket> buckets;
        buckets.reserve(700);
        for (std::size_t i = 0; i < 700; ++i) {
            buckets.emplace_back(exchange, 200 + i);
        }
        for (std::uint64_t number = 0; number < each;) {
            std::atomic<std::uint64_t> ready{0};
            const std::uint64_t first = number;
            std::thread worker([&] {
                for (std::size_t i = 0; i < buckets.size(); ++i) {
                    while (ready.load() <= i) {
                        std::this_thread::yield();
                    }
                    exchange.complete();
                }
            });
            for (const Bucket& bucket : buckets) {
                fill(bucket, rank, number);
                exchange.announce(bucket.turn(number++));
                ready.fetch_add(1);
            }
            worker.join();
            for (std::size_t i = 0; i < buckets.size(); ++i) {
                CHECK(is_averaged(buckets[i], ranks, first + i));
            }
        }
    });
}

CASE("the last rank to announce a small bucket sums it at once, and nobody else has to") {
    auto exchanges = in_this_process(2);
    const Bucket first(*exchanges[0], unit);
    const Bucket last(*exchanges[1], unit);
    for (std::uint64_t number = 0; number < 3; ++number) {
        fill(first, 0, number);
        fill(last, 1, number);
        exchanges[0]->announce(first.turn(number));
        CHECK(!exchanges[0]->complete_at_once());
        exchanges[1]->announce(last.turn(number));
        CHECK(exchanges[1]->complete_at_once());
        CHECK(is_averaged(first, 2, number));
        exchanges[0]->complete();
        CHECK(is_averaged(last, 2, number));
    }
}

CASE("who sums a bucket at once learns what is not finite") {
    auto exchanges = in_this_process(2);
    const Bucket first(*exchanges[0], 10);
    const Bucket last(*exchanges[1], 10);
    for (const std::size_t bad : {0UL, 1UL}) {
        fill(first, 0, bad);
        fill(last, 1, bad);
        (bad == 0 ? first : last).values()[4] = std::nanf("");
        exchanges[0]->announce(first.turn(bad));
        exchanges[1]->announce(last.turn(bad));
        const auto found = exchanges[1]->complete_at_once();
        CHECK(found.has_value());
        CHECK_EQ(found.value_or(ddpdiag::GradientStatistics{}).non_finite, bad == 1 ? 1U : 0U);
        CHECK_EQ(exchanges[0]->complete().non_finite, bad == 0 ? 1U : 0U);
    }
}

CASE("what takes longer, or is not the oldest, or cannot be summed, is not summed at once") {
    auto exchanges = in_this_process(2);
    std::vector<Bucket> buckets;
    for (const std::size_t rank : {0UL, 1UL}) {
        buckets.emplace_back(*exchanges[rank], SharedExchange::at_once_bytes / sizeof(float) + 1);
        buckets.emplace_back(*exchanges[rank], 10 + rank);
        exchanges[rank]->announce(buckets[2 * rank].turn(0));
        CHECK(!exchanges[rank]->complete_at_once());
        exchanges[rank]->announce(buckets[2 * rank + 1].turn(1));
        CHECK(!exchanges[rank]->complete_at_once());
    }
    exchanges[1]->complete();
    CHECK(!exchanges[1]->complete_at_once());  // not of the same size
    CHECK(mentions(error_of(*exchanges[1]), "do not bring the same bucket"));
    const Bucket later(*exchanges[1], 10);
    exchanges[1]->announce(later.turn(2));
    CHECK(!exchanges[1]->complete_at_once());
    CHECK(mentions(error_of(*exchanges[1]), "do not bring the same bucket"));
}

CASE("one thread completes what it can at once, another the rest") {
    constexpr std::size_t ranks = 3;
    auto exchanges = in_this_process(ranks);
    on_all_ranks(ranks, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        std::vector<Bucket> buckets;
        buckets.reserve(700);
        for (std::size_t i = 0; i < 700; ++i) {
            const std::size_t large = SharedExchange::at_once_bytes / sizeof(float);
            const std::size_t small = i % 7 == 0 ? 3 * unit : 200 + i;
            buckets.emplace_back(exchange, i % 70 == 0 ? large + i : small);
            fill(buckets.back(), rank, i);
        }
        std::counting_semaphore<> left(0);
        std::atomic<std::size_t> rest{buckets.size()};
        std::thread worker([&] {
            for (std::size_t completed = 0;; ++completed) {
                left.acquire();
                if (completed == rest.load()) {
                    return;
                }
                exchange.complete();
            }
        });
        std::size_t others = 0;
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            exchange.announce(buckets[i].turn(i));
            if (!exchange.complete_at_once()) {
                ++others;
                left.release();
            }
        }
        rest.store(others);
        left.release();
        worker.join();
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            CHECK(is_averaged(buckets[i], ranks, i));
        }
    });
}

CASE("buckets come and go, and their places are given to others") {
    auto exchanges = in_this_process(2);
    on_all_ranks(2, [&](std::size_t rank) {
        for (std::uint64_t number = 0; number < ddpdiag::shared_places + 200; ++number) {
            const Bucket bucket(*exchanges[rank], 10 + number % 5);
            fill(bucket, rank, number);
            exchanges[rank]->announce(bucket.turn(number));
            exchanges[rank]->complete();
            CHECK(is_averaged(bucket, 2, number));
        }
    });
}

CASE("more blocks than there are places give an error") {
    auto exchanges = in_this_process(2);
    std::vector<std::shared_ptr<const ddpdiag::SharedBlock>> blocks;
    bool refused = false;
    for (std::size_t i = 0; i <= ddpdiag::shared_places && !refused; ++i) {
        try {
            blocks.push_back(std::make_shared<const ddpdiag::SharedBlock>(64));
        } catch (const ddpdiag::platform::SystemError&) {
            SKIP("this system does not let a process hold so many blocks");
        }
        try {
            CHECK_EQ(exchanges[0]->enter(blocks.back()), i);
        } catch (const std::runtime_error&) {
            refused = true;
        }
    }
    CHECK(refused);
}

CASE("ranks that bring different buckets get an error that names both sides") {
    auto exchanges = in_this_process(3);
    std::vector<std::string> errors(3);
    on_all_ranks(3, [&](std::size_t rank) {
        const Bucket bucket(*exchanges[rank], rank == 2 ? 1000 : 999);
        fill(bucket, rank, 0);
        exchanges[rank]->announce(bucket.turn(17));
        errors[rank] = error_of(*exchanges[rank]);
        CHECK_EQ(bucket.values()[5], shared_group::value(rank, 0, 5));
    });
    for (const std::string& error : errors) {
        CHECK(mentions(error, "rank 2") && mentions(error, "3996 bytes") && mentions(error, "4000 bytes") &&
              mentions(error, "float32"));
    }
    CHECK(mentions(errors[0], "rank 0") && mentions(errors[1], "rank 1"));
}

CASE("ranks at different buckets of the same size get an error, and so does every later bucket") {
    auto exchanges = in_this_process(2);
    on_all_ranks(2, [&](std::size_t rank) {
        const Bucket bucket(*exchanges[rank], 10);
        exchanges[rank]->announce(bucket.turn(rank));
        const std::string error = error_of(*exchanges[rank]);
        CHECK(mentions(error, "bucket 0 of the group") && mentions(error, "bucket 1 of the group"));
        exchanges[rank]->announce(bucket.turn(2));
        CHECK_EQ(error_of(*exchanges[rank]), error);
    });
}

CASE("a rank that does not come is named when the time is over") {
    auto exchanges = in_this_process(3, milliseconds(300));
    std::vector<std::string> errors(3);
    // On a busy machine one of the two may begin later than the other one waits.
    std::latch both_are_here(2);
    on_all_ranks(3, [&](std::size_t rank) {
        if (rank != 1) {
            const Bucket bucket(*exchanges[rank], 10);
            exchanges[rank]->announce(bucket.turn(0));
            both_are_here.arrive_and_wait();
            errors[rank] = error_of(*exchanges[rank]);
        }
    });
    CHECK(mentions(errors[0], "waited") && mentions(errors[0], "rank 1") && !mentions(errors[0], "rank 2"));
    CHECK(mentions(errors[2], "waited") && mentions(errors[2], "rank 1") && !mentions(errors[2], "rank 0"));
}

CASE("a rank that leaves is named long before the time is over") {
    auto exchanges = in_this_process(2, std::chrono::hours(1));
    const Bucket bucket(*exchanges[0], 10);
    exchanges[0]->announce(bucket.turn(0));
    std::thread leaving([&] {
        std::this_thread::sleep_for(milliseconds(100));
        exchanges[1].reset();
    });
    CHECK(mentions(error_of(*exchanges[0]), "rank 1 does not take part"));
    leaving.join();
}

CASE("a rank whose next bucket will not come says so, and what it has is summed by nobody") {
    auto exchanges = in_this_process(2, std::chrono::hours(1));
    std::vector<std::string> errors(2);
    on_all_ranks(2, [&](std::size_t rank) {
        SharedExchange& exchange = *exchanges[rank];
        const Bucket bucket(exchange, 10 * unit);
        fill(bucket, rank, 0);
        if (rank == 1) {
            exchange.give_up(" has no gradients.");
        }
        exchange.announce(bucket.turn(0));
        CHECK(rank == 0 || !exchange.complete_at_once());
        errors[rank] = error_of(exchange);
        CHECK_EQ(bucket.values()[5], shared_group::value(rank, 0, 5));
        // And so does every later one.
        exchange.announce(bucket.turn(1));
        CHECK_EQ(error_of(exchange), errors[rank]);
    });
    CHECK(mentions(errors[0], "rank 1"));
    CHECK_EQ(errors[1], "rank 1 has no gradients.");
}

CASE("a rank that leaves after its part is no error") {
    auto exchanges = in_this_process(2);
    const Bucket bucket(*exchanges[0], 10 * unit);
    fill(bucket, 0, 0);
    std::thread other([&] {
        const Bucket theirs(*exchanges[1], 10 * unit);
        fill(theirs, 1, 0);
        exchanges[1]->announce(theirs.turn(0));
        exchanges[1]->complete();
        exchanges[1].reset();
    });
    exchanges[0]->announce(bucket.turn(0));
    other.join();  // who has summed all of it alone
    exchanges[0]->complete();
    CHECK(is_averaged(bucket, 2, 0));
}

CASE("a wait can be given up") {
    auto exchanges = in_this_process(2, std::chrono::hours(1));
    const Bucket bucket(*exchanges[0], 10);
    exchanges[0]->announce(bucket.turn(0));
    CHECK(mentions(error_of(*exchanges[0], [] { return false; }), "given up while waiting for rank 1"));
}

// Rank 1 writes nonsense; rank 0 gets an error, or a wrong sum, and nothing worse.
CASE("nothing that another rank writes leads out of bounds") {
    const auto attack = [](const std::function<void(ddpdiag::Announcement&)>& spoil) {
        std::vector<ddpdiag::SharedMember> members(2);
        const std::vector<std::uint64_t> processes(2, ddpdiag::platform::process_id());
        const std::vector<std::string> names = {members[0].name(), members[1].name()};
        ddpdiag::SharedMember& hostile = members[1];
        SharedExchange exchange(std::move(members[0]), shared_group::peers(names, processes, 0),
                                shared_group::names(2), milliseconds(200));
        const Bucket bucket(exchange, 100);
        const auto theirs = std::make_shared<const ddpdiag::SharedBlock>(400);
        ddpdiag::Announced announced{.sequence = 0,
                                     .bytes = 400,
                                     .kind = 0x100,
                                     .offset = 0,
                                     .place = 0,
                                     .id = theirs->id(),
                                     .memory_bytes = theirs->memory().size()};
        theirs->memory().name().copy(reinterpret_cast<char*>(announced.name.data()), sizeof announced.name);
        auto& slot = hostile.control().announcements[0];
        ddpdiag::write(slot, 0, announced);
        spoil(slot);
        exchange.announce(bucket.turn(0));
        return error_of(exchange);
    };
    CHECK_EQ(attack([](auto&) {}), "");
    CHECK(mentions(attack([](auto& slot) { slot.bytes = ~0ULL; }), "rank 1"));
    CHECK(mentions(attack([](auto& slot) { slot.kind = 0xff; }), "an unknown type"));
    CHECK(mentions(attack([](auto& slot) { slot.offset = 8; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.offset = ~0ULL - 399; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.offset = 2; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.place = ~0ULL; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.id = 0; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.memory_bytes = std::uint64_t{1} << 60U; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.memory_bytes = 3; }), "cannot reach"));
    CHECK(mentions(attack([](auto& slot) {
                       for (auto& word : slot.name) {
                           word = ~0ULL;
                       }
                   }),
                   "cannot reach"));
    CHECK(mentions(attack([](auto& slot) { slot.tag = 9; }), "waited"));
}
