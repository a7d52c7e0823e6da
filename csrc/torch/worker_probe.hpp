// Sees every Gloo collective of this process start and end on its worker thread.
#pragma once

#include <memory>

namespace ddpdiag {

class Recorder;

// From now on the recorder gets all Gloo operations of the process, while it is neither paused nor closed.
void watch_workers(const std::shared_ptr<Recorder>& recorder);

// To be called when a recorder was paused, resumed or closed: with nobody listening the probe is switched off,
// since torch pays for each operation that anybody might want to see.
void refresh_worker_watch();

// Whether nothing but this probe would take notice of an operation of this thread: no profiler, no other observer.
[[nodiscard]] bool only_our_probe_listens();

}  // namespace ddpdiag
