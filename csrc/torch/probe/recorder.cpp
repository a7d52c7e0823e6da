#include "torch/probe/recorder.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "core/trace/hash.hpp"
#include "platform/usage.hpp"
#include "torch/element.hpp"
#include "torch/probe/worker_probe.hpp"

namespace ddpdiag {
namespace {

// How long the end of a recording waits for a look at files and sockets: a thousand times what one takes.
constexpr std::chrono::seconds longest_beat{5};

// The same on every rank and for any order of parameters within the bucket, so a bucket that DDP rebuilds
// from the same parameters stays the same bucket.
std::uint64_t identity_of(const ModuleState& module, std::vector<std::uint32_t> parameters) {
    std::ranges::sort(parameters);
    Fnv1a hash;
    hash.add(module.identity.index());
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
    : options_(options), trace_(path, options.trace), connections_(trace_), history_(trace_) {
    using namespace std::chrono_literals;
    pulse_ = std::make_unique<Pulse>([this] { beat(); }, 500ms);
}

Recorder::~Recorder() {
    if (trace_.inherited()) {
        return;  // a forked child: a thread that held the probe's lock in the parent does not exist here to release it
    }
    // A recorder that was never closed must not leave the probe on.
    refresh_worker_watch();
}

void Recorder::beat() {
    const std::int64_t now = platform::monotonic_ns();
    trace_.beat(now);
    // Whatever the readings before took, there is one at the end.
    const bool is_due = now >= next_sample_ns_ || closed_.load(std::memory_order_relaxed);
    if (options_.sample_connections && is_due && !paused() && !trace_.lost()) {
        sample_connections(now);
    }
    if (!trace_.lost()) {
        history_.look();
    }
}

void Recorder::sample_connections(std::int64_t now_ns) {
    try {
        const std::uint32_t begun = steps_begun_.load(std::memory_order_relaxed);
        connections_.take(platform::tcp_sockets(), now_ns, begun > 0 ? begun - 1 : 0);
        // With very many descriptors a look takes long: never more than a hundredth of the time.
        constexpr std::int64_t share = 100;
        next_sample_ns_ = now_ns + share * (platform::monotonic_ns() - now_ns);
    } catch (const platform::SystemError&) {
        // This system does not let a process list its sockets, and will not later.
        next_sample_ns_ = std::numeric_limits<std::int64_t>::max();
    }
}

void Recorder::check_trace() {
    if (!trace_.lost()) {
        return;
    }
    if (!paused()) {
        set_paused(true);
    }
    lost_callback_.call_once();
}

std::shared_ptr<Group> Recorder::group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle) {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find_if(groups_, [&](const auto& group) { return group->handle.lock() == handle; });
    if (known != groups_.end()) {
        return *known;
    }
    auto added = groups_.emplace_back(std::make_shared<Group>(handle));
    group_count_.store(groups_.size(), std::memory_order_relaxed);
    return added;
}

void Recorder::set_default_group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle) {
    auto known = group(handle);
    const std::lock_guard lock(mutex_);
    default_group_ = std::move(known);
}

std::shared_ptr<ModuleState> Recorder::insert_module(std::shared_ptr<Group> group,
                                                     const std::vector<at::Tensor>& parameters,
                                                     std::vector<std::string> names,
                                                     std::weak_ptr<c10d::Reducer> reducer) {
    return modules_.emplace_back(std::make_shared<ModuleState>(static_cast<std::uint32_t>(modules_.size()),
                                                               std::move(group), parameters, std::move(names),
                                                               std::move(reducer)));
}

std::shared_ptr<ModuleState> Recorder::add_module(std::shared_ptr<Group> group,
                                                  const std::vector<at::Tensor>& parameters,
                                                  std::vector<std::string> names,
                                                  std::weak_ptr<c10d::Reducer> reducer) {
    const std::lock_guard lock(mutex_);
    return insert_module(std::move(group), parameters, std::move(names), std::move(reducer));
}

std::shared_ptr<ModuleState> Recorder::find_module(const std::vector<at::Tensor>& parameters) const {
    const std::lock_guard lock(mutex_);
    const auto owner = std::ranges::find_if(
        modules_, [&](const auto& module) { return module->identity.owns_one_of(parameters); });
    return owner != modules_.end() ? *owner : nullptr;
}

std::shared_ptr<ModuleState> Recorder::anonymous_module() {
    const std::lock_guard lock(mutex_);
    const auto known =
        std::ranges::find_if(modules_, [](const auto& module) { return module->identity.anonymous(); });
    return known != modules_.end() ? *known : insert_module(default_group_, {}, {}, {});
}

std::shared_ptr<ModuleState> Recorder::module_of(const std::vector<at::Tensor>& parameters) {
    auto module = find_module(parameters);
    if (module == nullptr) {
        identify_callback_(parameters);
        module = find_module(parameters);
    }
    // The bucket's module is unknown: all such buckets count as one module's.
    return module != nullptr ? module : anonymous_module();
}

std::shared_ptr<const BucketLayout> Recorder::make_layout(c10d::GradBucket& bucket) {
    const std::vector<at::Tensor> parameters = bucket.getParameters();
    auto layout = std::make_shared<BucketLayout>();
    layout->module = module_of(parameters);
    layout->index = static_cast<std::uint32_t>(bucket.getIndex());
    layout->bytes = bytes_of(bucket.getBufferRef());
    layout->dtype = dtype_of(bucket.getBufferRef().scalar_type());
    layout->parameters = layout->module->identity.indices_of(parameters);
    for (const at::Tensor& parameter : parameters) {
        const std::uint64_t begin = layout->ends.empty() ? 0 : layout->ends.back();
        layout->ends.push_back(begin + static_cast<std::uint64_t>(parameter.numel()));
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
    // Once per buffer: with DDP's rebuild, once or twice in a run (for a sparse bucket, in each step).
    platform::MappedFile::renew_guard();
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
    if (is_new) {
        layout_callback_();
    }
    return layout;
}

void Recorder::compare(ModuleState& module) {
    const std::vector<Fingerprint> ours = module.fingerprints.take();
    if (!closed()) {
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

void Recorder::open_step(std::int64_t wait_begin_ns) {
    if (step_operation_) {
        // Another loop over steps began within this step, or replaced its loop.
        step_operation_.set_flags(flag_abandoned);
        step_operation_.stamp(step_time::end, platform::monotonic_ns());
        step_operation_.complete();
    }
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::step);
    record.step = steps_begun_.load(std::memory_order_relaxed);
    record.thread = platform::thread_id();
    // Not before the step above has ended.
    record.times[step_time::wait_begin] = wait_begin_ns != 0 ? wait_begin_ns : platform::monotonic_ns();
    step_operation_ = paused() || closed() ? Operation{} : trace_.open(record);
}

void Recorder::wait_begin() {
    const std::lock_guard lock(step_mutex_);
    open_step(0);
}

void Recorder::step_begun(std::int64_t wait_begin_ns, std::int64_t begin_ns) {
    const std::lock_guard lock(step_mutex_);
    open_step(wait_begin_ns);
    step_operation_.stamp(step_time::begin, begin_ns);
    steps_begun_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::step_begin() {
    const std::lock_guard lock(step_mutex_);
    step_operation_.stamp(step_time::begin, platform::monotonic_ns());
    steps_begun_.fetch_add(1, std::memory_order_relaxed);
}

std::size_t Recorder::step_end() {
    {
        const std::lock_guard lock(step_mutex_);
        step_operation_.stamp(step_time::end, platform::monotonic_ns());
        step_operation_.complete();
        step_operation_ = {};
    }
    check_trace();
    return group_count_.load(std::memory_order_relaxed);
}

void Recorder::step_withdrawn() {
    wait_abandoned();
    steps_begun_.fetch_sub(1, std::memory_order_relaxed);
}

std::uint64_t Recorder::backward_signs() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t signs = 0;
    for (const auto& module : modules_) {
        signs += module->marks.backward_signs.load(std::memory_order_relaxed);
    }
    return signs;
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
    const std::uint32_t passes = module.marks.begun.load(std::memory_order_relaxed);
    return step_of(passes > 0 ? passes - 1 : 0);
}

Operation Recorder::begin_phase(std::string_view name) {
    if (paused() || closed()) {
        return {};
    }
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::phase);
    record.reference = fnv1a(name);
    record.step = current_step();
    record.thread = platform::thread_id();
    record.times[phase_time::begin] = platform::monotonic_ns();
    name.copy(reinterpret_cast<char*>(&record) + name_offset, name_size - 1);
    return trace_.open(record);
}

std::uint32_t Recorder::current_step() const {
    std::uint32_t passes = 0;
    if (steps_begun_.load(std::memory_order_relaxed) == 0) {
        const std::lock_guard lock(mutex_);
        for (const auto& module : modules_) {
            passes = std::max(passes, module->marks.begun.load(std::memory_order_relaxed));
        }
    }
    return step_of(passes > 0 ? passes - 1 : 0);
}

void Recorder::record_usage(const ModuleState& module) noexcept {
    if (closed() || paused()) {
        return;
    }
    const platform::Usage found = platform::usage();
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::usage);
    record.group = module.identity.group()->id;
    record.step = step_of(module);
    record.module = module.identity.index();
    record.thread = platform::thread_id();
    record.times[usage_value::at] = platform::monotonic_ns();
    record.times[usage_value::thread_cpu] = found.thread_cpu_ns;
    record.times[usage_value::run_delay] = found.run_delay_ns;
    record.times[usage_value::process_cpu] = found.process_cpu_ns;
    record.times[usage_value::collector] = collector_ns_.load(std::memory_order_relaxed);
    record.times[usage_value::major_faults] = found.major_faults;
    record.times[usage_value::involuntary_switches] = found.involuntary_switches;
    record.times[usage_value::load_milli] = found.load_milli;
    trace_.write(record);
}

void Recorder::record_weights(ModuleState& module, std::uint32_t pass) {
    if (closed() || paused()) {
        return;
    }
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::weights);
    record.group = module.identity.group()->id;
    record.sequence = pass;
    record.step = step_of(module);
    record.module = module.identity.index();
    record.thread = platform::thread_id();
    module.weights.look(trace_, record, pass, interval_at(options_.weights_interval, pass));
}

void Recorder::add_collector_pause(std::int64_t ns) noexcept {
    std::int64_t none = -1;
    collector_ns_.compare_exchange_strong(none, 0, std::memory_order_relaxed);
    collector_ns_.fetch_add(ns, std::memory_order_relaxed);
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
    // It looks at the trace's file and at the process's sockets, where a disk or a driver may not answer.
    const bool beats_are_over = pulse_->stop(longest_beat);
    if (beats_are_over) {
        history_.close();
    } else {
        // The thread uses this recorder for as long as the process lives.
        [[maybe_unused]] const auto* const kept =
            std::make_unique<std::shared_ptr<Recorder>>(shared_from_this()).release();
    }
    trace_.mark_closed();
    // The callbacks hold Python objects that keep us alive.
    layout_callback_.take_away();
    identify_callback_.take_away();
    compare_callback_.take_away();
    check_trace();
    lost_callback_.take_away();
    if (beats_are_over) {
        trace_.close();
    }
}

}  // namespace ddpdiag
