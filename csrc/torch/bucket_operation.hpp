// One bucket on its way through the all-reduce. Travels with the thread-local state to the Gloo worker.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "torch/recorder.hpp"

namespace ddpdiag {

// Used again from pass to pass: what is allocated by one thread and freed by another makes both wait for each other.
class BucketOperation : public c10::DebugInfoBase {
public:
    // Publishes the bucket as in flight. `expects_consumed`: DDP will say when it takes the result. Not while an earlier
    // one is under way.
    void begin(std::shared_ptr<Recorder> recorder, std::shared_ptr<const BucketLayout> layout,
               const Record& record, bool expects_consumed);

    // In a watched pass: notes this rank's gradients before they are averaged, and the result.
    [[nodiscard]] bool watched() const;
    // `divided_by`: what they were divided by already; `statistics`: of the buffer as it is, if they are known.
    void look(const at::Tensor& buffer, double divided_by = 1.0,
              const std::optional<GradientStatistics>& statistics = std::nullopt);
    void enqueued(const at::Tensor& buffer);
    void returned() const { operation_.stamp(bucket_time::returned, platform::monotonic_ns()); }
    // On the Gloo worker thread.
    void started();
    void ended();
    // The last thing there. Nothing: the result is another hook's, who knows in what form.
    void reduced(const std::optional<at::Tensor>& buffer);
    // Instead of both. Writes the error to the trace and gives back the error that the training script gets: the same, with
    // the rank and the bucket in its message.
    [[nodiscard]] std::exception_ptr failed(const std::exception_ptr& error);
    void consumed();
    // DDP will not take the result after all.
    void abandoned() { part_done(); }

    // False once an operation has ended whose start had not been seen: this torch works otherwise than we know.
    [[nodiscard]] static bool starts_are_seen() noexcept;

private:
    void part_done();
    [[nodiscard]] std::exception_ptr noted(const std::exception_ptr& error);
    [[nodiscard]] std::string description() const;

    // What both threads touch for every bucket comes first and is small: each line of it goes to the worker and back.
    Operation operation_;
    std::atomic<int> parts_{0};  // of reduced and consumed, those still to come
    std::atomic<bool> started_{false};
    std::unique_ptr<GradientNote> note_;
    std::unique_ptr<c10::Event> on_device_;  // recorded when the buffer was enqueued on an accelerator
    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<const BucketLayout> layout_;
    Record record_{};
};

}  // namespace ddpdiag
