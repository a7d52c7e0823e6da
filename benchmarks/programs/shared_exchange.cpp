// Sums a bucket over the ranks in shared memory, as MPI_Allreduce would be called: from C++, in the calling thread.
//
// Usage: shared_exchange FOLDER BYTES RANKS IN_A_ROW
// As many processes as ranks, each with its own bucket. A byte in the pipe FOLDER/go.R starts a round in process R, and its
// end ends it. Process 0 prints the seconds of each round, in which it sums so many times.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/shared_exchange.hpp"
#include "platform/platform.hpp"

namespace {

using ddpdiag::SharedExchange;

// How the processes meet.
struct Meeting {
    std::atomic<std::uint64_t> there{0};
    std::array<std::array<char, 64>, ddpdiag::most_shared_ranks> names{};
    std::array<std::uint64_t, ddpdiag::most_shared_ranks> processes{};

    // Returns when all of them have come so many times.
    void all_come(std::uint64_t wanted) {
        there.fetch_add(1);
        while (there.load() < wanted) {
            sched_yield();
        }
    }
};

std::unique_ptr<SharedExchange> meet(Meeting& meeting, std::size_t rank, std::size_t ranks) {
    ddpdiag::SharedMember own;
    own.name().copy(meeting.names[rank].data(), meeting.names[rank].size() - 1);
    meeting.processes[rank] = ddpdiag::platform::process_id();
    meeting.all_come(ranks);
    std::vector<std::optional<ddpdiag::SharedPeer>> peers;
    std::vector<std::string> names;
    for (std::size_t other = 0; other < ranks; ++other) {
        names.push_back("rank " + std::to_string(other));
        if (other == rank) {
            peers.emplace_back();
        } else {
            peers.emplace_back(std::in_place, meeting.names[other].data(), meeting.processes[other]);
        }
    }
    auto exchange = std::make_unique<SharedExchange>(std::move(own), std::move(peers), std::move(names),
                                                     std::chrono::minutes(1));
    meeting.all_come(2 * ranks);
    return exchange;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: shared_exchange FOLDER BYTES RANKS IN_A_ROW\n");
        return 2;
    }
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t ranks = std::strtoull(argv[3], nullptr, 10);
    const std::uint64_t in_a_row = std::strtoull(argv[4], nullptr, 10);
    void* const memory =
        mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("shared_exchange");
        return 1;
    }
    auto* const meeting = new (memory) Meeting;
    const pid_t first = getpid();
    std::uint64_t rank = 0;
    for (std::uint64_t i = 1; i < ranks && rank == 0; ++i) {
        if (fork() == 0) {
            rank = i;
            // Or it would wait for ever, and hold our output open, when process 0 is killed.
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != first) {
                return 1;
            }
        }
    }
    const auto exchange = meet(*meeting, rank, ranks);
    const auto block = std::make_shared<const ddpdiag::SharedBlock>(bytes);
    const std::size_t place = exchange->enter(block);
    const int go = open((std::string(argv[1]) + "/go." + std::to_string(rank)).c_str(), O_RDONLY);
    std::uint64_t number = 0;
    char byte = 0;
    for (std::uint64_t round = 3; read(go, &byte, 1) == 1; ++round) {
        meeting->all_come(round * ranks);
        const auto at = std::chrono::steady_clock::now();
        for (std::uint64_t i = 0; i < in_a_row; ++i, ++number) {
            exchange->announce({.block = block,
                                .place = place,
                                .offset = 0,
                                .sequence = number,
                                .sum = {.bytes = bytes, .average = false}});
            if (!exchange->complete_at_once()) {
                static_cast<void>(exchange->complete());
            }
        }
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - at;
        if (rank == 0) {
            std::printf("%.9f\n", seconds.count());
            std::fflush(stdout);
        }
    }
    if (rank == 0) {
        while (wait(nullptr) > 0) {
        }
    }
    return 0;
}
