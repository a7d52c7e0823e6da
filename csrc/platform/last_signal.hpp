// Notes by which signal a process ends that runs nothing at its end.
#pragma once

#include <filesystem>

namespace ddpdiag::platform {

// From here on, a signal that ends this process because nothing handles it leaves the file `note`: a line "PID SIGNAL
// MONOTONIC_NS", and after it the message of the C++ exception that nobody caught, if one led to the end. The process
// then ends as it would without this. A later path takes the place of an earlier one; an empty one ends the notes.
// Windows has no such signals, and does nothing.
void note_last_signal(const std::filesystem::path& note) noexcept;

// The same, but only if `note` is still the path of the notes.
void forget_last_signal(const std::filesystem::path& note) noexcept;

// Called on the thread whose C++ exception nobody catches, before the process ends of it, while notes are taken. Any
// other thread may hold any lock then: it must come back within a moment. Null: nothing is called.
void before_terminate(void (*call)()) noexcept;

}  // namespace ddpdiag::platform
