#include "core/trace/trace_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "check.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

using ddpdiag::Record;
using ddpdiag::SlotState;
using ddpdiag::TraceFile;
using ddpdiag::TraceOptions;

// The file as another program sees it: bytes at the offsets that docs/trace-format.md gives.
class OnDisk {
public:
    explicit OnDisk(const std::filesystem::path& path) {
        std::ifstream file(path, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    template <typename Value>
    [[nodiscard]] Value at(std::size_t offset) const {
        Value value{};
        REQUIRE(offset + sizeof(Value) <= bytes_.size());
        std::memcpy(&value, bytes_.data() + offset, sizeof(Value));
        return value;
    }
    [[nodiscard]] std::string text(std::size_t offset, std::size_t size) const {
        const std::string field(bytes_.data() + offset, size);
        return field.substr(0, field.find('\0'));
    }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }

private:
    std::vector<char> bytes_;
};

TraceOptions third_of_four() {
    TraceOptions options = records::small_ring();
    options.rank = 2;
    options.world_size = 4;
    for (std::size_t i = 0; i < options.run_id.size(); ++i) {
        options.run_id[i] = static_cast<std::uint8_t>(200 + i);
    }
    return options;
}

}  // namespace

CASE("the header is where the format says") {
    const Scratch folder;
    const auto before = ddpdiag::platform::monotonic_ns();
    const TraceFile trace(folder / "t", third_of_four());
    const OnDisk disk(folder / "t");
    CHECK_EQ(disk.size(), 4096U + 512U * 128U);
    CHECK_EQ(disk.text(0, 8), std::string("DDPTRACE"));
    CHECK_EQ(disk.at<std::uint16_t>(8), 1);
    CHECK_EQ(disk.at<std::uint16_t>(10), 5);
    CHECK_EQ(disk.at<std::uint32_t>(12), 0x01020304U);
    CHECK_EQ(disk.at<std::uint32_t>(16), 4096U);
    CHECK_EQ(disk.at<std::uint32_t>(20), 128U);
    CHECK_EQ(disk.at<std::uint64_t>(24), 512U);
    CHECK_EQ(disk.at<std::uint64_t>(32), ddpdiag::platform::process_id());
    CHECK_EQ(disk.at<std::uint32_t>(40), 2U);
    CHECK_EQ(disk.at<std::uint32_t>(44), 4U);
    for (std::size_t i = 0; i < 16; ++i) {
        CHECK_EQ(disk.at<std::uint8_t>(48 + i), static_cast<std::uint8_t>(200 + i));
    }
    CHECK(disk.at<std::int64_t>(64) >= before);
    CHECK(disk.at<std::int64_t>(64) <= ddpdiag::platform::monotonic_ns());
    CHECK(std::abs(disk.at<std::int64_t>(72) - ddpdiag::platform::wall_ns()) < 10'000'000'000);
    CHECK_EQ(disk.text(80, 32), std::string(ddpdiag::platform::monotonic_clock_name()));
    CHECK_EQ(disk.text(112, 64), ddpdiag::platform::clock_identity());
    for (const std::size_t counter : {256U, 320U, 384U, 448U, 512U, 576U, 640U}) {
        CHECK_EQ(disk.at<std::uint64_t>(counter), 0U);
    }
}

CASE("the record is where the format says") {
    const Scratch folder;
    TraceFile trace(folder / "t", third_of_four());
    Record record{};
    record.kind = 1;
    record.dtype = 4;
    record.reduce_op = 2;
    record.flags = 0x80000001U;
    record.group = 0x1111111111111111;
    record.sequence = 0x2222222222222222;
    record.reference = 0x3333333333333333;
    record.bytes = 0x4444444444444444;
    record.step = 0x55555555;
    record.module = 0x66666666;
    record.index = 0x77777777;
    record.thread = 0x88888888;
    for (std::size_t i = 0; i < 8; ++i) {
        record.times[i] = -1000 - static_cast<std::int64_t>(i);
    }
    CHECK(trace.write(Record{}));
    CHECK(trace.write(record));
    const OnDisk disk(folder / "t");
    const std::size_t slot = 4096 + 128;
    CHECK_EQ(disk.at<std::uint64_t>(4096), (1U << 2U) | 3U);
    CHECK_EQ(disk.at<std::uint64_t>(slot), (2U << 2U) | 3U);
    CHECK_EQ(disk.at<std::uint16_t>(slot + 8), 1);
    CHECK_EQ(disk.at<std::uint8_t>(slot + 10), 4);
    CHECK_EQ(disk.at<std::uint8_t>(slot + 11), 2);
    CHECK_EQ(disk.at<std::uint32_t>(slot + 12), 0x80000001U);
    CHECK_EQ(disk.at<std::uint64_t>(slot + 16), 0x1111111111111111U);
    CHECK_EQ(disk.at<std::uint64_t>(slot + 24), 0x2222222222222222U);
    CHECK_EQ(disk.at<std::uint64_t>(slot + 32), 0x3333333333333333U);
    CHECK_EQ(disk.at<std::uint64_t>(slot + 40), 0x4444444444444444U);
    CHECK_EQ(disk.at<std::uint32_t>(slot + 48), 0x55555555U);
    CHECK_EQ(disk.at<std::uint32_t>(slot + 52), 0x66666666U);
    CHECK_EQ(disk.at<std::uint32_t>(slot + 56), 0x77777777U);
    CHECK_EQ(disk.at<std::uint32_t>(slot + 60), 0x88888888U);
    for (std::size_t i = 0; i < 8; ++i) {
        CHECK_EQ(disk.at<std::int64_t>(slot + 64 + 8 * i), -1000 - static_cast<std::int64_t>(i));
    }
    CHECK_EQ(disk.at<std::uint64_t>(slot + 128), 0U);
    CHECK_EQ(disk.at<std::uint64_t>(256), 2U);
}

CASE("the numbers of the kinds and flags are the format's") {
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::bucket), 1);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::collective), 2);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::backward), 3);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::step), 4);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::parameter), 5);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::error), 6);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::gradient), 7);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::usage), 8);
    CHECK_EQ(static_cast<int>(ddpdiag::Kind::phase), 10);
    CHECK_EQ(+ddpdiag::flag_error, 1U);
    CHECK_EQ(+ddpdiag::flag_abandoned, 64U);
    CHECK_EQ(+ddpdiag::flag_foreign, 512U);
    CHECK_EQ(static_cast<int>(ddpdiag::SlotState::writing), 1);
    CHECK_EQ(static_cast<int>(ddpdiag::SlotState::in_flight), 2);
    CHECK_EQ(static_cast<int>(ddpdiag::SlotState::complete), 3);
}

CASE("what is written is read back, slot by slot") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    CHECK_EQ(trace.capacity(), 512U);
    for (std::uint64_t seed = 0; seed < 512; ++seed) {
        CHECK(trace.write(records::from_seed(seed)));
    }
    for (std::size_t index = 0; index < 512; ++index) {
        const Record seen = records::in_slot(trace, index);
        CHECK_EQ(seen.sequence, index);
        CHECK_EQ(records::ticket_of(seen), index);
        CHECK_EQ(records::state_of(seen), SlotState::complete);
        CHECK(records::same_body(seen));
        CHECK(records::same_times(seen, true));
    }
}

CASE("an unused slot reads as nothing") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    CHECK(!trace.read(0).has_value());
    trace.write(records::from_seed(1));
    CHECK(trace.read(0).has_value());
    CHECK(!trace.read(1).has_value());
}

CASE("the caller's word is not used: the ring sets its own") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    Record record = records::from_seed(5);
    record.word = ~std::uint64_t{0};
    trace.write(record);
    const auto operation = trace.open(record);
    CHECK_EQ(records::in_slot(trace, 0).word, (1U << 2U) | 3U);
    CHECK_EQ(records::in_slot(trace, 1).word, (2U << 2U) | 2U);
    operation.complete();
    CHECK_EQ(records::in_slot(trace, 1).word, (2U << 2U) | 3U);
}

CASE("an operation in flight is seen at once, and what is stamped later as well") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto operation = trace.open(records::from_seed(9, 2));
    REQUIRE(static_cast<bool>(operation));
    CHECK_EQ(operation.ticket(), 0U);
    const OnDisk opened(folder / "t");
    CHECK_EQ(opened.at<std::uint64_t>(4096) & 3U, 2U);
    CHECK_EQ(opened.at<std::int64_t>(4096 + 64 + 8), records::time_of(9, 1));
    CHECK_EQ(opened.at<std::int64_t>(4096 + 64 + 16), 0);

    operation.stamp(2, 1234);
    operation.set_flags(ddpdiag::flag_abandoned);
    const OnDisk stamped(folder / "t");
    CHECK_EQ(stamped.at<std::uint64_t>(4096) & 3U, 2U);
    CHECK_EQ(stamped.at<std::int64_t>(4096 + 64 + 16), 1234);
    CHECK_EQ(stamped.at<std::uint32_t>(4096 + 12), records::from_seed(9).flags | ddpdiag::flag_abandoned);

    operation.complete();
    CHECK_EQ(OnDisk(folder / "t").at<std::uint64_t>(4096) & 3U, 3U);
}

CASE("an empty operation takes every call and does nothing") {
    const ddpdiag::Operation nothing;
    CHECK(!static_cast<bool>(nothing));
    nothing.stamp(0, 1);
    nothing.set_flags(1);
    nothing.complete();
}

CASE("a closed trace says so, and may still be written to") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    const auto late = trace.open(records::from_seed(1));
    trace.mark_closed();
    CHECK_EQ(OnDisk(folder / "t").at<std::uint64_t>(512), 1U);
    late.complete();
    CHECK(trace.write(records::from_seed(2)));
    CHECK_EQ(trace.counters().tickets, 2U);
}

CASE("how the process ends is noted once") {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    trace.mark_ended(ddpdiag::ProcessEnd::exception);
    CHECK_EQ(OnDisk(folder / "t").at<std::uint64_t>(640), 2U);
    trace.mark_ended(ddpdiag::ProcessEnd::orderly);
    CHECK_EQ(OnDisk(folder / "t").at<std::uint64_t>(640), 2U);
    CHECK_EQ(OnDisk(folder / "t").at<std::uint64_t>(512), 0U);
}

CASE("the records stay in the file when the trace is gone") {
    const Scratch folder;
    {
        TraceFile trace(folder / "t", records::small_ring());
        trace.write(records::from_seed(3));
        (void)trace.open(records::from_seed(4, 1));
    }
    const OnDisk disk(folder / "t");
    CHECK_EQ(disk.at<std::uint64_t>(4096) & 3U, 3U);
    CHECK_EQ(disk.at<std::uint64_t>(4096 + 24), 3U);
    CHECK_EQ(disk.at<std::uint64_t>(4096 + 128) & 3U, 2U);
    CHECK_EQ(disk.at<std::uint64_t>(4096 + 128 + 24), 4U);
    CHECK_EQ(disk.at<std::uint64_t>(256), 2U);
    CHECK_EQ(disk.at<std::uint64_t>(512), 0U);
}
