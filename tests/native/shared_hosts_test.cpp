// Several hosts in one process: what lies between them is a sum in memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/shared_between.hpp"
#include "core/shared_exchange.hpp"
#include "shared_group.hpp"

namespace {

using ddpdiag::SharedBetween;
using ddpdiag::SharedBetweenError;
using ddpdiag::SharedExchange;
using ddpdiag::SharedExchangeError;
using ddpdiag::Told;
using shared_group::Bucket;
using shared_group::fill;
using shared_group::is_averaged;
using std::chrono::milliseconds;

constexpr std::size_t unit = SharedExchange::unit_bytes / sizeof(float);

// Where the ranks that carry one part on all hosts meet; sums of f32.
class Meeting {
public:
    explicit Meeting(std::size_t hosts) : hosts_(hosts), told_(hosts) {}

    void bring(float* part, std::size_t count) {
        const std::lock_guard lock(mutex_);
        parts_.push_back(part);
        if (parts_.size() < hosts_) {
            return;
        }
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (const float* const one : parts_) {
                sum += one[i];
            }
            for (float* const one : parts_) {
                one[i] = sum;
            }
        }
        parts_.clear();
        ++met_;
        changed_.notify_all();
    }
    void tell(std::size_t host, const Told& told) {
        const std::lock_guard lock(mutex_);
        told_[host].push_back(told);
        changed_.notify_all();
    }
    // What each host has told for the `number`th time.
    std::vector<Told> told(std::uint64_t number, milliseconds limit) {
        std::unique_lock lock(mutex_);
        const auto there = [&] {
            return std::ranges::all_of(told_, [&](const auto& one) { return one.size() >= number; });
        };
        changed_.wait_for(lock, limit, [&] { return there() || closed_; });
        if (!there()) {
            if (closed_) {
                throw SharedBetweenError("closed");
            }
            return {};
        }
        std::vector<Told> result;
        result.reserve(told_.size());
        for (const auto& one : told_) {
            result.push_back(one[number - 1]);
        }
        return result;
    }
    bool await(std::uint64_t number, milliseconds limit) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, limit, [&] { return met_ >= number || closed_; });
        if (closed_ && met_ < number) {
            throw SharedBetweenError("closed");
        }
        return met_ >= number;
    }
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        changed_.notify_all();
    }

private:
    std::size_t hosts_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<float*> parts_;
    std::vector<std::vector<Told>> told_;  // by host
    std::uint64_t met_ = 0;
    bool closed_ = false;
};

struct Reason {
    std::mutex mutex;
    std::string text;
};

class Way final : public SharedBetween {
public:
    Way(std::shared_ptr<Meeting> meeting, std::shared_ptr<Reason> reason, std::size_t hosts, std::size_t home)
        : meeting_(std::move(meeting)), reason_(std::move(reason)), home_(home) {
        for (std::size_t host = 0; host < hosts; ++host) {
            names_.push_back("the peer on host " + std::to_string(host));
        }
    }

    [[nodiscard]] const std::vector<std::string>& names() const noexcept override { return names_; }
    void tell(const Told& ours) override {
        ++told_;
        meeting_->tell(home_, ours);
    }
    [[nodiscard]] std::vector<Told> told(milliseconds limit) override { return meeting_->told(told_, limit); }
    [[nodiscard]] const std::string& others() const noexcept override { return others_; }
    void begin(const std::shared_ptr<const ddpdiag::SharedBlock>& block, std::uint64_t offset,
               std::uint64_t bytes, ddpdiag::Element /*element*/) override {
        ++begun_;
        meeting_->bring(reinterpret_cast<float*>(block->data() + offset), bytes / sizeof(float));
    }
    [[nodiscard]] bool wait(milliseconds limit) override { return meeting_->await(begun_, limit); }
    [[nodiscard]] std::string agreed(const std::string& reason, milliseconds hearsay) noexcept override {
        std::this_thread::sleep_for(hearsay / 4);
        const std::lock_guard lock(reason_->mutex);
        if (reason_->text.empty()) {
            reason_->text = reason;
        }
        return reason_->text;
    }
    void give_up() noexcept override { meeting_->close(); }

private:
    std::shared_ptr<Meeting> meeting_;
    std::shared_ptr<Reason> reason_;
    std::size_t home_;
    std::vector<std::string> names_;
    std::uint64_t told_ = 0;
    std::uint64_t begun_ = 0;
    std::string others_ = "its peer on another host";
};

// The exchanges of all ranks, host by host, and the ways of the ranks of each host.
struct Cluster {
    Cluster(std::size_t hosts, std::size_t each, milliseconds timeout = std::chrono::minutes(2)) {
        std::vector<std::shared_ptr<Meeting>> meetings;
        meetings.reserve(each);
        for (std::size_t part = 0; part < each; ++part) {
            meetings.push_back(std::make_shared<Meeting>(hosts));
        }
        const auto reason = std::make_shared<Reason>();
        for (std::size_t host = 0; host < hosts; ++host) {
            std::vector<std::shared_ptr<SharedBetween>> own;
            own.reserve(each);
            for (std::size_t part = 0; part < each; ++part) {
                own.push_back(std::make_shared<Way>(meetings[part], reason, hosts, host));
            }
            for (auto& exchange : shared_group::in_this_process(each, timeout, own)) {
                ranks.push_back(std::move(exchange));
            }
            ways.insert(ways.end(), own.begin(), own.end());
        }
    }

    void on_all(const std::function<void(std::size_t)>& body) const {
        std::vector<std::thread> threads;
        threads.reserve(ranks.size());
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            threads.emplace_back(body, rank);
        }
        for (auto& thread : threads) {
            thread.join();
        }
    }

    // The error of completing the next bucket of a rank; empty if there was none. After one, it has given up.
    std::string error_of(std::size_t rank) {
        try {
            ranks[rank]->complete();
            return {};
        } catch (const SharedExchangeError& error) {
            ways[rank]->give_up();
            return error.what();
        }
    }

    std::vector<std::unique_ptr<SharedExchange>> ranks;
    std::vector<std::shared_ptr<SharedBetween>> ways;
};

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
            CHECK_EQ(exchange.complete().values, spoils ? 1U : 0U);
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
