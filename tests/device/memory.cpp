#include "memory.hpp"

#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "streams.hpp"

namespace test_device {
namespace {

struct Block {
    void* data;
    std::size_t bytes;
    c10::StreamId home;
    std::mutex mutex;
    std::set<c10::StreamId> users;
};

// As a caching allocator: at once for the stream that it was made on, after the work of others if they are known. What
// reads it later, finds other values.
void give_back(void* context) {
    auto* const block = static_cast<Block*>(context);
    StreamThread& home = thread_of(block->home);
    for (const c10::StreamId user : block->users) {
        const auto event = std::make_shared<Event>();
        thread_of(user).record(event);
        home.wait_for(event);
    }
    home.order([block] {
        std::memset(block->data, 0x55, block->bytes);
        std::free(block->data);
        delete block;
    });
}

class Memory final : public c10::Allocator {
public:
    c10::DataPtr allocate(std::size_t bytes) override {
        constexpr std::size_t alignment = 64;
        void* const data = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
        auto* const block = new Block{data, bytes, current_stream, {}, {}};
        return {data, block, &give_back, c10::Device(c10::DeviceType::PrivateUse1, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, std::size_t count) const override {
        default_copy_data(to, from, count);
    }
};

std::mutex pinned_mutex;
std::map<std::intptr_t, std::int64_t> pinned;
std::int64_t pinnings = 0;
std::int64_t unpinnings = 0;

void pin(std::int64_t address, std::int64_t bytes) {
    const std::lock_guard lock(pinned_mutex);
    pinned[address] = bytes;
    ++pinnings;
}

void unpin(std::int64_t address) {
    // Of memory that is mapped no more, this would end the process.
    static_cast<void>(*reinterpret_cast<const volatile char*>(address));
    const std::lock_guard lock(pinned_mutex);
    unpinnings += static_cast<std::int64_t>(pinned.erase(address));
}

std::vector<std::int64_t> counts() {
    const std::lock_guard lock(pinned_mutex);
    return {pinnings, unpinnings};
}

}  // namespace

c10::Allocator* allocator() {
    static auto* const memory = new Memory;
    return memory;
}

void used_on(const c10::DataPtr& data, c10::StreamId stream) {
    if (data.get_deleter() == &give_back) {
        auto* const block = static_cast<Block*>(data.get_context());
        const std::lock_guard lock(block->mutex);
        block->users.insert(stream);
    }
}

bool is_pinned(const void* address) {
    const auto number = reinterpret_cast<std::intptr_t>(address);
    const std::lock_guard lock(pinned_mutex);
    const auto next = pinned.upper_bound(number);
    return next != pinned.begin() && number < std::prev(next)->first + std::prev(next)->second;
}

TORCH_LIBRARY_FRAGMENT(pyddpdiag_test_device, library) {
    library.def("pin", &pin);
    library.def("unpin", &unpin);
    library.def("pinned_and_unpinned", &counts);
}

}  // namespace test_device
