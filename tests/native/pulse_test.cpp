#include "core/trace/pulse.hpp"

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.hpp"
#include "platform/platform.hpp"

namespace {

using ddpdiag::Pulse;
using namespace std::chrono_literals;

}  // namespace

CASE("a pulse beats at once, and once more when it is stopped") {
    std::atomic<int> beats = 0;
    std::latch first(1);
    Pulse pulse(
        [&] {
            if (beats++ == 0) {
                first.count_down();
            }
        },
        1h);
    first.wait();
    pulse.stop();
    CHECK_EQ(beats.load(), 2);
    pulse.stop();
    CHECK_EQ(beats.load(), 2);
}

CASE("a pulse beats again and again") {
    std::latch many(20);
    std::atomic<int> left = 20;
    const Pulse pulse(
        [&] {
            if (left-- > 0) {
                many.count_down();
            }
        },
        1ms);
    many.wait();
}

CASE("a pulse that is dropped has stopped") {
    auto beats = std::make_unique<std::atomic<int>>(0);
    {
        const Pulse pulse([&] { ++*beats; }, 0ms);
    }
    beats.reset();  // a beat from now on would be a use after free
}

CASE("what a beat throws ends the beats and nothing else") {
    std::atomic<int> beats = 0;
    Pulse pulse(
        [&] {
            ++beats;
            throw std::runtime_error("no");
        },
        0ms);
    pulse.stop();
    CHECK_EQ(beats.load(), 1);
}

CASE("beats come on a thread of their own, which has a name") {
    std::string name;
    std::uint32_t thread = 0;
    Pulse pulse(
        [&] {
            name = ddpdiag::platform::thread_name();
            thread = ddpdiag::platform::thread_id();
        },
        1h);
    pulse.stop();
    CHECK(thread != ddpdiag::platform::thread_id());
    CHECK(name.empty() || name == "ddpdiag-pulse");
}
