// The reads and writes of a sum in shared memory without any agreement: what memory and cores allow.
//
// Usage: memory_limit FOLDER BYTES RANKS
// As many processes as ranks, with a bucket each in memory that all of them share. Each sums its own part of all
// buckets into all of them, by the code that the package uses. A byte in the pipe FOLDER/go.R starts a round in process
// R, and its end ends it. Process 0 prints the seconds of each round, from when all have started until all are done.
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
#include <string>
#include <vector>

#include "core/shared_sum.hpp"

namespace {

constexpr std::uint64_t unit_bytes = 1U << 16U;

struct Control {
    std::atomic<std::uint64_t> started{0};
    std::atomic<std::uint64_t> done{0};
};

void* shared(std::size_t bytes) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("memory_limit");
        std::exit(1);
    }
    return memory;
}

void await(const std::atomic<std::uint64_t>& counter, std::uint64_t wanted) {
    while (counter.load() < wanted) {
        sched_yield();
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: memory_limit FOLDER BYTES RANKS\n");
        return 2;
    }
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t ranks = std::strtoull(argv[3], nullptr, 10);
    auto* const control = new (shared(sizeof(Control))) Control;
    std::vector<std::byte*> buckets;
    buckets.reserve(ranks);
    for (std::uint64_t i = 0; i < ranks; ++i) {
        buckets.push_back(static_cast<std::byte*>(shared(bytes)));
    }
    const pid_t first = getpid();
    std::uint64_t rank = 0;
    for (std::uint64_t i = 1; i < ranks && rank == 0; ++i) {
        if (fork() == 0) {
            rank = i;
            // Or it would spin for ever, and hold our output open, when process 0 is killed.
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != first) {
                return 1;
            }
        }
    }
    const int go = open((std::string(argv[1]) + "/go." + std::to_string(rank)).c_str(), O_RDONLY);
    const std::uint64_t units = (bytes + unit_bytes - 1) / unit_bytes;
    const std::uint64_t begin = std::min(bytes, units * rank / ranks * unit_bytes);
    const std::uint64_t end = std::min(bytes, units * (rank + 1) / ranks * unit_bytes);
    const ddpdiag::SharedSum sum{.bytes = bytes, .average = false};
    char byte = 0;
    for (std::uint64_t round = 1; read(go, &byte, 1) == 1; ++round) {
        control->started.fetch_add(1);
        await(control->started, round * ranks);
        const auto at = std::chrono::steady_clock::now();
        sum.run(buckets, begin, end);
        control->done.fetch_add(1);
        await(control->done, round * ranks);
        if (rank == 0) {
            const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - at;
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
