#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "core/trace/trace_file.hpp"
#include "records.hpp"
#include "scratch.hpp"

namespace {

using ddpdiag::Record;
using ddpdiag::TraceFile;
using ddpdiag::TraceOptions;
using ddpdiag::platform::Cause;
using ddpdiag::platform::SystemError;

std::string text_of(const Record& part) {
    std::string text(ddpdiag::text_size, '\0');
    std::memcpy(text.data(), part.times, ddpdiag::text_size);
    return text.substr(0, text.find('\0'));
}

// Writes `text` as the error of a failed operation and gives back what the ring has of it.
std::string through_the_ring(const std::string& text, std::size_t parts) {
    const Scratch folder;
    TraceFile trace(folder / "t", records::small_ring());
    trace.write(records::from_seed(1));
    const Record failed = records::from_seed(77);
    const auto operation = trace.open(failed);
    trace.write_error(failed, operation.ticket(), text);
    CHECK_EQ(trace.counters().tickets, 2 + parts);
    std::string joined;
    for (std::size_t part = 0; part < parts; ++part) {
        const Record seen = records::in_slot(trace, 2 + part);
        CHECK_EQ(seen.kind, static_cast<std::uint16_t>(ddpdiag::Kind::error));
        CHECK_EQ(records::state_of(seen), ddpdiag::SlotState::complete);
        CHECK_EQ(seen.flags, +ddpdiag::flag_error);
        CHECK_EQ(seen.reference, operation.ticket());
        CHECK_EQ(seen.index, part);
        CHECK_EQ(seen.group, failed.group);
        CHECK_EQ(seen.step, failed.step);
        CHECK_EQ(seen.module, failed.module);
        CHECK_EQ(seen.thread, ddpdiag::platform::thread_id());
        CHECK_EQ(seen.sequence, 0U);
        joined += text_of(seen);
    }
    CHECK(!trace.read(2 + parts).has_value());
    return joined;
}

std::string pattern(std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) {
        text += static_cast<char>('!' + i % 90);
    }
    return text;
}

}  // namespace

CASE("no text, no error record") {
    CHECK_EQ(through_the_ring("", 0), std::string());
}

CASE("a short error is one part, zero-padded") {
    CHECK_EQ(through_the_ring("Connection reset by peer", 1), std::string("Connection reset by peer"));
}

CASE("parts are full up to their last byte") {
    for (const std::size_t length : {63U, 64U, 65U, 128U, 129U, 1000U, 1024U}) {
        CHECK_EQ(through_the_ring(pattern(length), (length + 63) / 64), pattern(length));
    }
}

CASE("a very long error is cut at 16 parts") {
    CHECK_EQ(through_the_ring(pattern(5000), 16), pattern(1024));
}

CASE("a capacity that cannot be right is refused before a file is made") {
    const Scratch folder;
    for (const std::size_t capacity : {std::size_t{0}, std::size_t{65535}, (std::size_t{1} << 36U) + 1}) {
        TraceOptions options;
        options.capacity_bytes = capacity;
        CHECK_THROWS_WITH(
            std::invalid_argument, TraceFile(folder / "t", options), [&](const std::invalid_argument& error) {
                CHECK(std::string(error.what()).find(std::to_string(capacity)) != std::string::npos);
            });
    }
    CHECK(!std::filesystem::exists(folder / "t"));
}

CASE("a capacity between two records is rounded down") {
    const Scratch folder;
    TraceOptions options;
    options.capacity_bytes = (std::size_t{64} << 10U) + 127;
    const TraceFile trace(folder / "t", options);
    CHECK_EQ(trace.capacity(), 512U);
    CHECK_EQ(std::filesystem::file_size(folder / "t"), 4096U + 512U * 128U);
}

CASE("a rank must be below the world size") {
    const Scratch folder;
    TraceOptions options = records::small_ring();
    options.rank = 2;
    options.world_size = 2;
    CHECK_THROWS(std::invalid_argument, TraceFile(folder / "t", options));
    options.rank = 0;
    options.world_size = 0;
    CHECK_THROWS(std::invalid_argument, TraceFile(folder / "t", options));
    CHECK(!std::filesystem::exists(folder / "t"));
}

CASE("an existing trace is kept, or replaced on request") {
    const Scratch folder;
    {
        TraceFile first(folder / "t", records::small_ring());
        first.write(records::from_seed(1));
    }
    CHECK_THROWS_WITH(SystemError, TraceFile(folder / "t", records::small_ring()),
                      [](const SystemError& error) { CHECK_EQ(error.cause(), Cause::exists); });
    TraceOptions options = records::small_ring();
    options.if_exists = ddpdiag::platform::IfExists::replace;
    const TraceFile second(folder / "t", options);
    CHECK(!second.read(0).has_value());
}

CASE("a folder that is missing is 'not found'") {
    const Scratch folder;
    CHECK_THROWS_WITH(SystemError, TraceFile(folder.path() / "none" / "t", records::small_ring()),
                      [](const SystemError& error) { CHECK_EQ(error.cause(), Cause::not_found); });
}
