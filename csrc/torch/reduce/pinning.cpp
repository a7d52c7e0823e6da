#include "torch/reduce/pinning.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace ddpdiag {
namespace {

// Held while memory is pinned or unpinned, which may ask for the GIL: nobody may wait for it with the GIL.
struct Known {
    std::mutex mutex;
    std::map<c10::DeviceType, Pinning> of;
};

// Never destroyed: what is pinned may outlive all other objects.
Known& known() {
    static auto* const all = new Known;
    return *all;
}

}  // namespace

void set_pinning(c10::DeviceType type, Pinning pinning) {
    const std::lock_guard lock(known().mutex);
    known().of[type] = std::move(pinning);
}

void end_pinning() {
    const std::lock_guard lock(known().mutex);
    known().of.clear();
}

Pinned::Pinned(c10::DeviceType type, const void* address, std::size_t bytes)
    : type_(type), address_(reinterpret_cast<std::uintptr_t>(address)) {
    const std::lock_guard lock(known().mutex);
    if (const auto found = known().of.find(type); found != known().of.end()) {
        is_ = found->second.pin(address_, bytes);
    }
}

Pinned::~Pinned() {
    if (!is_) {
        return;
    }
    const std::lock_guard lock(known().mutex);
    if (const auto found = known().of.find(type_); found != known().of.end()) {
        found->second.unpin(address_);
    }
}

}  // namespace ddpdiag
