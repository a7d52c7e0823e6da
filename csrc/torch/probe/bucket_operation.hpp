// One bucket in flight through the all-reduce. Travels with the thread-local state to the Gloo worker.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "torch/probe/recorder.hpp"
#include "torch/reduce/facts.hpp"

namespace ddpdiag {

// Reused from pass to pass: memory that one thread allocates and another frees makes both wait for each
// other. On cache lines of its own: two threads write to it, and would slow down each other's neighbours.
class alignas(64) BucketOperation final : public StartListener {
public:
    // Publishes the bucket as in flight. `expects_consumed`: DDP will say when it takes the result. Not while
    // an earlier bucket is in flight.
    void begin(std::shared_ptr<Recorder> recorder, std::shared_ptr<const BucketLayout> layout,
               const Record& record, const PathFacts& facts, bool expects_consumed);

    // In a watched pass: notes this rank's gradients before they are averaged, and the result.
    [[nodiscard]] bool watched() const;
    // `divided_by`: the divisor already applied to them; `statistics`: those of the buffer as it is, if
    // known.
    void look(const at::Tensor& buffer, double divided_by = 1.0,
              const std::optional<GradientStatistics>& statistics = std::nullopt);
    // Whether they are finite, in other passes; nothing: that can't be read.
    [[nodiscard]] std::optional<bool> search(const at::Tensor& buffer) const;
    // Whether all of this rank's gradients are finite; where not, they are noted outside of watched passes too.
    void finite() const { operation_.set_flags(flag_finite); }
    void look_at_fault(const at::Tensor& buffer, double divided_by);
    // Instead of look(): examined() will bring the statistics. False: it must look, at the single parameters, too.
    [[nodiscard]] bool await_look(const at::Tensor& buffer);
    void enqueued(const at::Tensor& buffer);
    void returned() const { operation_.stamp(bucket_time::returned, platform::monotonic_ns()); }
    // On the worker's thread. False: it had started before.
    bool started() override;
    void produced() override;
    // Instead of finite() and look_at_fault(), on the worker's thread.
    void examined(const at::Tensor& buffer, const GradientStatistics& found) override;
    // Of another hook, whose operations are unknown: of any kind, and perhaps several.
    [[nodiscard]] bool foreign() const noexcept { return (record_.flags & flag_foreign) != 0; }
    void ended();
    // The last call there. Undefined: the result is another hook's, in an unknown form.
    void reduced(const at::Tensor& buffer);
    // Replaces both. Writes the error to the trace and returns the error for the training script: the same,
    // with the rank and the bucket in its message.
    [[nodiscard]] std::exception_ptr failed(const std::exception_ptr& error);
    void consumed();
    // DDP will not take the result after all.
    void abandoned() { part_done(); }

    // False once an operation has ended without a visible start: this torch works differently from those we
    // know.
    [[nodiscard]] static bool starts_are_seen() noexcept;

private:
    // Of a look that is to come, when the bucket was enqueued.
    struct Awaited {
        std::uint64_t collectives = 0;
        double level = 0;
    };

    void part_done();
    // Collectives that this rank has begun in the group.
    [[nodiscard]] std::uint64_t collectives() const;
    void take_note(const Look& seen, std::uint64_t collectives);
    [[nodiscard]] std::exception_ptr noted(const std::exception_ptr& error);
    [[nodiscard]] std::string description() const;

    // What both threads touch for every bucket comes first and is small: each line of it goes to the worker and back.
    Operation operation_;
    std::atomic<int> parts_{0};  // how many of reduced and consumed are still to come
    std::atomic<bool> started_{false};
    std::unique_ptr<GradientNote> note_;
    std::unique_ptr<c10::Event> on_device_;  // recorded when the buffer was enqueued on an accelerator
    std::shared_ptr<Recorder> recorder_;
    std::shared_ptr<const BucketLayout> layout_;
    std::string_view path_;    // its name
    double divided_by_ = 1.0;  // the gradients, before the path got them
    std::optional<Awaited> awaits_look_;
    bool counts_collectives_ = true;  // it says how many it begins
    bool waits_for_device_ = false;   // by itself
    Record record_{};
};

}  // namespace ddpdiag
