#include "torch/probe/bucket_operation.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <utility>

#include "torch/probe/finite_watch.hpp"
#include "torch/probe/worker_group.hpp"

namespace ddpdiag {
namespace {

// One torch per process, so one answer. NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> every_start_seen{true};

}  // namespace

bool BucketOperation::starts_are_seen() noexcept {
    return every_start_seen.load(std::memory_order_relaxed);
}

void BucketOperation::begin(std::shared_ptr<Recorder> recorder, std::shared_ptr<const BucketLayout> layout,
                            const Record& record, const PathFacts& facts, bool expects_consumed) {
    recorder_ = std::move(recorder);
    layout_ = std::move(layout);
    record_ = record;
    path_ = facts.name;
    divided_by_ = facts.divided_by;
    awaits_look_.reset();
    counts_collectives_ = facts.collectives.has_value();
    waits_for_device_ = facts.start == StartFrom::path;
    operation_ = recorder_->trace().open(record);
    started_.store(false, std::memory_order_relaxed);
    parts_.store(expects_consumed ? 2 : 1, std::memory_order_relaxed);
    note_.reset();
    on_device_.reset();
}

bool BucketOperation::watched() const {
    return layout_->module->hook.watched.looks;
}

void BucketOperation::look(const at::Tensor& buffer, double divided_by,
                           const std::optional<GradientStatistics>& statistics) {
    if (watched()) {
        take_note({.values = buffer, .divided_by = divided_by, .statistics = statistics}, collectives());
        if (note_->finite()) {
            finite();
        }
    }
}

std::optional<bool> BucketOperation::search(const at::Tensor& buffer) const {
    return all_finite(buffer, layout_->module->hook.searched, layout_->index == 0);
}

void BucketOperation::look_at_fault(const at::Tensor& buffer, double divided_by) {
    if (layout_->module->faults.one_more()) {
        take_note({.values = buffer, .divided_by = divided_by}, collectives());
    }
}

bool BucketOperation::await_look(const at::Tensor& buffer) {
    if (recorder_->gradient_options().per_parameter) {
        return false;
    }
    // From a device, a copy of its own would cost more than this tells.
    awaits_look_ = {.collectives = collectives(),
                    .level = buffer.is_cpu() ? level_of(*layout_, buffer, divided_by_) : 0};
    return true;
}

void BucketOperation::examined(const at::Tensor& buffer, const GradientStatistics& found) {
    if (found.non_finite == 0) {
        finite();
    }
    if (awaits_look_) {
        take_note({.values = buffer,
                   .divided_by = divided_by_,
                   .statistics = found,
                   .averaged = true,
                   .level = awaits_look_->level},
                  awaits_look_->collectives);
    } else if (found.non_finite != 0 && note_ == nullptr && layout_->module->faults.one_more()) {
        // How large they were is lost: the average stands in their place.
        constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
        take_note({.values = buffer,
                   .statistics = GradientStatistics{.sum_squares = unknown,
                                                    .absolute_maximum = unknown,
                                                    .non_finite = found.non_finite,
                                                    .first_non_finite = found.first_non_finite},
                   .averaged = true},
                  collectives());
    }
}

std::uint64_t BucketOperation::collectives() const {
    // A foreign hook may begin collectives whenever one of its own ends, so their number says nothing.
    return counts_collectives_ ? collectives_begun(*layout_->module->identity.group()->lock()).value_or(0)
                               : 0;
}

void BucketOperation::take_note(const Look& seen, std::uint64_t collectives) {
    note_ = std::make_unique<GradientNote>(*recorder_, *layout_, record_, seen, collectives);
}

void BucketOperation::reduced(const at::Tensor& buffer) {
    if (note_ != nullptr) {
        note_->reduced(*recorder_, *layout_, buffer);
    }
    part_done();
}

void BucketOperation::enqueued(const at::Tensor& buffer) {
    if (!buffer.device().is_cpu()) {
        if (!waits_for_device_) {
            // Through c10's device-independent interface: no CUDA is needed to build this.
            const c10::impl::VirtualGuardImpl device(buffer.device().type());
            on_device_ = std::make_unique<c10::Event>(buffer.device().type());
            on_device_->record(device.getStream(buffer.device()));
        }
        operation_.set_flags(flag_device);
    }
    operation_.stamp(bucket_time::enqueued, platform::monotonic_ns());
}

bool BucketOperation::started() {
    if (started_.exchange(true, std::memory_order_relaxed)) {
        return false;
    }
    operation_.stamp(bucket_time::started, platform::monotonic_ns());
    if (!foreign()) {  // which may reduce over another group
        this_worker_serves(record_.group);
    }
    if (on_device_ != nullptr) {
        // Gloo waits for the same work next, before it copies the bucket to the host: this costs nothing.
        on_device_->synchronize();
        produced();
    }
    return true;
}

void BucketOperation::produced() {
    operation_.stamp(bucket_time::device_ready, platform::monotonic_ns());
}

void BucketOperation::ended() {
    // Another hook may reduce without Gloo.
    if (!started_.load(std::memory_order_relaxed) && !foreign()) {
        every_start_seen.store(false, std::memory_order_relaxed);
    }
    operation_.stamp(bucket_time::ended, platform::monotonic_ns());
}

void BucketOperation::consumed() {
    operation_.stamp(bucket_time::consumed, platform::monotonic_ns());
    part_done();
}

void BucketOperation::part_done() {
    if (parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        operation_.complete();
        // The module keeps us, and these keep the module.
        recorder_.reset();
        layout_.reset();
    }
}

std::exception_ptr BucketOperation::failed(const std::exception_ptr& error) {
    if (recorder_ == nullptr) {
        return error;  // it had already ended
    }
    operation_.stamp(bucket_time::ended, platform::monotonic_ns());
    operation_.set_flags(flag_error);
    const auto described = noted(error);
    part_done();
    return described;
}

std::exception_ptr BucketOperation::noted(const std::exception_ptr& error) {
    const auto note = [this](const char* text) {
        recorder_->trace().write_error(record_, operation_.ticket(), text);
        operation_.complete();
    };
    try {
        std::rethrow_exception(error);
    } catch (c10::Error& e) {
        note(e.what_without_backtrace());
        e.add_context(description());
        return std::current_exception();
    } catch (const std::exception& e) {
        note(e.what());
        return std::make_exception_ptr(std::runtime_error(std::string(e.what()) + "\n" + description()));
    } catch (...) {
        note("an exception that is not a std::exception");
        return std::current_exception();
    }
}

std::string BucketOperation::description() const {
    const ModuleIdentity& module = layout_->module->identity;
    std::string text = "pyddpdiag: this error reached rank " + std::to_string(recorder_->rank()) +
                       " while reducing bucket " + std::to_string(layout_->index);
    if (!layout_->parameters.empty() && layout_->parameters.front() < module.names().size()) {
        text += " (" + module.names()[layout_->parameters.front()];
        if (layout_->parameters.size() > 1) {
            text += " and " + std::to_string(layout_->parameters.size() - 1) + " more";
        }
        text += ')';
    }
    std::array<char, 64> size{};
    std::snprintf(size.data(), size.size(), ", %.3f MB", static_cast<double>(layout_->bytes) * 1e-6);
    text += size.data();
    text += ", of step " + std::to_string(record_.step) + " in group '" + module.group()->name + "' of " +
            std::to_string(module.group()->size) + " ranks, by the ";
    text += path_;
    text +=
        " path. Where it says that a connection or another rank was lost, the rank that failed first is "
        "unknown to "
        "this one: see what the other ranks print, or 'pyddpdiag report' over the traces of all.";
    return text;
}

}  // namespace ddpdiag
