#include "core/trace/pulse.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "check.hpp"
#include "platform/beside.hpp"
#include "platform/platform.hpp"

namespace {

using ddpdiag::Pulse;
using namespace std::chrono_literals;

constexpr unsigned bit(int signal) {
    return 1U << static_cast<unsigned>(signal - 1);
}

// On the calling thread, the first 32; 0: none, or the system does not tell.
unsigned blocked_signals() {
    std::ifstream status("/proc/self/task/" + std::to_string(ddpdiag::platform::thread_id()) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("SigBlk:")) {
            return static_cast<unsigned>(std::stoull(line.substr(line.find('\t')), nullptr, 16));
        }
    }
    return 0;
}

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
    CHECK(pulse.stop(1min));
    CHECK_EQ(beats.load(), 2);
    CHECK(pulse.stop(1min));
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
    CHECK(pulse.stop(1min));
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
    CHECK(pulse.stop(1min));
    CHECK(thread != ddpdiag::platform::thread_id());
    CHECK(name.empty() || name == "ddpdiag-pulse");
}

CASE("a beat that does not end is waited for no longer than that") {
    // The thread uses them for as long as the test's process lives.
    static std::latch never(1);
    std::latch first(1);
    auto* const pulse = std::make_unique<Pulse>(
                            [&] {
                                first.count_down();
                                never.wait();
                            },
                            1h)
                            .release();
    first.wait();
    CHECK(!pulse->stop(10ms));
    CHECK(pulse->stop(10ms));
}

CASE("a thread of ours leaves signals to the program's own, and keeps its faults") {
    const unsigned before = blocked_signals();
    unsigned seen = 0;
    ddpdiag::platform::start_beside([&seen] { seen = blocked_signals(); }).join();
    if (seen == 0) {
        SKIP("this system sends no signals to threads, or does not say which are blocked");
    }
    CHECK_EQ(seen & (bit(SIGINT) | bit(SIGTERM)), bit(SIGINT) | bit(SIGTERM));
    CHECK_EQ(seen & (bit(SIGABRT) | bit(SIGFPE) | bit(SIGILL) | bit(SIGSEGV)), 0U);
    CHECK_EQ(blocked_signals(), before);
}
