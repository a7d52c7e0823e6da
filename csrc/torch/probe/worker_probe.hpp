// Sees every Gloo collective of this process start and end on its worker thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ddpdiag {

class Recorder;

// From now on the recorder gets all Gloo operations of the process, while it is neither paused nor closed.
void watch_workers(const std::shared_ptr<Recorder>& recorder);

// Call this when a recorder was paused, resumed or closed: with no recorder listening the probe is switched
// off, since torch pays for each operation that anybody might observe.
void refresh_worker_watch();

// Those that are open.
[[nodiscard]] std::vector<std::shared_ptr<Recorder>> watching_recorders();

// Whether the probe sees operations that begin now.
[[nodiscard]] bool probe_listens() noexcept;

// Whether only this probe would notice an operation of this thread: no profiler, no other observer.
[[nodiscard]] bool only_our_probe_listens();

// While one of these exists the probe does not listen. As long as anything listens to spans, torch rebuilds
// its lists of listeners whenever a thread enters another's thread-local state, as autograd does for every
// node and Gloo for every operation: several microseconds per bucket. So the probe only listens in backward
// passes that may contain foreign collectives (backward_pass.hpp).
class WorkerProbePause {
public:
    WorkerProbePause();
    WorkerProbePause(const WorkerProbePause&) = delete;
    WorkerProbePause& operator=(const WorkerProbePause&) = delete;
    ~WorkerProbePause();
};

// How many foreign collectives (other than buckets) have been seen to start so far.
[[nodiscard]] std::uint64_t other_collectives() noexcept;

}  // namespace ddpdiag
