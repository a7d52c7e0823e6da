// A closed trace gives its file up when nothing is in flight, whatever comes later.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/trace/trace_file.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

namespace fs = std::filesystem;
using ddpdiag::Header;
using ddpdiag::ProcessEnd;
using ddpdiag::Record;
using ddpdiag::SlotState;
using ddpdiag::TraceFile;

std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Header header_in(const fs::path& path) {
    Header header{};
    const std::string bytes = content(path);
    REQUIRE(bytes.size() > sizeof header);
    std::memcpy(&header, bytes.data(), sizeof header);
    return header;
}

std::vector<Record> records_in(const fs::path& path) {
    const std::string bytes = content(path);
    std::vector<Record> result((bytes.size() - ddpdiag::header_size) / sizeof(Record));
    std::memcpy(result.data(), bytes.data() + ddpdiag::header_size, result.size() * sizeof(Record));
    return result;
}

// Only Linux says so; elsewhere, that the folder can be removed does.
bool says_what_is_mapped(const fs::path& path) {
    return path.string().front() == '/' && fs::exists("/proc/self/maps");
}

// By the folder: a file that got its name when it was complete has another one in that list.
bool is_mapped(const fs::path& path) {
    const std::string folder = path.parent_path().string() + "/";
    return says_what_is_mapped(path) && content("/proc/self/maps").find(folder) != std::string::npos;
}

bool whole_or_unused(const Record& record) {
    return record.word == 0 ||
           (records::state_of(record) == SlotState::complete && records::same_body(record));
}

// Four threads that have begun to record, and go on for a while after the close.
class Writers {
public:
    explicit Writers(TraceFile& trace) {
        for (std::uint64_t writer = 1; writer <= 4; ++writer) {
            threads_.emplace_back([this, &trace, writer] { record(trace, writer << 32U); });
        }
        while (recording_.load() < 4) {
            std::this_thread::yield();
        }
    }
    void join_after_close() {
        closed_.store(true);
        for (auto& thread : threads_) {
            thread.join();
        }
    }

private:
    void record(TraceFile& trace, std::uint64_t first) {
        constexpr std::uint64_t enough = 20;
        std::uint64_t seed = first;
        for (int left = 100; left > 0; left -= closed_.load() ? 1 : 0) {
            ++seed;
            trace.write(records::from_seed(seed));
            const auto operation = trace.open(records::from_seed(seed, 1));
            operation.stamp(1, records::time_of(seed, 1));
            operation.complete();
            if (seed == first + enough) {
                ++recording_;
            }
        }
    }

    std::atomic<int> recording_{0};
    std::atomic<bool> closed_{false};
    std::vector<std::thread> threads_;
};

// Another thread stamps an operation that has ended, all the time.
void record_and_close(TraceFile& trace) {
    const auto ended = trace.open(records::from_seed(0, 1));
    ended.complete();
    std::atomic<bool> stop{false};
    std::thread late([&] {
        while (!stop.load()) {
            ended.stamp(1, records::time_of(0, 1));
            ended.complete();
            static_cast<void>(trace.counters());
            static_cast<void>(trace.lost());
        }
    });
    Writers writers(trace);
    trace.close();
    writers.join_after_close();
    stop.store(true);
    late.join();
}

}  // namespace

CASE("a closed trace is no longer mapped, and its folder can be removed") {
    const Scratch folder;
    fs::create_directory(folder / "run");
    const fs::path path = folder / "run" / "t";
    TraceFile trace(path, records::small_ring());
    trace.write(records::from_seed(1));
    CHECK_EQ(is_mapped(path), says_what_is_mapped(path));
    trace.mark_closed();
    trace.close();
    trace.close();
    CHECK(!is_mapped(path));
    CHECK_EQ(header_in(path).closed, 1U);
    CHECK_EQ(records_in(path)[0].sequence, 1U);
    fs::remove(path);
    CHECK(fs::remove(folder / "run"));
}

CASE("what is in flight when it closes still comes to its end, and what comes later is dropped") {
    const Scratch folder;
    const fs::path path = folder / "t";
    TraceFile trace(path, records::small_ring());
    const auto first = trace.open(records::from_seed(1, 1));
    const auto second = trace.open(records::from_seed(2, 1));
    trace.close();
    first.complete();
    CHECK(trace.write(records::from_seed(3)));
    second.stamp(1, 77);
    second.complete();
    CHECK(!is_mapped(path));
    const std::string before = content(path);
    // A worker that is late with its last words.
    first.stamp(2, 5);
    second.stamp(2, 5);
    second.set_flags(ddpdiag::flag_error);
    second.complete();
    CHECK(!trace.write(records::from_seed(4)));
    CHECK(!trace.open(records::from_seed(5)));
    trace.write_error(records::from_seed(1), 0, "too late");
    trace.beat(1);
    trace.mark_closed();
    CHECK(content(path) == before);
    CHECK(!trace.lost());
    CHECK(!trace.read(0));
    CHECK_EQ(trace.counters().tickets, 3U);
    const auto records = records_in(path);
    CHECK_EQ(records[1].times[1], 77);
    for (std::size_t index = 0; index < 3; ++index) {
        CHECK(records::state_of(records[index]) == SlotState::complete);
    }
}

CASE("how the process ends is noted in a file that was given up, if it is still there and ours") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    TraceFile replaced(folder / "r", records::small_ring());
    TraceFile removed(folder / "gone", records::small_ring());
    for (TraceFile* each : {&trace, &replaced, &removed}) {
        each->close();
    }
    fs::remove(folder / "gone");
    auto other = records::small_ring();
    other.if_exists = ddpdiag::platform::IfExists::replace;
    other.run_id[0] = 9;
    const TraceFile newer(folder / "r", other);
    for (TraceFile* each : {&trace, &replaced, &removed}) {
        each->mark_ended(ProcessEnd::exception);
        each->mark_ended(ProcessEnd::orderly);
    }
    CHECK_EQ(header_in(folder / "t").ended, static_cast<std::uint64_t>(ProcessEnd::exception));
    CHECK_EQ(header_in(folder / "r").ended, static_cast<std::uint64_t>(ProcessEnd::not_seen));
    CHECK(!fs::exists(folder / "gone"));
}

CASE("threads record on while it closes under them, and no record is torn") {
    for (int round = 0; round < 50; ++round) {
        const Scratch folder;
        const fs::path path = folder / "t";
        TraceFile trace(path, records::small_ring());
        record_and_close(trace);
        CHECK(!trace.write(records::from_seed(1)));
        CHECK(!is_mapped(path));
        const auto records = records_in(path);
        CHECK(std::ranges::all_of(records, whole_or_unused));
        CHECK_EQ(trace.counters().tickets, header_in(path).tickets);
    }
}
