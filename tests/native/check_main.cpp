#include <atomic>
#include <exception>
#include <iostream>
#include <mutex>
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

bool run(const Entry& entry) {
    failures().count = 0;
    bool ended = false;
    try {
        entry.body();
    } catch (const Ended&) {
        ended = true;
    } catch (const std::exception& error) {
        note_failure(entry.name, 0, std::string("unexpected exception: ") + error.what());
    }
    const bool passed = !ended && failures().count == 0;
    const std::scoped_lock lock(failures().output);
    std::cout << (passed ? "pass  " : "FAIL  ") << entry.name << '\n' << std::flush;
    return passed;
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
    for (const auto& entry : check::entries()) {
        if (std::string_view(entry.name).find(wanted) != std::string_view::npos) {
            ++(check::run(entry) ? passed : failed);
        }
    }
    std::cout << passed << " passed, " << failed << " failed\n";
    // A name that matches nothing must not look like success.
    return failed == 0 && passed > 0 ? 0 : 1;
}
