// Several hosts in one process, for tests: what lies between them is memory.
#pragma once

#include <algorithm>
#include <chrono>
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
#include "core/shared/between.hpp"
#include "core/shared/exchange.hpp"
#include "shared_group.hpp"

namespace shared_cluster {

using ddpdiag::BucketKey;
using ddpdiag::SharedBetween;
using ddpdiag::SharedBetweenError;
using ddpdiag::SharedExchange;
using ddpdiag::SharedExchangeError;
using ddpdiag::SharedSwap;
using std::chrono::milliseconds;

// Where the ranks that carry one part on all hosts meet; sums of f32.
class Meeting {
public:
    explicit Meeting(std::size_t hosts) : hosts_(hosts), swaps_(hosts), keys_(hosts) {}

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
    void bring(std::size_t host, const SharedSwap& swap) {
        const std::lock_guard lock(mutex_);
        swaps_[host] = swap;
        if (++brought_ < hosts_) {
            return;
        }
        for (std::size_t from = 0; from < hosts_; ++from) {
            for (std::size_t to = 0; to < hosts_; ++to) {
                const auto& sent = swaps_[from].sent[to];
                const auto& received = swaps_[to].received[from];
                CHECK_EQ(sent.count, received.count);
                CHECK(from != to || sent.count == 0);
                CHECK(sent.begin + sent.count <= swaps_[from].values->size());
                CHECK(received.begin + received.count <= swaps_[to].values->size());
                std::copy_n(swaps_[from].values->data() + sent.begin, sent.count,
                            swaps_[to].values->data() + received.begin);
            }
        }
        brought_ = 0;
        ++met_;
        changed_.notify_all();
    }
    void tell(std::size_t host, const BucketKey& key) {
        const std::lock_guard lock(mutex_);
        keys_[host].push_back(key);
        changed_.notify_all();
    }
    // The key that each host sent for the `number`th time.
    std::vector<BucketKey> keys(std::uint64_t number, milliseconds limit) {
        std::unique_lock lock(mutex_);
        const auto there = [&] {
            return std::ranges::all_of(keys_, [&](const auto& one) { return one.size() >= number; });
        };
        changed_.wait_for(lock, limit, [&] { return there() || closed_; });
        if (!there()) {
            if (closed_) {
                throw SharedBetweenError("closed");
            }
            return {};
        }
        std::vector<BucketKey> result;
        result.reserve(keys_.size());
        for (const auto& one : keys_) {
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
    bool have_met(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
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
    std::vector<SharedSwap> swaps_;             // by host
    std::size_t brought_ = 0;                   // of them, for the next meeting
    std::vector<std::vector<BucketKey>> keys_;  // by host
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
    void tell(const BucketKey& ours) override {
        ++keys_sent_;
        meeting_->tell(home_, ours);
    }
    [[nodiscard]] std::vector<BucketKey> keys(milliseconds limit) override {
        return meeting_->keys(keys_sent_, limit);
    }
    [[nodiscard]] const std::string& others() const noexcept override { return others_; }
    [[nodiscard]] std::size_t home() const noexcept override { return home_; }
    void begin(const std::shared_ptr<const ddpdiag::SharedBlock>& block, std::uint64_t offset,
               std::uint64_t bytes, ddpdiag::Element /*element*/) override {
        ++begun_;
        meeting_->bring(reinterpret_cast<float*>(block->data() + offset), bytes / sizeof(float));
    }
    [[nodiscard]] bool uses_block() const noexcept override { return !meeting_->have_met(begun_); }
    void begin(const SharedSwap& swap) override {
        ++begun_;
        meeting_->bring(home_, swap);
    }
    [[nodiscard]] bool wait(milliseconds limit) override { return meeting_->await(begun_, limit); }
    [[nodiscard]] std::string agreed(const std::string& reason,
                                     milliseconds secondary_error_delay) noexcept override {
        std::this_thread::sleep_for(secondary_error_delay / 4);
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
    std::uint64_t keys_sent_ = 0;
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
        shared_group::on_all_ranks(ranks.size(), body);
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

}  // namespace shared_cluster
