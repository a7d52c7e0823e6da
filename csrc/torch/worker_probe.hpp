// Sees every Gloo collective of this process start and end on its worker thread.
#pragma once

#include <memory>

namespace ddpdiag {

class Recorder;

// From now on the recorder gets all Gloo operations of the process, until unwatch_workers or its end.
void watch_workers(const std::shared_ptr<Recorder>& recorder);
void unwatch_workers(const Recorder* recorder);

}  // namespace ddpdiag
