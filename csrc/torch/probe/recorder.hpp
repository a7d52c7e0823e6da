// The recorder of one process: its trace file, what it knows about groups, modules and buckets, and its
// steps.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/trace/connection_log.hpp"
#include "core/trace/history.hpp"
#include "core/trace/pulse.hpp"
#include "core/trace/trace_file.hpp"
#include "torch/group.hpp"
#include "torch/probe/bucket_layout.hpp"
#include "torch/probe/callback.hpp"
#include "torch/probe/module_state.hpp"

namespace ddpdiag {

struct RecorderOptions {
    TraceOptions trace;
    // Parameter records are written in every n-th backward pass; 0 = never.
    std::uint32_t parameter_interval = 16;
    GradientOptions gradients;
    // Every parameter of a module is fingerprinted once in so many backward passes; 0 = never.
    std::uint32_t weights_interval = 16;
    // Readings of the process's TCP connections are written twice a second.
    bool sample_connections = true;
};

class Recorder : public std::enable_shared_from_this<Recorder> {
public:
    using LayoutCallback = Callback<>;
    using CompareCallback = Callback<const ModuleState&, const std::vector<Fingerprint>&>;
    using IdentifyCallback = Callback<const std::vector<at::Tensor>&>;
    using LostCallback = Callback<>;

    // Throws platform::SystemError or std::invalid_argument.
    static std::shared_ptr<Recorder> open(const std::filesystem::path& path, const RecorderOptions& options);
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    ~Recorder();

    [[nodiscard]] TraceFile& trace() noexcept { return trace_; }
    [[nodiscard]] const TraceFile& trace() const noexcept { return trace_; }
    [[nodiscard]] std::uint32_t rank() const noexcept { return options_.trace.rank; }

    // Called when a new bucket layout appears; and when a bucket of an unknown module does, which the callee
    // may answer with add_module(). Both may be called on an autograd thread.
    void on_layout(LayoutCallback::Function function) { layout_callback_.set(std::move(function)); }
    void on_unknown_module(IdentifyCallback::Function function) {
        identify_callback_.set(std::move(function));
    }

    // Called after a pass whose fingerprints the ranks compare, with the module and ours, on the thread that runs
    // backward(); may throw, and backward() then does.
    void on_compare(CompareCallback::Function function) { compare_callback_.set(std::move(function)); }
    void compare(ModuleState& module);

    // Called once, where Python may run, after the trace was found to be cut short or overwritten.
    void on_lost(LostCallback::Function function) { lost_callback_.set(std::move(function)); }
    // Stops recording if the trace is lost. Training goes on.
    void check_trace();

    std::shared_ptr<Group> group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle);
    // The group of buckets whose DDP module could not be found.
    void set_default_group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle);
    std::shared_ptr<ModuleState> add_module(std::shared_ptr<Group> group,
                                            const std::vector<at::Tensor>& parameters,
                                            std::vector<std::string> names,
                                            std::weak_ptr<c10d::Reducer> reducer);
    std::shared_ptr<const BucketLayout> layout(c10d::GradBucket& bucket);

    [[nodiscard]] std::vector<std::shared_ptr<Group>> groups() const;
    [[nodiscard]] std::vector<std::shared_ptr<const BucketLayout>> layouts() const;

    // Steps of the training loop. Without them a step is a synchronising backward pass of a module.
    void wait_begin();
    void step_begin();
    // Both, by times that have passed: of a loop that only showed afterwards that this was a step.
    void step_begun(std::int64_t wait_begin_ns, std::int64_t begin_ns);
    // Returns how many groups are known.
    std::size_t step_end();
    // What began was no step: the next one gets its number. On the thread that began it.
    void step_withdrawn();
    void wait_abandoned();
    // Grows with each backward pass of a module that begins, whether it synchronises or not.
    [[nodiscard]] std::uint64_t backward_signs() const;
    [[nodiscard]] std::uint32_t step_of(const ModuleState& module) const noexcept;
    [[nodiscard]] std::uint32_t step_of(std::uint32_t pass) const noexcept;

    // Opens the record of a named part of the program; nothing while paused or closed.
    [[nodiscard]] Operation begin_phase(std::string_view name);
    // The step that the training loop is in, as far as it is known.
    [[nodiscard]] std::uint32_t current_step() const;

    // Writes what the system has counted for the calling thread, at the end of a module's pass.
    void record_usage(const ModuleState& module) noexcept;
    // Writes fingerprints of some of the module's parameters, at the end of its pass with this number.
    void record_weights(ModuleState& module, std::uint32_t pass);
    // Adds a pause of Python's garbage collector; 0: it is watched from now on.
    void add_collector_pause(std::int64_t ns) noexcept;

    [[nodiscard]] bool sampled(std::uint32_t pass) const noexcept;
    [[nodiscard]] const GradientOptions& gradient_options() const noexcept { return options_.gradients; }

    // A paused recorder's hooks reduce but record nothing.
    void set_paused(bool paused);
    [[nodiscard]] bool paused() const noexcept { return paused_.load(std::memory_order_relaxed); }
    // Callbacks that have already begun still finish, and are recorded; then the file is no longer mapped.
    void close();
    [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

private:
    Recorder(const std::filesystem::path& path, const RecorderOptions& options);

    // What the recorder's own thread does twice a second; it never waits for another thread.
    void beat();
    void sample_connections(std::int64_t now_ns);

    // Under the step's mutex; 0: now.
    void open_step(std::int64_t wait_begin_ns);

    std::shared_ptr<ModuleState> module_of(const std::vector<at::Tensor>& parameters);
    std::shared_ptr<ModuleState> find_module(const std::vector<at::Tensor>& parameters) const;
    std::shared_ptr<ModuleState> anonymous_module();
    // Under the mutex.
    std::shared_ptr<ModuleState> insert_module(std::shared_ptr<Group> group,
                                               const std::vector<at::Tensor>& parameters,
                                               std::vector<std::string> names,
                                               std::weak_ptr<c10d::Reducer> reducer);
    std::shared_ptr<const BucketLayout> make_layout(c10d::GradBucket& bucket);

    RecorderOptions options_;
    TraceFile trace_;
    std::atomic<bool> paused_{false};
    std::atomic<bool> closed_{false};
    LayoutCallback layout_callback_;
    IdentifyCallback identify_callback_;
    CompareCallback compare_callback_;
    LostCallback lost_callback_;

    // Guards the tables below, not the trace, which is lock-free.
    mutable std::mutex mutex_;
    std::shared_ptr<Group> default_group_;
    std::vector<std::shared_ptr<Group>> groups_;
    std::atomic<std::size_t> group_count_{0};  // of these; for whoever has no time for the mutex
    std::vector<std::shared_ptr<ModuleState>> modules_;
    std::vector<std::shared_ptr<const BucketLayout>> layouts_;
    struct CachedLayout {
        // Held weakly so that no other buffer can get the same address while this entry exists.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer;
        std::shared_ptr<const BucketLayout> layout;
    };
    std::unordered_map<const c10::TensorImpl*, CachedLayout> by_buffer_;

    std::mutex step_mutex_;
    Operation step_operation_;
    std::atomic<std::uint32_t> steps_begun_{0};
    std::atomic<std::int64_t> collector_ns_{-1};  // -1: nobody watches the collector

    // Of the pulse's thread alone.
    ConnectionLog connections_;
    History history_;
    std::int64_t next_sample_ns_ = 0;
    // The last member: its thread uses the others.
    std::unique_ptr<Pulse> pulse_;
};

}  // namespace ddpdiag
