// The reads and writes of a sum in shared memory without any agreement: what memory and cores allow.
//
// Usage: memory_limit FOLDER BYTES RANKS
// Each rank has a bucket in memory that all of them share, and sums its own part of all buckets into all of them, by
// the code that the package uses. A round is from when all have started until all are done (ranks.hpp).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/shared/sum.hpp"
#include "platform/shared_memory.hpp"
#include "ranks.hpp"

namespace {

constexpr std::uint64_t unit_bytes = 1U << 16U;

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: memory_limit FOLDER BYTES RANKS\n");
        return 2;
    }
    const std::uint64_t bytes = std::strtoull(argv[2], nullptr, 10);
    const std::uint64_t count = std::strtoull(argv[3], nullptr, 10);
    // The package's own memory, with its large pages; the other ranks inherit it.
    std::vector<ddpdiag::platform::SharedMemory> memories;
    memories.reserve(count);
    std::vector<std::byte*> buckets;
    buckets.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        memories.push_back(ddpdiag::platform::SharedMemory::create(bytes));
        buckets.push_back(memories.back().data());
    }
    programs::Ranks ranks(count);
    const std::uint64_t units = (bytes + unit_bytes - 1) / unit_bytes;
    const std::uint64_t begin = std::min(bytes, units * ranks.rank() / count * unit_bytes);
    const std::uint64_t end = std::min(bytes, units * (ranks.rank() + 1) / count * unit_bytes);
    const ddpdiag::SharedSum sum{.bytes = bytes, .average = false};
    ranks.rounds(argv[1], [&] {
        sum.run(buckets, begin, end);
        ranks.meet();
    });
    return 0;
}
