// Sees every Gloo collective of this process start and end on its worker thread.
#pragma once

#include <cstdint>
#include <memory>

namespace ddpdiag {

class Recorder;

// From now on the recorder gets all Gloo operations of the process, while it is neither paused nor closed.
void watch_workers(const std::shared_ptr<Recorder>& recorder);

// To be called when a recorder was paused, resumed or closed: with nobody listening the probe is switched off,
// since torch pays for each operation that anybody might want to see.
void refresh_worker_watch();

// Whether the probe hears what is begun now.
[[nodiscard]] bool probe_listens() noexcept;

// Whether nothing but this probe would take notice of an operation of this thread: no profiler, no other observer.
[[nodiscard]] bool only_our_probe_listens();

// While one of these lives the probe does not listen. As long as anybody listens to spans torch rebuilds its lists of
// listeners whenever a thread enters another's thread-local state, as autograd does for every node and Gloo for every
// operation: several microseconds per bucket. So it listens in those backward passes only in which there may be
// something to hear (backward_pass.hpp).
class WorkerSilence {
public:
    WorkerSilence();
    WorkerSilence(const WorkerSilence&) = delete;
    WorkerSilence& operator=(const WorkerSilence&) = delete;
    ~WorkerSilence();
};

// How many collectives other than buckets were seen to start until now.
[[nodiscard]] std::uint64_t other_collectives() noexcept;

}  // namespace ddpdiag
