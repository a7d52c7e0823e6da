#include "torch/start_signal.hpp"

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
#include "torch/worker_probe.hpp"

namespace ddpdiag {
namespace {

// Carriers that are somewhere. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> alive{0};

// Memory for carriers. The caller of each all-reduce makes some and its worker drops one: by way of malloc the two threads
// would wait for each other.
class CarrierRooms {
public:
    [[nodiscard]] void* take(std::size_t size) {
        if (size <= sizeof(Room::memory)) {
            // Whoever is not served at once has so many works under way that malloc does not matter.
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
constinit CarrierRooms rooms;

// Lives in the functorch slot of the calling thread for the time of one `allreduce` call.
class Carrier final : public at::functorch::FuncTorchTLSBase {
public:
    explicit Carrier(std::shared_ptr<BucketOperation> operation)
        : operation_(std::move(operation)), caller_(platform::thread_id()) {
        alive.fetch_add(1, std::memory_order_relaxed);
    }
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    static void* operator new(std::size_t size) { return rooms.take(size); }
    static void operator delete(void* memory) noexcept { rooms.give_back(memory); }
    ~Carrier() override { alive.fetch_sub(1, std::memory_order_relaxed); }

    // Called on the caller when the work saves its state, and on the worker when it enters it. The worker
    // gets none: whatever runs there finds the slot empty, as it would without us.
    [[nodiscard]] std::unique_ptr<FuncTorchTLSBase> deepcopy() const override {
        if (platform::thread_id() == caller_) {
            return std::make_unique<Carrier>(operation_);
        }
        operation_->started();
        return nullptr;
    }

    // Questions that functorch asks of its own transforms: none is under way.
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
    // A dispatch mode runs Python within `allreduce`, and that may look into the functorch slot.
    return at::functorch::functorchTLSAccessor() == nullptr &&
           !c10::impl::TorchDispatchModeTLS::any_modes_set() && only_our_probe_listens() &&
           BucketOperation::starts_are_seen();
}

void StartSignal::wait_for_workers() {
    using namespace std::chrono_literals;
    const auto deadline = std::chrono::steady_clock::now() + 1s;
    while (alive.load(std::memory_order_relaxed) > 0 && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(1ms);
    }
}

StartSignal::StartSignal(const std::shared_ptr<BucketOperation>& operation, bool by_copy)
    : by_copy_(by_copy) {
    if (by_copy_) {
        if (probe_listens()) {
            no_span_.emplace(/*is_enabled=*/false);
        }
        at::functorch::functorchTLSAccessor() = std::make_unique<Carrier>(operation);
    } else {
        by_span_.emplace(operation_slot, operation);
    }
}

StartSignal::~StartSignal() {
    if (by_copy_) {
        at::functorch::functorchTLSAccessor().reset();
    }
}

}  // namespace ddpdiag
