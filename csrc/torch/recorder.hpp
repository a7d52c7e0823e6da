// The recorder of one process: its trace file, what it knows of groups, modules and buckets, and its steps.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/trace_file.hpp"
#include "torch/module_state.hpp"
#include "torch/process_group.hpp"

namespace ddpdiag {

// Everything about a bucket that doesn't change from step to step.
struct BucketLayout {
    std::uint64_t identity = 0;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;
    Dtype dtype = Dtype::other;
    std::vector<std::uint32_t> parameters;  // indices into the module's, in the order of the flat buffer
    std::vector<std::uint64_t> ends;        // where each parameter's elements end in the flat buffer
    std::shared_ptr<ModuleState> module;
};

struct RecorderOptions {
    TraceOptions trace;
    // Parameter records are written in every n-th backward pass; 0 = never.
    std::uint32_t parameter_interval = 16;
    GradientOptions gradients;
};

class Recorder : public std::enable_shared_from_this<Recorder> {
public:
    using LayoutCallback = std::function<void()>;
    using CompareCallback =
        std::function<void(const ModuleState& module, const std::vector<Fingerprint>& ours)>;
    using IdentifyCallback = std::function<void(const std::vector<at::Tensor>& parameters)>;

    // Throws platform::SystemError or std::invalid_argument.
    static std::shared_ptr<Recorder> open(const std::filesystem::path& path, const RecorderOptions& options);
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    ~Recorder();

    [[nodiscard]] TraceFile& trace() noexcept { return trace_; }
    [[nodiscard]] const TraceFile& trace() const noexcept { return trace_; }
    [[nodiscard]] std::uint32_t rank() const noexcept { return options_.trace.rank; }

    // Called when a bucket layout turns up that was not known; and when a bucket of an unknown module does,
    // which the callee may answer by add_module(). Both may be called on an autograd thread.
    void on_layout(LayoutCallback callback) { layout_callback_ = std::move(callback); }
    void on_unknown_module(IdentifyCallback callback) { identify_callback_ = std::move(callback); }

    // Called after a pass whose fingerprints the ranks compare, on the thread that runs backward(); may throw, and
    // backward() then does.
    void on_compare(CompareCallback callback) { compare_callback_ = std::move(callback); }
    void compare(ModuleState& module);

    std::shared_ptr<Group> group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle);
    // The group of buckets whose DDP module could not be found.
    void set_default_group(const c10::intrusive_ptr<c10d::ProcessGroup>& handle);
    std::shared_ptr<ModuleState> add_module(std::shared_ptr<Group> group,
                                            const std::vector<at::Tensor>& parameters,
                                            std::vector<std::string> names);
    std::shared_ptr<const BucketLayout> layout(c10d::GradBucket& bucket);

    [[nodiscard]] std::vector<std::shared_ptr<Group>> groups() const;
    [[nodiscard]] std::vector<std::shared_ptr<const BucketLayout>> layouts() const;

    // Steps of the training loop. Without them a step is a synchronising backward pass of a module.
    void wait_begin();
    void step_begin();
    void step_end();
    void wait_abandoned();
    [[nodiscard]] std::uint32_t step_of(const ModuleState& module) const noexcept;
    [[nodiscard]] std::uint32_t step_of(std::uint32_t pass) const noexcept;

    [[nodiscard]] bool sampled(std::uint32_t pass) const noexcept;
    [[nodiscard]] const GradientOptions& gradient_options() const noexcept { return options_.gradients; }

    // A paused recorder's hooks reduce and write nothing.
    void set_paused(bool paused);
    [[nodiscard]] bool paused() const noexcept { return paused_.load(std::memory_order_relaxed); }
    void close();
    [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

private:
    Recorder(const std::filesystem::path& path, const RecorderOptions& options);

    std::shared_ptr<ModuleState> module_of(const std::vector<at::Tensor>& parameters);
    std::shared_ptr<ModuleState> find_module(const std::vector<at::Tensor>& parameters) const;
    std::shared_ptr<const BucketLayout> make_layout(c10d::GradBucket& bucket);

    RecorderOptions options_;
    TraceFile trace_;
    std::atomic<bool> paused_{false};
    std::atomic<bool> closed_{false};
    LayoutCallback layout_callback_;
    IdentifyCallback identify_callback_;
    CompareCallback compare_callback_;

    // Guards the tables below, not the trace, which is lock-free.
    mutable std::mutex mutex_;
    std::shared_ptr<Group> default_group_;
    std::vector<std::shared_ptr<Group>> groups_;
    std::vector<std::shared_ptr<ModuleState>> modules_;
    std::vector<std::shared_ptr<const BucketLayout>> layouts_;
    struct CachedLayout {
        // Held weakly so that no other buffer can have the same address while this entry lives.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer;
        std::shared_ptr<const BucketLayout> layout;
    };
    std::unordered_map<const c10::TensorImpl*, CachedLayout> by_buffer_;

    std::mutex step_mutex_;
    Operation step_operation_;
    std::atomic<std::uint32_t> steps_begun_{0};
};

}  // namespace ddpdiag
