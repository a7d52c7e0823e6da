#include "platform/shared_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "check.hpp"
#include "platform/process_watch.hpp"
#include "platform/shared_bell.hpp"

namespace {

namespace platform = ddpdiag::platform;
using platform::ProcessWatch;
using platform::SharedBell;
using platform::SharedMemory;
using platform::SystemError;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

}  // namespace

CASE("shared memory is zeros, and what one writes the other one reads") {
    const auto made = SharedMemory::create(100'000);
    CHECK_EQ(made.size(), 100'000U);
    CHECK(std::all_of(made.data(), made.data() + made.size(), [](std::byte b) { return b == std::byte{0}; }));
    const auto opened = SharedMemory::open(made.name(), 100'000);
    REQUIRE(opened.data() != made.data());
    made.data()[99'999] = std::byte{7};
    CHECK_EQ(opened.data()[99'999], std::byte{7});
    opened.data()[0] = std::byte{8};
    CHECK_EQ(made.data()[0], std::byte{8});
}

CASE("what is mapped stays when its maker has let go of it") {
    std::optional<SharedMemory> made = SharedMemory::create(4096);
    made->data()[5] = std::byte{3};
    const auto opened = SharedMemory::open(made->name(), 4096);
    made.reset();
    CHECK_EQ(opened.data()[5], std::byte{3});
    opened.data()[5] = std::byte{4};
}

CASE("shared memory moves, and keeps its bytes") {
    auto first = SharedMemory::create(4096);
    first.data()[1] = std::byte{9};
    const SharedMemory second = std::move(first);
    CHECK_EQ(second.data()[1], std::byte{9});
    auto third = SharedMemory::create(4096);
    third = SharedMemory::open(second.name(), 4096);
    CHECK_EQ(third.data()[1], std::byte{9});
}

CASE("a name from elsewhere opens nothing but shared memory") {
    for (const char* name : {"", ".", "1.", ".1", "x.y", "1.2.3", "-1.0", "1.99999999999", "../../etc/passwd",
                             "Local\\pyddpdiag-../x", "Local\\other", "1.2 "}) {
        CHECK_THROWS(SystemError, static_cast<void>(SharedMemory::open(name, 64)));
    }
    // A descriptor or handle that is there but is no such memory: standard input, a program.
    const std::string process = std::to_string(platform::process_id());
    CHECK_THROWS(SystemError, static_cast<void>(SharedMemory::open(process + ".0", 64)));
}

CASE("memory that is smaller than it should be is refused") {
    const auto made = SharedMemory::create(65'536);
    CHECK_THROWS(SystemError, static_cast<void>(SharedMemory::open(made.name(), 70'000)));
    CHECK_EQ(SharedMemory::open(made.name(), 4096).size(), 4096U);
}

// Far more, so that no attempt to reserve it could get anywhere.
CASE("more memory than there is gives an error when it is made") {
    CHECK_THROWS(SystemError, static_cast<void>(SharedMemory::create(std::size_t{1} << 50U)));
}

CASE("a bell wakes who sleeps, and is not missed if it rings before") {
    const auto memory = SharedMemory::create(4096);
    auto& rings = *new (memory.data()) std::atomic<std::uint32_t>(0);
    const auto other_memory = SharedMemory::open(memory.name(), 4096);
    auto& other = *reinterpret_cast<std::atomic<std::uint32_t>*>(other_memory.data());
    const auto bell = SharedBell::create(memory.name());
    const auto rope = SharedBell::open(memory.name());

    const std::uint32_t seen = rings.load();
    other.fetch_add(1);
    rope.wake(other);
    const auto before = steady_clock::now();
    bell.wait(rings, seen, milliseconds(60'000));
    CHECK(steady_clock::now() - before < milliseconds(30'000));

    std::thread ringer([&] {
        std::this_thread::sleep_for(milliseconds(50));
        other.fetch_add(1);
        rope.wake(other);
    });
    while (rings.load() == 1) {
        bell.wait(rings, 1, milliseconds(60'000));
    }
    ringer.join();
    CHECK_EQ(rings.load(), 2U);
    CHECK(steady_clock::now() - before < milliseconds(60'000));
}

CASE("a bell that nobody rings ends the wait by itself") {
    const auto memory = SharedMemory::create(4096);
    auto& rings = *new (memory.data()) std::atomic<std::uint32_t>(0);
    const auto bell = SharedBell::create(memory.name());
    const auto before = steady_clock::now();
    bell.wait(rings, 0, milliseconds(20));
    CHECK(steady_clock::now() - before >= milliseconds(10));
}

CASE("a watch sees that this process runs, and that there is no such process") {
    const ProcessWatch watch(platform::process_id());
    CHECK(watch.runs());
    CHECK_THROWS(SystemError, ProcessWatch(0x7ffffff0));
}
