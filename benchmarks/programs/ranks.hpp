// The processes of a program that sums in shared memory, and the rounds in which they are measured.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <string>

namespace programs {

// What all processes see that are started later. It is in memory already, so that no round pays for that.
inline void* shared(std::size_t bytes) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("no memory to share");
        std::exit(1);
    }
    return memory;
}

// In seconds, by a clock that all processes of a machine share.
inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// For some milliseconds, as ranks do before they sum: meanwhile the scheduler gives each a core of its own, if there are
// enough. Those that have just been woken may be on the same one.
inline void compute() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    while (std::chrono::steady_clock::now() < until) {
    }
}

// This process and those that it starts, as ranks from 0 on.
class Ranks {
public:
    explicit Ranks(std::uint64_t count)
        : count_(count), began_(new (shared(count * sizeof(Moment))) Moment[count]) {
        const pid_t first = getpid();
        for (std::uint64_t i = 1; i < count && rank_ == 0; ++i) {
            if (fork() == 0) {
                rank_ = i;
                // Or it would wait for ever, and hold our output open, when rank 0 is killed.
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != first) {
                    std::_Exit(1);
                }
            }
        }
    }
    ~Ranks() {
        if (rank_ == 0) {
            while (wait(nullptr) > 0) {
            }
        }
    }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    [[nodiscard]] std::uint64_t rank() const { return rank_; }
    [[nodiscard]] std::uint64_t count() const { return count_; }

    // Returns when all ranks have called it as often.
    void meet() {
        ++meetings_;
        there_->fetch_add(1);
        while (there_->load() < meetings_ * count_) {
            sched_yield();
        }
    }

    // A byte in the pipe FOLDER/go.R starts a round in rank R, and its end ends them. After they have computed, all begin
    // `work` together, which nobody ends before all have begun it. Rank 0 prints the seconds from when the first rank
    // begins until it has done its own.
    template <typename Work>
    void rounds(const std::string& folder, const Work& work) {
        const int go = open((folder + "/go." + std::to_string(rank_)).c_str(), O_RDONLY);
        char byte = 0;
        while (read(go, &byte, 1) == 1) {
            compute();
            meet();
            began_[rank_].store(now());
            work();
            if (rank_ == 0) {
                double seconds = 0;
                for (const double end = now(); const auto& began : std::span(began_, count_)) {
                    seconds = std::max(seconds, end - began.load());
                }
                std::printf("%.9f\n", seconds);
                std::fflush(stdout);
            }
        }
    }

private:
    using Moment = std::atomic<double>;

    std::uint64_t count_;
    Moment* began_;  // by rank
    std::uint64_t rank_ = 0;
    std::uint64_t meetings_ = 0;
    std::atomic<std::uint64_t>* there_ =
        new (shared(sizeof(std::atomic<std::uint64_t>))) std::atomic<std::uint64_t>;
};

}  // namespace programs
