// The device's memory, and the memory of the host that it reaches by itself.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstddef>

namespace test_device {

c10::Allocator* allocator();
// Work on that stream uses it: it is given back after that.
void used_on(const c10::DataPtr& data, c10::StreamId stream);

[[nodiscard]] bool is_pinned(const void* address);

}  // namespace test_device
