// What becomes of a writer whose file somebody else cuts short, or writes over, in the middle of a run.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/trace/trace_file.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

namespace fs = std::filesystem;
namespace platform = ddpdiag::platform;
using ddpdiag::TraceFile;
using platform::IfExists;
using platform::MappedFile;
using platform::MappingState;

// Of the system that has the largest ones; a cut within a page leaves all of it mapped.
constexpr std::size_t page = std::size_t{64} << 10U;
constexpr const char* refused = "Windows refuses to cut a mapped file short";

// False where the system refuses, as it should where it can.
bool cut(const fs::path& path, std::uintmax_t size = 0) {
    std::error_code error;
    fs::resize_file(path, size, error);
    return !error;
}

std::string on_disk(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

CASE("a mapped file cannot be cut short, or the stores beyond its end are lost and nothing else") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "cut", 4 * page, IfExists::refuse);
    CHECK_EQ(file.state(), MappingState::whole);
    const bool is_cut = cut(folder / "cut");
    for (std::size_t offset = 0; offset < file.size(); offset += 8) {
        file.data()[offset] = std::byte{'x'};
    }
    CHECK_EQ(file.state(), is_cut ? MappingState::cut_short : MappingState::whole);
    CHECK(file.data()[3 * page] == std::byte{'x'});
    CHECK_EQ(fs::file_size(folder / "cut"), is_cut ? 0 : 4 * page);
}

CASE("what lies before the cut is still in the file") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "cut", 4 * page, IfExists::refuse);
    file.data()[17] = std::byte{'a'};
    if (!cut(folder / "cut", page)) {
        SKIP(refused);
    }
    file.data()[18] = std::byte{'b'};
    CHECK_EQ(file.state(), MappingState::whole);
    file.data()[2 * page] = std::byte{'c'};
    CHECK_EQ(file.state(), MappingState::cut_short);
    file.data()[19] = std::byte{'d'};
    const std::string seen = on_disk(folder / "cut");
    REQUIRE(seen.size() == page);
    CHECK_EQ(seen.substr(17, 3), std::string("ab\0", 3));
}

CASE("a cut file does not concern the others") {
    const Scratch folder;
    const auto other = MappedFile::create(folder / "other", page, IfExists::refuse);
    {
        const auto file = MappedFile::create(folder / "cut", page, IfExists::refuse);
        if (!cut(folder / "cut")) {
            SKIP(refused);
        }
        file.data()[0] = std::byte{'x'};
        CHECK_EQ(file.state(), MappingState::cut_short);
    }
    other.data()[0] = std::byte{'o'};
    CHECK_EQ(other.state(), MappingState::whole);
    CHECK_EQ(on_disk(folder / "other")[0], 'o');
    // Guarded in the place of the one that has gone, perhaps at the same addresses.
    const auto next = MappedFile::create(folder / "next", page, IfExists::refuse);
    CHECK_EQ(next.state(), MappingState::whole);
    next.data()[0] = std::byte{'n'};
    CHECK_EQ(on_disk(folder / "next")[0], 'n');
}

CASE("a ring whose file was cut short works on") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto open = trace.open(records::from_seed(1, 1));
    CHECK(!trace.lost());
    if (!cut(folder / "t")) {
        SKIP(refused);
    }
    open.stamp(1, 5);
    open.set_flags(ddpdiag::flag_error);
    open.complete();
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
        CHECK(trace.write(records::from_seed(seed)));
    }
    CHECK(trace.lost());
    CHECK(!trace.inherited());
    CHECK_EQ(trace.counters().tickets, 2000U);
    trace.mark_closed();
    CHECK_EQ(fs::file_size(folder / "t"), 0U);
    CHECK_EQ(trace.header().pid, platform::process_id());
}

CASE("a file that was cut short and filled again is no longer ours, and is left alone") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto size = fs::file_size(folder / "t");
    if (!cut(folder / "t")) {
        SKIP(refused);
    }
    const std::string other(size, 'z');
    std::ofstream(folder / "t", std::ios::binary) << other;
    CHECK(trace.lost());
    trace.mark_closed();
    CHECK(on_disk(folder / "t") == other);
}

CASE("threads write on while the file is cut short under them") {
    for (int round = 0; round < 20; ++round) {
        const Scratch folder;
        TraceFile trace(folder / "t", records::small_ring());
        std::atomic<bool> stop{false};
        std::atomic<int> writing{0};
        std::vector<std::thread> writers;
        writers.reserve(4);
        for (std::uint64_t writer = 0; writer < 4; ++writer) {
            writers.emplace_back([&trace, &stop, &writing, writer] {
                for (std::uint64_t number = 0; !stop.load(); ++number) {
                    trace.write(records::from_seed((writer << 32U) | number));
                    const auto open = trace.open(records::from_seed(number, 1));
                    open.stamp(1, records::time_of(number, 1));
                    open.complete();
                    if (number == 100) {
                        ++writing;
                    }
                }
            });
        }
        while (writing.load() < 4) {
            std::this_thread::yield();
        }
        const bool is_cut = cut(folder / "t", round % 2 == 0 ? 0 : ddpdiag::header_size);
        const auto after = trace.counters().tickets;
        while (is_cut && !trace.lost()) {
            std::this_thread::yield();
        }
        stop.store(true);
        for (auto& writer : writers) {
            writer.join();
        }
        CHECK_EQ(trace.lost(), is_cut);
        CHECK(is_cut || trace.counters().tickets >= after);
    }
}

CASE("nobody finds a new file before it is filled") {
    const Scratch folder;
    bool found = true;
    const auto file = MappedFile::create(folder / "new", page, IfExists::refuse, [&](std::byte* data) {
        found = fs::exists(folder / "new");
        data[5] = std::byte{'f'};
    });
    CHECK_EQ(on_disk(folder / "new")[5], 'f');
    if (found) {
        SKIP("this system, or this folder's file system, has no files without a name");
    }
}

CASE("a file that cannot be filled leaves none behind, and what was there stays") {
    const Scratch folder;
    const auto broken = [](std::byte*) { throw std::runtime_error("full"); };
    CHECK_THROWS(std::runtime_error, MappedFile::create(folder / "new", page, IfExists::refuse, broken));
    CHECK(!fs::exists(folder / "new"));
    std::ofstream(folder / "old") << "precious";
    bool has_name = false;
    CHECK_THROWS(std::runtime_error,
                 MappedFile::create(folder / "old", page, IfExists::replace, [&](std::byte*) {
                     has_name = on_disk(folder / "old") != "precious";
                     throw std::runtime_error("full");
                 }));
    if (has_name) {
        SKIP("this system, or this folder's file system, has no files without a name");
    }
    CHECK_EQ(on_disk(folder / "old"), std::string("precious"));
}

CASE("a new trace has its header from its first moment") {
    const Scratch folder;
    const TraceFile trace(folder / "t", records::small_ring());
    CHECK_EQ(on_disk(folder / "t").substr(0, 8), std::string("DDPTRACE"));
    CHECK(!trace.lost());
}
