// Looks at a thread's Python stack, so that a report can name the line of a rank that is late.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>

#include "core/trace/stack_samples.hpp"
#include "platform/usage.hpp"
#include "python/bindings.hpp"

namespace ddpdiag::python {

// In C++, because a look comes when the caches are cold: the interpreter needs most of its own code for it. Everything
// here is called with the interpreter lock, which keeps the other thread from running on.
//
// The thread that has just collected garbage and lets others look; 0: none has.
inline std::atomic<std::uint64_t>& collected_on() {
    static std::atomic<std::uint64_t> thread{0};
    return thread;
}

// A stack's numbers: 1 if the thread waits for a disk, else 0; the innermost function if it is no own code, else 0, or -1
// if the thread collects garbage; then for each frame of own code, the innermost first: its function, its line and, of the innermost frame, its last
// instruction. Of the others that is not asked for: one stack must not become many. A function's number is its address,
// which stays its own because the function is kept.
class StackLooks {
public:
    // `thread`: Python's number of the thread. `name_of`: takes a file; empty: it is no own code.
    // `samples`, `stacks`, `depth`: how many samples, stacks and frames of a stack are kept at most.
    StackLooks(std::uint64_t thread, py::function name_of, std::size_t samples, std::size_t stacks,
               std::size_t depth);

    // Takes a sample unless `paused`. Seconds until the next look: not at the same moment of each step, however regular
    // the steps are.
    double look(bool paused);

    [[nodiscard]] const StackSamples& samples() const { return samples_; }
    // The function of that number; throws std::out_of_range.
    [[nodiscard]] py::object code(std::int64_t number) const { return codes_.at(number); }
    // The module of an innermost function that is no own code; empty: not known.
    [[nodiscard]] std::string module(std::int64_t number) const;

private:
    // A file's name, which is kept so that its address stays its own.
    struct File {
        py::object name;
        bool own;
    };

    // Fills `taken_`; false: the thread has no frame.
    bool take();
    bool is_own(PyCodeObject* code);
    // Whether the function has a number: a program may make new ones for ever.
    bool keep(py::handle code);
    std::int64_t number_if_foreign(py::handle frame, PyCodeObject* code);

    PyThreadState* thread_;
    py::function name_of_;
    std::size_t depth_;
    StackSamples samples_;
    StackNumbers taken_;
    platform::DiskWait disk_;
    // Its own numbers: those of the script must come out the same.
    std::minstd_rand random_;
    std::int64_t due_ = 0;
    std::int64_t used_ = -1;
    std::unordered_map<PyObject*, File> files_;
    std::unordered_map<std::int64_t, py::object> codes_;
    std::unordered_map<std::int64_t, std::string> modules_;
};

}  // namespace ddpdiag::python
