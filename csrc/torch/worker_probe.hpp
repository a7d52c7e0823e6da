// Sees every Gloo collective of this process start and end on its worker thread.
#pragma once

#include <memory>

namespace ddpdiag {

class Recorder;

// From now on the recorder gets all Gloo operations of the process, until unwatch_workers or its end.
void watch_workers(const std::shared_ptr<Recorder>& recorder);
void unwatch_workers(const Recorder* recorder);

// Whether nothing but this probe would take notice of an operation of this thread: no profiler, no other observer.
[[nodiscard]] bool only_our_probe_listens();

}  // namespace ddpdiag
