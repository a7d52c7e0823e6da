#include "platform/platform.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "platform/usage.hpp"
#include "scratch.hpp"

namespace {

namespace fs = std::filesystem;
namespace platform = ddpdiag::platform;
using platform::Cause;
using platform::IfExists;
using platform::MappedFile;
using platform::SystemError;

constexpr std::size_t page = 4096;

std::vector<char> bytes_on_disk(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string text_on_disk(const fs::path& path) {
    const auto bytes = bytes_on_disk(path);
    return {bytes.begin(), bytes.end()};
}

bool on_windows() {
    return std::string(platform::monotonic_clock_name()) == "QueryPerformanceCounter";
}

bool mentions(const SystemError& error, const std::string& text) {
    return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace

CASE("a new mapping is all zeros and of the size asked for") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "new", 5 * page, IfExists::refuse);
    CHECK_EQ(file.size(), 5 * page);
    CHECK(std::all_of(file.data(), file.data() + file.size(), [](std::byte b) { return b == std::byte{0}; }));
    CHECK_EQ(fs::file_size(folder / "new"), 5 * page);
}

CASE("a size that is no multiple of a page is kept to the byte") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "odd", 3 * page + 128, IfExists::refuse);
    CHECK_EQ(file.size(), 3 * page + 128);
    CHECK_EQ(fs::file_size(folder / "odd"), 3 * page + 128);
    file.data()[file.size() - 1] = std::byte{7};
    CHECK_EQ(bytes_on_disk(folder / "odd").back(), char{7});
}

CASE("what is stored is in the file while the mapping is still open") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "live", 2 * page, IfExists::refuse);
    file.data()[0] = std::byte{'a'};
    file.data()[page + 1] = std::byte{'b'};
    const auto seen = bytes_on_disk(folder / "live");
    REQUIRE(seen.size() == 2 * page);
    CHECK_EQ(seen[0], 'a');
    CHECK_EQ(seen[page + 1], 'b');
}

CASE("what was stored stays in the file after the mapping is gone") {
    const Scratch folder;
    {
        MappedFile::create(folder / "kept", page, IfExists::refuse).data()[17] = std::byte{'x'};
    }
    const auto seen = bytes_on_disk(folder / "kept");
    REQUIRE(seen.size() == page);
    CHECK_EQ(seen[17], 'x');
}

CASE("an existing file is refused and left as it is") {
    const Scratch folder;
    std::ofstream(folder / "mine") << "precious";
    CHECK_THROWS_WITH(SystemError, MappedFile::create(folder / "mine", page, IfExists::refuse),
                      [](const SystemError& error) {
                          CHECK_EQ(error.cause(), Cause::exists);
                          CHECK(mentions(error, "mine"));
                      });
    CHECK_EQ(text_on_disk(folder / "mine"), std::string("precious"));
}

CASE("an existing file is replaced on request") {
    const Scratch folder;
    std::ofstream(folder / "old") << "old";
    const auto file = MappedFile::create(folder / "old", page, IfExists::replace);
    CHECK_EQ(fs::file_size(folder / "old"), page);
    CHECK_EQ(bytes_on_disk(folder / "old")[0], char{0});
}

CASE("to replace a file that isn't there is to make it") {
    const Scratch folder;
    const auto file = MappedFile::create(folder / "none", page, IfExists::replace);
    CHECK_EQ(fs::file_size(folder / "none"), page);
}

CASE("a folder that is missing is named") {
    const Scratch folder;
    CHECK_THROWS_WITH(SystemError, MappedFile::create(folder.path() / "no" / "file", page, IfExists::refuse),
                      [](const SystemError& error) {
                          CHECK_EQ(error.cause(), Cause::not_found);
                          CHECK(mentions(error, "file"));
                      });
}

CASE("a file where a folder should be is 'not found'") {
    const Scratch folder;
    std::ofstream(folder / "plain") << "text";
    CHECK_THROWS_WITH(SystemError,
                      MappedFile::create(folder.path() / "plain" / "file", page, IfExists::refuse),
                      [](const SystemError& error) { CHECK_EQ(error.cause(), Cause::not_found); });
}

CASE("a folder in the file's place is an error in both ways, and is left there") {
    const Scratch folder;
    fs::create_directory(folder / "folder");
    CHECK_THROWS(SystemError, MappedFile::create(folder / "folder", page, IfExists::refuse));
    CHECK_THROWS(SystemError, MappedFile::create(folder / "folder", page, IfExists::replace));
    CHECK(fs::is_directory(folder / "folder"));
}

CASE("a place that nobody may write to is 'permission'") {
    // Linux: even root makes no file in sysfs. Elsewhere a read-only file that is to be replaced (its
    // folder's permissions would let Linux remove it).
    const Scratch folder;
    fs::path target = "/sys/pyddpdiag";
    IfExists if_exists = IfExists::refuse;
    if (on_windows()) {
        target = folder / "read-only";
        if_exists = IfExists::replace;
        std::ofstream(target) << "text";
        fs::permissions(target, fs::perms::owner_read);
    }
    CHECK_THROWS_WITH(SystemError, MappedFile::create(target, page, if_exists),
                      [](const SystemError& error) { CHECK_EQ(error.cause(), Cause::permission); });
    std::error_code ignored;
    fs::permissions(target, fs::perms::owner_all, ignored);
}

CASE("more than the disk holds is 'no space' at once, and leaves no file") {
    const Scratch folder;
    // So much that no file system tries: one that filled up first would disturb the whole machine.
    constexpr std::size_t bytes = std::size_t{1} << 50U;
    CHECK_THROWS_WITH(SystemError, MappedFile::create(folder / "huge", bytes, IfExists::refuse),
                      [](const SystemError& error) {
                          CHECK_EQ(error.cause(), Cause::no_space);
                          CHECK(mentions(error, "huge"));
                      });
    CHECK(!fs::exists(folder / "huge"));
}

CASE("a path beyond ASCII works, and stands in the error as UTF-8") {
    const Scratch folder;
    const fs::path path = folder.path() / fs::path(u8"Größe-日本");
    const auto file = MappedFile::create(path, page, IfExists::refuse);
    CHECK(fs::exists(path));
    CHECK_THROWS_WITH(SystemError, MappedFile::create(path, page, IfExists::refuse),
                      [](const SystemError& error) {
                          CHECK(mentions(error,
                                         "Gr\xc3\xb6\xc3\x9f"
                                         "e-\xe6\x97\xa5\xe6\x9c\xac"));
                      });
}

CASE("a new file is for its owner only") {
    if (on_windows()) {
        SKIP("on Windows a new file takes over the list of rights of its folder");
    }
    const Scratch folder;
    const auto file = MappedFile::create(folder / "mine", page, IfExists::refuse);
    const auto rights = fs::status(folder / "mine").permissions();
    CHECK((rights & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
    CHECK((rights & fs::perms::owner_all) == (fs::perms::owner_read | fs::perms::owner_write));
}

CASE("moving hands the mapping over") {
    const Scratch folder;
    auto first = MappedFile::create(folder / "a", page, IfExists::refuse);
    const auto* const data = first.data();
    MappedFile second(std::move(first));
    CHECK(second.data() == data);
    auto third = MappedFile::create(folder / "b", 2 * page, IfExists::refuse);
    third = std::move(second);
    CHECK(third.data() == data);
    CHECK_EQ(third.size(), page);
    third.data()[0] = std::byte{1};
}

CASE("the monotonic clock goes on in nanoseconds and never back") {
    const auto begin = platform::monotonic_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto slept = platform::monotonic_ns() - begin;
    CHECK(slept >= 19'000'000);
    CHECK(slept < 20'000'000'000);
    auto last = platform::monotonic_ns();
    for (int i = 0; i < 100'000; ++i) {
        const auto now = platform::monotonic_ns();
        if (now < last) {
            CHECK_EQ(now, last);
        }
        last = now;
    }
    CHECK(!std::string(platform::monotonic_clock_name()).empty());
    CHECK(std::string(platform::monotonic_clock_name()).size() < 32);
}

CASE("the monotonic clock is one clock for all threads") {
    std::int64_t there = 0;
    const auto before = platform::monotonic_ns();
    std::thread([&] { there = platform::monotonic_ns(); }).join();
    CHECK(before <= there);
    CHECK(there <= platform::monotonic_ns());
}

CASE("the wall clock agrees with the standard library's") {
    const auto standard = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
    const auto apart = platform::wall_ns() - standard;
    CHECK(apart >= -50'000'000);
    CHECK(apart < 1'000'000'000);
}

CASE("the clock's identity is stable, not empty, and fits its field") {
    const auto identity = platform::clock_identity();
    CHECK_EQ(identity, platform::clock_identity());
    CHECK(identity.size() >= 8);
    CHECK(identity.size() < 64);
}

CASE("threads have ids of their own, the process has one") {
    const auto here = platform::thread_id();
    CHECK_EQ(here, platform::thread_id());
    std::uint32_t there = 0;
    std::uint64_t process = 0;
    std::thread([&] {
        there = platform::thread_id();
        process = platform::process_id();
    }).join();
    CHECK(there != 0);
    CHECK(there != here);
    CHECK_EQ(process, platform::process_id());
}

CASE("a thread's name is its own and can be read back") {
    const auto before = platform::thread_name();
    std::string there;
    bool kept = false;
    std::thread([&] {
        kept = platform::set_thread_name("ddp probe");
        there = platform::thread_name();
    }).join();
    CHECK(kept);
    CHECK_EQ(there, std::string("ddp probe"));
    CHECK_EQ(platform::thread_name(), before);
}

CASE("a long name keeps whole characters") {
    const std::string name = "fourteen bytes\xc3\xb6 and more";
    std::string there;
    std::thread([&] {
        CHECK(platform::set_thread_name(name));
        there = platform::thread_name();
    }).join();
    CHECK(there == name || there == "fourteen bytes");
}

CASE("the last-level cache has the size that the system tells") {
    const auto bytes = platform::last_level_cache_bytes();
    CHECK_EQ(bytes, platform::last_level_cache_bytes());
    // Wine lets its programs see the files of Linux: there, too, this is what it should be.
    std::size_t kilobytes = 0;
    for (const auto* index : {"3", "2"}) {
        const auto file = "/sys/devices/system/cpu/cpu0/cache/index" + std::string(index) + "/size";
        if (kilobytes == 0 && std::ifstream(file) >> kilobytes) {
            CHECK_EQ(bytes, kilobytes * 1024);
        }
    }
    // Else nothing is known of it but that a cache of this kind has some size: 0 says "unknown".
    CHECK(bytes == 0 || bytes >= std::size_t{1} << 15U);
    CHECK(bytes < std::size_t{1} << 34U);
}

CASE("what a thread uses of the processor only grows, and busy work shows in it") {
    const platform::Usage before = platform::usage();
    volatile std::uint64_t sum = 0;
    platform::Usage after = before;
    // Windows counts in ticks of 16 ms.
    for (std::uint64_t i = 0; after.thread_cpu_ns < before.thread_cpu_ns + 50'000'000; ++i) {
        sum = sum + i;
        if (i % 100'000 == 0) {
            after = platform::usage();
        }
    }
    CHECK(before.thread_cpu_ns >= 0);
    CHECK(after.process_cpu_ns - before.process_cpu_ns >= 50'000'000 / 2);
    CHECK(after.run_delay_ns >= before.run_delay_ns);
    CHECK(after.major_faults >= before.major_faults);
    CHECK(after.involuntary_switches >= before.involuntary_switches);
    if (on_windows()) {
        CHECK_EQ(after.run_delay_ns, -1);
        CHECK_EQ(after.load_milli, -1);
    } else {
        CHECK(after.involuntary_switches >= 0);
        CHECK(after.load_milli >= 0);
    }
}

CASE("each thread has readings of its own") {
    platform::Usage there;
    const platform::Usage here = platform::usage();
    std::thread([&] { there = platform::usage(); }).join();
    // A new thread has used less than this one, which has run all the cases before.
    CHECK(there.thread_cpu_ns >= 0);
    CHECK(there.thread_cpu_ns <= here.thread_cpu_ns + 10'000'000);
    CHECK((there.run_delay_ns < 0) == (here.run_delay_ns < 0));
}

CASE("a thread that computes is not said to wait for a disk, whatever its name is") {
    const platform::DiskWait waits;
    const auto before = platform::thread_name();
    CHECK(platform::set_thread_name("x) D 1"));
    bool seen = false;
    std::thread([&] {
        for (int i = 0; i < 100; ++i) {
            seen = seen || waits.now();
        }
    }).join();
    platform::set_thread_name(before);
    CHECK(!seen);
}
