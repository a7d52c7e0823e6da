#include "torch/probe/start_signal.hpp"

#include <ATen/FuncTorchTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <thread>
#include <utility>

#include "torch/compat.hpp"
#include "torch/probe/worker_probe.hpp"

namespace ddpdiag {
namespace {

// Carriers that exist anywhere. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> carriers_alive{0};

// Memory for carriers. The caller of each all-reduce creates some and its worker drops one: with malloc the
// two threads would wait for each other.
class CarrierRooms {
public:
    [[nodiscard]] void* take(std::size_t size) {
        if (size <= sizeof(Room::memory)) {
            // All slots are taken: so many operations are in flight that one malloc is negligible.
            Room& room = rooms_[next_.fetch_add(1, std::memory_order_relaxed) % rooms_.size()];
            if (!room.taken.exchange(true, std::memory_order_acquire)) {
                return room.memory.data();
            }
        }
        return ::operator new(size);
    }

    void give_back(void* memory) noexcept {
        const auto from_start =
            reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(rooms_.data());
        if (from_start < sizeof(rooms_)) {
            rooms_[from_start / sizeof(Room)].taken.store(false, std::memory_order_release);
        } else {
            ::operator delete(memory);
        }
    }

private:
    struct Room {
        std::array<std::uint64_t, 7> memory{};  // with the flag a cache line
        std::atomic<bool> taken{false};
    };
    std::array<Room, 32> rooms_{};
    std::atomic<std::size_t> next_{0};
};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
constinit CarrierRooms carrier_rooms;

// In the functorch slot of the calling thread during one `allreduce` call.
class Carrier final : public at::functorch::FuncTorchTLSBase {
public:
    explicit Carrier(std::shared_ptr<BucketOperation> operation)
        : operation_(std::move(operation)), caller_(platform::thread_id()) {
        carriers_alive.fetch_add(1, std::memory_order_relaxed);
    }
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    static void* operator new(std::size_t size) { return carrier_rooms.take(size); }
    static void operator delete(void* memory) noexcept { carrier_rooms.give_back(memory); }
    ~Carrier() override { carriers_alive.fetch_sub(1, std::memory_order_relaxed); }

    // Called on the caller when the work saves its state, and on the worker when it enters that state. The
    // worker gets no copy: code that runs there finds the slot empty, as it would without us.
    [[nodiscard]] std::unique_ptr<FuncTorchTLSBase> deepcopy() const override {
        if (platform::thread_id() == caller_) {
            return std::make_unique<Carrier>(operation_);
        }
        static_cast<void>(operation_->started());
        return nullptr;
    }

    // Queries that functorch makes of its own transforms: none is active.
    [[nodiscard]] std::int64_t checkSupportsSingleLevelAutogradFunction() const override { return 0; }
    void checkSupportsCppAutogradFunction() const override {}
    void checkSupportsInplaceRequiresGrad() const override {}
    void checkSupportsRetainGrad() const override {}

private:
    std::shared_ptr<BucketOperation> operation_;
    std::uint32_t caller_;
};

}  // namespace

bool StartSignal::by_copy_is_possible() {
    // A dispatch mode runs Python within `allreduce`, which may look into the functorch slot.
    return at::functorch::functorchTLSAccessor() == nullptr &&
           !c10::impl::TorchDispatchModeTLS::any_modes_set() && only_our_probe_listens() &&
           BucketOperation::starts_are_seen();
}

void StartSignal::wait_for_workers() {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + 1s;
    while (carriers_alive.load(std::memory_order_relaxed) > 0 &&
           std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
    }
}

// By the span if there may be several collectives: it distinguishes them.
StartSignal::StartSignal(const std::shared_ptr<BucketOperation>& operation, StartFrom from,
                         const HookThread& hook)
    : by_copy_(from == StartFrom::gloo_worker && hook.signal_by_copy) {
    if (by_copy_) {
        if (probe_listens()) {
            no_span_.emplace(/*is_enabled=*/false);
        }
        at::functorch::functorchTLSAccessor() = std::make_unique<Carrier>(operation);
    } else if (from != StartFrom::path) {
        by_span_.emplace(operation_slot, operation);
    }
}

StartSignal::~StartSignal() {
    if (by_copy_) {
        at::functorch::functorchTLSAccessor().reset();
    }
}

}  // namespace ddpdiag
