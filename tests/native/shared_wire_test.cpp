// Sums of several hosts that travel in 16 bits, beside the same sums value by value.
#include "core/shared/wire.hpp"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/kernels/half.hpp"
#include "core/shared/exchange.hpp"
#include "shared_cluster.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::Element;
using ddpdiag::SharedExchange;
using ddpdiag::SharedWire;
using shared_cluster::Cluster;
using shared_group::Bucket;
using shared_group::unit;
using std::chrono::milliseconds;

// Of each host: their sum does not depend on the order.
constexpr std::size_t each = 2;

// What a rank brings: of many sizes, and with more bits than travel.
float brought_by(std::size_t rank, std::uint64_t number, std::size_t i) {
    const auto whole = static_cast<float>((rank * 7919 + number * 104729 + i * 31337) % 2000003) - 1e6F;
    return whole * std::ldexp(1.0F, static_cast<int>(i % 9) - 25);
}

void bring(const Bucket& bucket, std::size_t rank, std::uint64_t number) {
    for (std::size_t i = 0; i < bucket.count(); ++i) {
        bucket.values()[i] = brought_by(rank, number, i);
    }
}

float rounded(Element type, float x) {
    return type == Element::bf16 ? ddpdiag::f32_of_bf16(ddpdiag::bf16_of_f32(x))
                                 : ddpdiag::f32_of_f16(ddpdiag::f16_of_f32(x));
}

// What all ranks are to hold at one position, from pass to pass.
class Expected {
public:
    Expected(Element type, std::size_t hosts, bool feeds_back)
        : type_(type), feeds_back_(feeds_back), residuals_(hosts) {}

    float next(std::uint64_t number, std::size_t i) {
        const auto ranks = static_cast<float>(residuals_.size() * each);
        float sum = 0;
        for (std::size_t host = 0; host < residuals_.size(); ++host) {
            float& residual = residuals_[host];
            const float ours =
                brought_by(host * each, number, i) / ranks + brought_by(host * each + 1, number, i) / ranks;
            const float brought = feeds_back_ ? ours + residual : ours;
            const float sent = rounded(type_, brought);
            residual = brought - sent;
            sum = host == 0 ? sent : sum + sent;
        }
        return rounded(type_, sum);
    }

private:
    Element type_;
    bool feeds_back_;
    std::vector<float> residuals_;  // by host
};

}  // namespace

CASE("the hosts' sums are rounded, added in the order of the hosts and rounded once, on all ranks") {
    for (const Element type : {Element::bf16, Element::f16}) {
        for (const std::size_t hosts : {2UL, 3UL, 5UL}) {
            for (const bool feeds_back : {false, true}) {
                const Cluster cluster(hosts, each);
                cluster.on_all([&](std::size_t rank) {
                    SharedExchange& exchange = *cluster.ranks[rank];
                    std::uint64_t sequence = 0;
                    for (const std::size_t count :
                         std::vector<std::size_t>{1, 2, 100, unit + 1, 5 * unit + 77}) {
                        const Bucket bucket(exchange, count);
                        const auto wire = std::make_shared<SharedWire>(type, feeds_back);
                        std::vector<Expected> expected(count, Expected(type, hosts, feeds_back));
                        for (std::uint64_t pass = 0; pass < 3; ++pass, ++sequence) {
                            bring(bucket, rank, pass);
                            exchange.announce(bucket.turn(sequence, wire));
                            exchange.complete();
                            std::size_t wrong = 0;
                            for (std::size_t i = 0; i < count; ++i) {
                                const float wanted = expected[i].next(pass, i);
                                wrong += std::bit_cast<std::uint32_t>(bucket.values()[i]) !=
                                         std::bit_cast<std::uint32_t>(wanted);
                            }
                            CHECK_EQ(wrong, 0U);
                        }
                    }
                });
            }
        }
    }
}

CASE("what is not finite is the same on all ranks and spoils no later pass") {
    for (const std::size_t hosts : {2UL, 3UL}) {
        const Cluster cluster(hosts, each);
        cluster.on_all([&](std::size_t rank) {
            SharedExchange& exchange = *cluster.ranks[rank];
            const Bucket bucket(exchange, 4);
            const auto wire = std::make_shared<SharedWire>(Element::f16, true);
            bring(bucket, rank, 0);
            if (rank == 1) {
                bucket.values()[0] = std::nanf("");
                bucket.values()[1] = -std::numeric_limits<float>::infinity();
            }
            bucket.values()[2] = 1e6F;  // finite, and too large for the wire
            exchange.announce(bucket.turn(0, wire));
            CHECK_EQ(exchange.complete().non_finite, rank == 1 ? 2U : 0U);
            CHECK(std::isnan(bucket.values()[0]));
            CHECK_EQ(bucket.values()[1], -std::numeric_limits<float>::infinity());
            CHECK_EQ(bucket.values()[2], std::numeric_limits<float>::infinity());
            bring(bucket, rank, 1);
            exchange.announce(bucket.turn(1, wire));
            exchange.complete();
            for (const std::size_t i : {0UL, 1UL, 2UL}) {
                CHECK_EQ(bucket.values()[i], Expected(Element::f16, hosts, false).next(1, i));
            }
        });
    }
}

CASE("ranks and hosts that compress differently fail everywhere, and both sides are named") {
    struct Settings {
        std::vector<std::shared_ptr<SharedWire>> by_rank;
        std::string one;
        std::string other;
    };
    const auto bf16 = [](bool feeds_back = false) {
        return std::make_shared<SharedWire>(Element::bf16, feeds_back);
    };
    const auto f16 = [] { return std::make_shared<SharedWire>(Element::f16, false); };
    const std::string words = " between hosts";
    for (const Settings& settings : std::vector<Settings>{
             {{bf16(), bf16(), nullptr, nullptr}, "of float32, in bfloat16" + words, "of float32;"},
             {{bf16(), bf16(), f16(), f16()}, "in bfloat16" + words, "in float16" + words},
             {{bf16(), bf16(), bf16(true), bf16(true)}, words + ";", words + " with error feedback"},
             {{bf16(), f16(), bf16(), bf16()}, "in bfloat16" + words, "in float16" + words}}) {
        Cluster cluster(2, each, std::chrono::hours(1));
        std::vector<std::string> errors(4);
        cluster.on_all([&](std::size_t rank) {
            const Bucket bucket(*cluster.ranks[rank], 3 * unit);
            cluster.ranks[rank]->announce(bucket.turn(0, settings.by_rank[rank]));
            errors[rank] = cluster.error_of(rank);
        });
        for (const std::string& error : errors) {
            CHECK(error.find("do not bring the same bucket") != std::string::npos);
            // Either side may be the one that says it.
            std::string text = error;
            text.back() = ';';
            CHECK(text.find(settings.one) != std::string::npos);
            CHECK(text.find(settings.other) != std::string::npos);
        }
    }
}

CASE("a rank that leaves is the reason that all ranks of all hosts give, in 16 bits as well") {
    Cluster cluster(3, each, std::chrono::hours(1));
    std::vector<std::string> errors(6);
    cluster.on_all([&](std::size_t rank) {
        const auto wire = std::make_shared<SharedWire>(Element::bf16, false);
        const Bucket bucket(*cluster.ranks[rank], 10 * unit);
        for (std::uint64_t number = 0; errors[rank].empty(); ++number) {
            if (rank == 3 && number == 5) {
                std::this_thread::sleep_for(milliseconds(100));
                cluster.ranks[rank].reset();
                return;
            }
            cluster.ranks[rank]->announce(bucket.turn(number, wire));
            errors[rank] = cluster.error_of(rank);
        }
    });
    for (const std::size_t rank : {0UL, 1UL, 2UL, 4UL, 5UL}) {
        CHECK(errors[rank].find("rank 1 does not take part") != std::string::npos);  // of the second host
    }
}

CASE("only types of 16 bits travel") {
    CHECK_THROWS(std::invalid_argument, SharedWire(Element::f32, false));
}
