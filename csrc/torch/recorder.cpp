#include "torch/recorder.hpp"

#include <algorithm>
#include <utility>

#include "core/hash.hpp"
#include "torch/element.hpp"
#include "torch/worker_probe.hpp"

namespace ddpdiag {
namespace {

std::uint64_t bytes_of(const at::Tensor& buffer) {
    // What travels of a sparse gradient are its values and their indices.
    return buffer.is_sparse() ? buffer._values().nbytes() + buffer._indices().nbytes() : buffer.nbytes();
}

// The same on every rank and whatever the order of parameters within the bucket, so that a bucket that
// DDP rebuilds from the same parameters stays the same bucket.
std::uint64_t identity_of(const ModuleState& module, std::vector<std::uint32_t> parameters) {
    std::ranges::sort(parameters);
    Fnv1a hash;
    hash.add(module.index);
    for (const std::uint32_t parameter : parameters) {
        hash.add(parameter);
    }
    return hash.value();
}

}  // namespace

std::shared_ptr<Recorder> Recorder::open(const std::filesystem::path& path, const RecorderOptions& options) {
    std::shared_ptr<Recorder> recorder(new Recorder(path, options));
    watch_workers(recorder);
    return recorder;
}

Recorder::Recorder(const std::filesystem::path& path, const RecorderOptions& options)
    : options_(options), trace_(path, options.trace) {}

Recorder::~Recorder() {
    // One that was never closed must not leave the probe on for nobody.
    refresh_worker_watch();
}

std::shared_ptr<Group> Recorder::group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle) {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find_if(groups_, [&](const auto& group) { return group->handle.lock() == handle; });
    return known != groups_.end() ? *known : groups_.emplace_back(std::make_shared<Group>(handle));
}

void Recorder::set_default_group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle) {
    auto known = group(handle);
    const std::lock_guard lock(mutex_);
    default_group_ = std::move(known);
}

std::shared_ptr<ModuleState> Recorder::add_module(std::shared_ptr<Group> group,
                                                  const std::vector<at::Tensor>& parameters,
                                                  std::vector<std::string> names) {
    auto module = std::make_shared<ModuleState>();
    module->group = std::move(group);
    module->names = std::move(names);
    for (const at::Tensor& parameter : parameters) {
        module->index_of(parameter);
    }
    const std::lock_guard lock(mutex_);
    module->index = static_cast<std::uint32_t>(modules_.size());
    return modules_.emplace_back(std::move(module));
}

std::shared_ptr<ModuleState> Recorder::find_module(const std::vector<at::Tensor>& parameters) const {
    const std::lock_guard lock(mutex_);
    for (const auto& module : modules_) {
        for (const at::Tensor& parameter : parameters) {
            if (module->parameters.contains(parameter.unsafeGetTensorImpl())) {
                return module;
            }
        }
    }
    return nullptr;
}

std::shared_ptr<ModuleState> Recorder::module_of(const std::vector<at::Tensor>& parameters) {
    auto module = find_module(parameters);
    if (module == nullptr && identify_callback_) {
        identify_callback_(parameters);
        module = find_module(parameters);
    }
    if (module == nullptr) {
        // Nobody knows whose bucket it is: all such buckets are taken as one module's.
        std::unique_lock lock(mutex_);
        const auto anonymous =
            std::ranges::find_if(modules_, [](const auto& candidate) { return candidate->anonymous; });
        if (anonymous != modules_.end()) {
            return *anonymous;
        }
        auto group = default_group_;
        lock.unlock();
        module = add_module(std::move(group), {}, {});
        module->anonymous = true;
    }
    return module;
}

std::shared_ptr<const BucketLayout> Recorder::make_layout(c10d::GradBucket& bucket) {
    const std::vector<at::Tensor> parameters = bucket.getParameters();
    auto layout = std::make_shared<BucketLayout>();
    layout->module = module_of(parameters);
    layout->index = static_cast<std::uint32_t>(bucket.getIndex());
    layout->bytes = bytes_of(bucket.getBufferRef());
    layout->dtype = dtype_of(bucket.getBufferRef().scalar_type());
    {
        const std::lock_guard lock(mutex_);
        for (const at::Tensor& parameter : parameters) {
            layout->parameters.push_back(layout->module->index_of(parameter));
            const std::uint64_t begin = layout->ends.empty() ? 0 : layout->ends.back();
            layout->ends.push_back(begin + static_cast<std::uint64_t>(parameter.numel()));
        }
    }
    layout->identity = identity_of(*layout->module, layout->parameters);
    return layout;
}

std::shared_ptr<const BucketLayout> Recorder::layout(c10d::GradBucket& bucket) {
    const at::Tensor& buffer = bucket.getBufferRef();
    const c10::TensorImpl* key = buffer.unsafeGetTensorImpl();
    {
        const std::lock_guard lock(mutex_);
        if (const auto cached = by_buffer_.find(key); cached != by_buffer_.end()) {
            return cached->second.layout;
        }
    }
    // Once per buffer, so with DDP's rebuild once or twice in a run (a sparse bucket: in each step).
    std::shared_ptr<const BucketLayout> layout = make_layout(bucket);
    bool is_new = false;
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(by_buffer_, [](const auto& entry) { return entry.second.buffer.expired(); });
        by_buffer_.emplace(
            key, CachedLayout{c10::weak_intrusive_ptr<c10::TensorImpl>(buffer.getIntrusivePtr()), layout});
        const auto same = [&](const auto& other) {
            return other->identity == layout->identity && other->index == layout->index;
        };
        is_new = std::ranges::none_of(layouts_, same);
        if (is_new) {
            layouts_.push_back(layout);
        }
    }
    if (is_new && layout_callback_) {
        layout_callback_();
    }
    return layout;
}

void Recorder::compare(ModuleState& module) {
    const std::vector<Fingerprint> ours = module.gradients.take();
    if (compare_callback_ && !closed()) {
        compare_callback_(module, ours);
    }
}

std::vector<std::shared_ptr<Group>> Recorder::groups() const {
    const std::lock_guard lock(mutex_);
    return groups_;
}

std::vector<std::shared_ptr<const BucketLayout>> Recorder::layouts() const {
    const std::lock_guard lock(mutex_);
    return layouts_;
}

void Recorder::wait_begin() {
    const std::lock_guard lock(step_mutex_);
    if (step_operation_) {
        // Another loop over steps was begun within this step, or instead of going on with it.
        step_operation_.set_flags(flag_abandoned);
        step_operation_.stamp(step_time::end, platform::monotonic_ns());
        step_operation_.complete();
    }
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::step);
    record.step = steps_begun_.load(std::memory_order_relaxed);
    record.thread = platform::thread_id();
    record.times[step_time::wait_begin] = platform::monotonic_ns();
    step_operation_ = paused() || closed() ? Operation{} : trace_.open(record);
}

void Recorder::step_begin() {
    const std::lock_guard lock(step_mutex_);
    step_operation_.stamp(step_time::begin, platform::monotonic_ns());
    steps_begun_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::step_end() {
    const std::lock_guard lock(step_mutex_);
    step_operation_.stamp(step_time::end, platform::monotonic_ns());
    step_operation_.complete();
    step_operation_ = {};
}

void Recorder::wait_abandoned() {
    const std::lock_guard lock(step_mutex_);
    step_operation_.set_flags(flag_no_batch);
    step_operation_.stamp(step_time::end, platform::monotonic_ns());
    step_operation_.complete();
    step_operation_ = {};
}

std::uint32_t Recorder::step_of(std::uint32_t pass) const noexcept {
    const std::uint32_t begun = steps_begun_.load(std::memory_order_relaxed);
    return begun > 0 ? begun - 1 : pass;
}

std::uint32_t Recorder::step_of(const ModuleState& module) const noexcept {
    const std::uint32_t passes = module.passes.load(std::memory_order_relaxed);
    return step_of(passes > 0 ? passes - 1 : 0);
}

bool Recorder::sampled(std::uint32_t pass) const noexcept {
    return options_.parameter_interval != 0 && pass % options_.parameter_interval == 0;
}

void Recorder::set_paused(bool paused) {
    paused_.store(paused, std::memory_order_relaxed);
    refresh_worker_watch();
}

void Recorder::close() {
    if (closed_.exchange(true, std::memory_order_acq_rel)) {
        return;
    }
    refresh_worker_watch();
    trace_.mark_closed();
    // The callbacks hold Python objects that hold us.
    layout_callback_ = nullptr;
    identify_callback_ = nullptr;
    compare_callback_ = nullptr;
}

}  // namespace ddpdiag
