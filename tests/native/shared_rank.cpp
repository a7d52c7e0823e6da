// One rank in a process of its own: shared_rank FOLDER RANK RANKS PASSES DIES_AT. It meets the others through files in
// FOLDER, averages buckets, and leaves its verdict in FOLDER/verdict.RANK: "good", "bad" or an error. At bucket
// DIES_AT, half of the ranks' processes later, it ends without a word.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "shared_group.hpp"

namespace {

namespace fs = std::filesystem;
using shared_group::Bucket;

void write(const fs::path& path, std::string_view text) {
    const fs::path half = path.string() + ".half";
    std::ofstream(half) << text;
    fs::rename(half, path);
}

// Until `is_there`, but not for ever: a rank that has failed leaves no file.
template <typename Condition>
void await(const fs::path& path, const Condition& is_there) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!is_there()) {
        if (std::chrono::steady_clock::now() >= until) {
            throw std::runtime_error("waited 2 minutes for " + path.filename().string() + ".");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

std::string_view run(const fs::path& folder, std::size_t rank, std::size_t ranks, std::uint64_t passes,
                     std::uint64_t dies_at) {
    ddpdiag::SharedMember own;
    write(folder / ("rank." + std::to_string(rank)),
          own.name() + " " + std::to_string(ddpdiag::platform::process_id()));
    std::vector<std::string> members(ranks);
    std::vector<std::uint64_t> processes(ranks);
    for (std::size_t other = 0; other < ranks; ++other) {
        const fs::path file = folder / ("rank." + std::to_string(other));
        // Windows opens no file that is just being renamed.
        await(file,
              [&] { return static_cast<bool>(std::ifstream(file) >> members[other] >> processes[other]); });
    }
    ddpdiag::SharedExchange exchange(std::move(own), shared_group::peers(members, processes, rank),
                                     shared_group::names(ranks), std::chrono::minutes(2));
    // Nobody ends before all others have opened its memory, as in training.
    write(folder / ("open." + std::to_string(rank)), "");
    for (std::size_t other = 0; other < ranks; ++other) {
        const fs::path file = folder / ("open." + std::to_string(other));
        await(file, [&] {
            std::error_code not_yet;
            return fs::exists(file, not_yet);
        });
    }
    const std::vector<Bucket> buckets = {Bucket(exchange, 3), Bucket(exchange, 300'000),
                                         Bucket(exchange, 5000)};
    for (std::uint64_t number = 0; number < passes; ++number) {
        const Bucket& bucket = buckets[number % buckets.size()];
        shared_group::fill(bucket, rank, number);
        exchange.announce(bucket.turn(number));
        if (number == dies_at) {
            std::_Exit(9);
        }
        exchange.complete();
        if (!shared_group::is_averaged(bucket, ranks, number)) {
            return "bad";
        }
    }
    return "good";
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv, argv + argc);
    const fs::path folder = arguments.at(1);
    std::string verdict;
    try {
        verdict = run(folder, std::stoul(arguments.at(2)), std::stoul(arguments.at(3)),
                      std::stoull(arguments.at(4)), std::stoull(arguments.at(5)));
    } catch (const std::exception& error) {
        verdict = error.what();
    }
    write(folder / ("verdict." + arguments.at(2)), verdict);
    return 0;
}
