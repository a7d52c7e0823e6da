// Ranks that are processes.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/shared/member.hpp"
#include "scratch.hpp"

namespace {

constexpr std::uint64_t never = 1'000'000;

// The verdict of each rank; empty for one that gave none.
std::vector<std::string> verdicts(std::size_t ranks, std::uint64_t passes, std::size_t who_dies = 0,
                                  std::uint64_t dies_at = never) {
    const Scratch folder;
    const bool windows = std::string(ddpdiag::platform::monotonic_clock_name()) == "QueryPerformanceCounter";
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        // ctest runs us where we were built, and shared_rank with us.
        const std::string command = (windows ? "shared_rank.exe " : "./shared_rank ") +
                                    folder.path().string() + " " + std::to_string(rank) + " " +
                                    std::to_string(ranks) + " " + std::to_string(passes) + " " +
                                    std::to_string(rank == who_dies ? dies_at : never);
        // NOLINTNEXTLINE(bugprone-command-processor,concurrency-mt-unsafe): the one portable way to start a process
        threads.emplace_back([command] { static_cast<void>(std::system(command.c_str())); });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    std::vector<std::string> result;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::ifstream file(folder / ("verdict." + std::to_string(rank)).c_str());
        result.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return result;
}

}  // namespace

CASE("processes average their buckets") {
    for (const std::string& verdict : verdicts(3, 90)) {
        CHECK_EQ(verdict, "good");
    }
}

CASE("a process that ends is named by all others") {
    const auto found = verdicts(3, 90, 1, 45);
    CHECK_EQ(found[1], "");
    CHECK_EQ(found[0], "rank 1 has ended in the middle of training.");
    CHECK_EQ(found[2], "rank 1 has ended in the middle of training.");
}

CASE("a process that ends before the others have opened its bucket is named likewise") {
    const auto found = verdicts(3, 90, 1, 0);
    CHECK_EQ(found[0], "rank 1 has ended in the middle of training.");
    CHECK_EQ(found[2], "rank 1 has ended in the middle of training.");
}

CASE("a process that is not there shares nothing") {
    const ddpdiag::SharedMember member;
    CHECK_THROWS(ddpdiag::platform::SystemError, ddpdiag::SharedPeer(member.name(), 0x7ffffff0));
}
