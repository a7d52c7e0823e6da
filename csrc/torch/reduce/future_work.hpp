// A future as a c10d::Work, whose wait knows a timeout; torch's own wrapper refuses one.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>

namespace ddpdiag {

// Called with the future by whoever begins to wait for it without a timeout.
using Help = std::function<void(const c10::ivalue::Future&)>;

// Done after the callbacks that the future has already.
[[nodiscard]] c10::intrusive_ptr<c10d::Work> work_of(c10::intrusive_ptr<c10::ivalue::Future> future,
                                                     Help help = {});

}  // namespace ddpdiag
