// Sums a bucket over the ranks in shared memory, as MPI_Allreduce would be called: from C++, in the calling thread.
//
// Usage: shared_exchange FOLDER BYTES RANKS IN_A_ROW
// Each rank has its own bucket. A round is so many sums in a row (ranks.hpp).
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/shared/exchange.hpp"
#include "platform/platform.hpp"
#include "ranks.hpp"

namespace {

using ddpdiag::SharedExchange;

// Where the ranks' memory is found.
struct Address {
    std::array<char, 64> name{};
    std::uint64_t process = 0;
};

std::unique_ptr<SharedExchange> join(programs::Ranks& ranks, Address* addresses) {
    ddpdiag::SharedMember own;
    Address& ours = addresses[ranks.rank()];
    own.name().copy(ours.name.data(), ours.name.size() - 1);
    ours.process = ddpdiag::platform::process_id();
    ranks.meet();
    std::vector<std::optional<ddpdiag::SharedPeer>> peers;
    std::vector<std::string> names;
    for (std::uint64_t other = 0; other < ranks.count(); ++other) {
        names.push_back("rank " + std::to_string(other));
        if (other == ranks.rank()) {
            peers.emplace_back();
        } else {
            peers.emplace_back(std::in_place, addresses[other].name.data(), addresses[other].process);
        }
    }
    auto exchange = std::make_unique<SharedExchange>(std::move(own), std::move(peers), std::move(names),
                                                     std::chrono::minutes(1));
    ranks.meet();
    return exchange;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: shared_exchange FOLDER BYTES RANKS IN_A_ROW\n");
        return 2;
    }
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t count = std::strtoull(argv[3], nullptr, 10);
    const std::uint64_t in_a_row = std::strtoull(argv[4], nullptr, 10);
    auto* const addresses = new (programs::shared(count * sizeof(Address))) Address[count];
    programs::Ranks ranks(count);
    const auto exchange = join(ranks, addresses);
    const auto block = std::make_shared<const ddpdiag::SharedBlock>(bytes);
    const std::size_t place = exchange->enter(block);
    std::uint64_t number = 0;
    ranks.rounds(argv[1], [&] {
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
    });
    return 0;
}
