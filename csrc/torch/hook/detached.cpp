#include "torch/hook/detached.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ddpdiag {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

// DDP does not tell a Python hook whose bucket it brings: its parameters do.
struct Modules {
    struct Module {
        std::weak_ptr<HookOfModule> hook;
        std::unordered_set<const c10::TensorImpl*> parameters;
        std::vector<WeakTensor> pinned;  // no other parameter may get the same address
    };
    struct Known {
        WeakTensor buffer;
        std::weak_ptr<HookOfModule> hook;  // empty: of a module that is not ours
    };
    std::atomic<bool> any{false};
    std::mutex mutex;
    std::vector<Module> modules;
    std::unordered_map<const c10::TensorImpl*, Known> by_buffer;
};

// Never destroyed: an autograd thread may outlive the statics of this library.
Modules& all() {
    static auto* const instance = new Modules;
    return *instance;
}

std::shared_ptr<HookOfModule> owner(const Modules& known, c10d::GradBucket& bucket) {
    const std::vector<at::Tensor> parameters = bucket.getParameters();
    for (const Modules::Module& module : known.modules) {
        if (std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
                return module.parameters.contains(parameter.unsafeGetTensorImpl());
            })) {
            return module.hook.lock();
        }
    }
    return nullptr;
}

}  // namespace

void keep_for_detached(const std::shared_ptr<HookOfModule>& hook, const std::vector<at::Tensor>& parameters) {
    Modules::Module module{.hook = hook, .parameters = {}, .pinned = {}};
    for (const at::Tensor& parameter : parameters) {
        module.parameters.insert(parameter.unsafeGetTensorImpl());
        module.pinned.emplace_back(parameter.getIntrusivePtr());
    }
    Modules& known = all();
    const std::lock_guard lock(known.mutex);
    std::erase_if(known.modules, [](const Modules::Module& other) { return other.hook.expired(); });
    known.modules.push_back(std::move(module));
    known.by_buffer.clear();
    known.any.store(true, std::memory_order_release);
}

std::shared_ptr<HookOfModule> detached_hook_of(c10d::GradBucket& bucket) {
    Modules& known = all();
    if (!known.any.load(std::memory_order_acquire)) {
        return nullptr;
    }
    const at::Tensor& buffer = bucket.getBufferRef();
    const c10::TensorImpl* const key = buffer.unsafeGetTensorImpl();
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.by_buffer.find(key); found != known.by_buffer.end()) {
        return found->second.hook.lock();
    }
    std::erase_if(known.by_buffer, [](const auto& entry) { return entry.second.buffer.expired(); });
    auto hook = owner(known, bucket);
    known.by_buffer.emplace(key, Modules::Known{WeakTensor(buffer.getIntrusivePtr()), hook});
    return hook;
}

}  // namespace ddpdiag
