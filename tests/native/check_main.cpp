#include <atomic>
#include <exception>
#include <iostream>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"

namespace check {
namespace {

struct Entry {
    const char* name;
    Body body;
};

std::vector<Entry>& entries() {
    static std::vector<Entry> all;
    return all;
}

// Failures are noted from any thread, and each is one line of output.
struct Failures {
    std::mutex output;
    std::atomic<int> count{0};
};

Failures& failures() {
    static Failures all;
    return all;
}

enum class Outcome { passed, failed, skipped };

Outcome run(const Entry& entry) {
    failures().count = 0;
    bool ended = false;
    std::string skipped;
    try {
        entry.body();
    } catch (const Ended&) {
        ended = true;
    } catch (const Skipped& why) {
        skipped = why.what();
    } catch (const std::exception& error) {
        note_failure(entry.name, 0, std::string("unexpected exception: ") + error.what());
    }
    // What failed before the case was left is a failure all the same.
    const bool failed = ended || failures().count > 0;
    const std::scoped_lock lock(failures().output);
    if (failed) {
        std::cout << "FAIL  " << entry.name << '\n' << std::flush;
        return Outcome::failed;
    }
    std::cout << (skipped.empty() ? "pass  " : "skip  ") << entry.name;
    std::cout << (skipped.empty() ? "" : ": ") << skipped << '\n' << std::flush;
    return skipped.empty() ? Outcome::passed : Outcome::skipped;
}

}  // namespace

Case::Case(const char* name, Body body) {
    entries().push_back({name, body});
}

void note_failure(const char* file, int line, const std::string& message) {
    ++failures().count;
    const std::scoped_lock lock(failures().output);
    std::cout << file << ':' << line << ": " << message << '\n' << std::flush;
}

}  // namespace check

int main(int argc, char** argv) {
    const std::string_view wanted = argc > 1 ? argv[1] : "";
    if (wanted == "--list") {
        for (const auto& entry : check::entries()) {
            std::cout << entry.name << '\n';
        }
        return 0;
    }
    int passed = 0;
    int failed = 0;
    int skipped = 0;
    for (const auto& entry : check::entries()) {
        if (std::string_view(entry.name).find(wanted) != std::string_view::npos) {
            const auto outcome = check::run(entry);
            passed += outcome == check::Outcome::passed ? 1 : 0;
            failed += outcome == check::Outcome::failed ? 1 : 0;
            skipped += outcome == check::Outcome::skipped ? 1 : 0;
        }
    }
    std::cout << passed << " passed, " << failed << " failed, " << skipped << " skipped\n";
    // A name that matches nothing must not look like success.
    return failed == 0 && passed + skipped > 0 ? 0 : 1;
}
