#include "torch/probe/worker_group.hpp"

#include <ATen/core/custom_class.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>

#include "torch/compat.hpp"
#include "torch/group.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/probe/worker_probe.hpp"

namespace ddpdiag {
namespace {

constexpr std::string_view collectives = "c10d::";
constexpr std::int64_t operations_to_look_at = 20'000;  // some 4 ms in all
constexpr int tries_of_a_worker = 3;

// torch calls plain functions. NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<std::int64_t> left{0};
thread_local std::uint64_t group_of_worker = 0;
thread_local int tries = 0;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

// What the caller of a collective notes for its worker.
class GroupNote final : public c10::DebugInfoBase {
public:
    explicit GroupNote(std::uint64_t group) : group_(group), caller_(platform::thread_id()) {}
    [[nodiscard]] std::uint64_t group() const noexcept { return group_; }
    // Point-to-point operations have their spans on the caller, which is no worker.
    [[nodiscard]] bool on_its_caller() const noexcept { return platform::thread_id() == caller_; }

private:
    std::uint64_t group_;
    std::uint32_t caller_;
};

// For as long as the call lasts.
struct Noted final : at::ObserverContext {
    explicit Noted(std::uint64_t group) : guard(group_slot, std::make_shared<GroupNote>(group)) {}
    c10::DebugInfoGuard guard;
};

c10::intrusive_ptr<c10d::ProcessGroup> group_among(c10::ArrayRef<const c10::IValue> arguments) {
    const auto& wanted = c10::getCustomClassType<c10::intrusive_ptr<c10d::ProcessGroup>>();
    for (const c10::IValue& argument : arguments) {
        if (argument.isObject() && argument.toObjectRef().type() == wanted) {
            return argument.toCustomClass<c10d::ProcessGroup>();
        }
    }
    return {};
}

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& function) {
    if (left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
        refresh_worker_watch();
        return nullptr;
    }
    const char* const name = function.name();
    if (name == nullptr || std::strncmp(name, collectives.data(), collectives.size()) != 0) {
        return nullptr;
    }
    const auto handle = group_among(function.inputs());
    if (!handle || handle->getGroupDesc() == own_group ||
        backend_name(*handle, c10::DeviceType::CPU) != "gloo") {
        return nullptr;
    }
    std::uint64_t group = 0;
    for (const auto& recorder : watching_recorders()) {
        group = recorder->group(handle)->id;
    }
    return group != 0 ? std::make_unique<Noted>(group) : nullptr;
}

}  // namespace

void this_worker_serves(std::uint64_t group) noexcept {
    group_of_worker = group;
}

std::uint64_t group_of_operation() noexcept {
    if (group_of_worker != 0) {
        return group_of_worker;
    }
    const auto* const note = dynamic_cast<GroupNote*>(c10::ThreadLocalDebugInfo::get(group_slot));
    if (note == nullptr) {
        return 0;
    }
    if (!note->on_its_caller()) {
        group_of_worker = note->group();
    }
    return note->group();
}

void GroupSearch::renew() noexcept {
    left.store(operations_to_look_at, std::memory_order_relaxed);
}

bool GroupSearch::renew_for_this_worker() noexcept {
    if (tries++ >= tries_of_a_worker) {
        return false;
    }
    renew();
    return true;
}

bool GroupSearch::due() noexcept {
    return left.load(std::memory_order_relaxed) > 0;
}

void GroupSearch::listen(bool wanted) {
    if (wanted == listening_) {
        return;
    }
    listening_ = wanted;
    if (wanted) {
        handle_ = at::addGlobalCallback(
            at::RecordFunctionCallback(on_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    } else {
        at::removeCallback(handle_);
    }
}

}  // namespace ddpdiag
