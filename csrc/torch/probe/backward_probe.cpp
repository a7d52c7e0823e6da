#include "torch/probe/backward_probe.hpp"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace ddpdiag {
namespace {

using torch::autograd::variable_list;

// Runs `function` when gradients arrive at a node, and passes them on unchanged.
template <typename Function>
class Observer final : public torch::autograd::FunctionPreHook {
public:
    explicit Observer(Function function) : function_(std::move(function)) {}

    variable_list operator()(const variable_list& gradients) override {
        function_();
        return gradients;
    }
    // Compiled autograd runs its own graph, without these probes; DDP's own hooks do the same.
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

private:
    Function function_;
};

template <typename Function>
std::unique_ptr<torch::autograd::FunctionPreHook> observer(Function function) {
    return std::make_unique<Observer<Function>>(std::move(function));
}

struct ThreadsPass {
    int graph_task = -1;            // torch's number of the backward pass; -1: none
    ModuleState* module = nullptr;  // the accumulators that the pass holds keep it
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local ThreadsPass threads_pass;

void gradient_ready(Recorder& recorder, ModuleState& module, std::uint32_t parameter, std::uint64_t bytes) {
    module.used.ready(parameter);
    threads_pass = {.graph_task = torch::autograd::get_current_graph_task_id(), .module = &module};
    PassMarks& marks = module.marks;
    const bool first = marks.first_gradient.load(std::memory_order_relaxed) == 0;
    const bool sampled = marks.sampled.load(std::memory_order_relaxed);
    if (!first && !sampled) {
        return;
    }
    const std::int64_t now = platform::monotonic_ns();
    if (first) {
        std::int64_t not_seen = 0;
        marks.first_gradient.compare_exchange_strong(not_seen, now, std::memory_order_relaxed);
    }
    if (!sampled || recorder.closed() || recorder.paused()) {
        return;
    }
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::parameter);
    record.group = module.identity.group()->id;
    record.bytes = bytes;
    record.step = recorder.step_of(marks.number.load(std::memory_order_relaxed));
    record.module = module.identity.index();
    record.index = parameter;
    record.thread = platform::thread_id();
    record.times[parameter_time::ready] = now;
    recorder.trace().write(record);
}

Record backward_record(const Recorder& recorder, ModuleState& module, bool sampled) {
    Record record{};
    record.kind = static_cast<std::uint16_t>(Kind::backward);
    record.flags = sampled ? flag_sampled : 0U;
    record.group = module.identity.group()->id;
    record.step = recorder.step_of(module);
    record.module = module.identity.index();
    record.thread = platform::thread_id();
    record.times[backward_time::begin] = module.marks.backward_begin.exchange(0, std::memory_order_relaxed);
    record.times[backward_time::first_gradient] =
        module.marks.first_gradient.exchange(0, std::memory_order_relaxed);
    record.times[backward_time::forward_begin] =
        module.marks.forward_begin.exchange(0, std::memory_order_relaxed);
    record.times[backward_time::forward_end] =
        module.marks.forward_end.exchange(0, std::memory_order_relaxed);
    return record;
}

struct Pass {
    std::uint32_t number;
    bool sampled;
};

Pass count_pass(const Recorder& recorder, ModuleState& module) {
    module.marks.backward_signs.fetch_add(1, std::memory_order_relaxed);
    const Pass pass{.number = module.marks.begun.fetch_add(1, std::memory_order_relaxed),
                    .sampled = module.marks.sampled.load(std::memory_order_relaxed)};
    module.hook.watched = WatchedPass::due(recorder.gradient_options(), pass.number);
    module.fingerprints.clear();
    return pass;
}

std::shared_ptr<BackwardPass> record_pass(const std::shared_ptr<Recorder>& recorder,
                                          const std::shared_ptr<ModuleState>& module, const Group& group,
                                          const Pass& pass, bool needs_probe) {
    const bool paused = recorder->paused();
    const Operation operation =
        paused ? Operation{} : recorder->trace().open(backward_record(*recorder, *module, pass.sampled));
    return std::make_shared<BackwardPass>(recorder, module, group, pass.number, operation,
                                          needs_probe || paused);
}

}  // namespace

ModuleState* module_in_backward() noexcept {
    const int graph_task = torch::autograd::get_current_graph_task_id();
    return graph_task != -1 && graph_task == threads_pass.graph_task ? threads_pass.module : nullptr;
}

std::shared_ptr<BackwardPass> open_pass(const std::shared_ptr<Recorder>& recorder,
                                        const std::shared_ptr<ModuleState>& module, const Group& group,
                                        bool needs_probe) {
    return record_pass(recorder, module, group, count_pass(*recorder, *module), needs_probe);
}

bool begin_backward(const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& module,
                    const Group& group, bool needs_probe) {
    const Pass pass = count_pass(*recorder, *module);
    if (torch::autograd::get_current_graph_task_id() == -1) {
        return false;
    }
    // While paused there is nothing to record, but the other ranks, which need not be paused, wait for our
    // comparison.
    if (recorder->paused() && !module->hook.watched.compares) {
        return true;
    }
    auto begun = record_pass(recorder, module, group, pass, needs_probe);
    // Callbacks run in the order in which they were queued, after the graph: this one runs before DDP's
    // finalisation, which is queued with the last bucket, and the one that it queues itself runs after it.
    torch::autograd::Engine::get_default_engine().queue_callback([begun = std::move(begun)] {
        begun->finalize_begin();
        torch::autograd::Engine::get_default_engine().queue_callback([begun] { begun->finalize_end(); });
    });
    return true;
}

ParameterWatch::ParameterWatch(const std::shared_ptr<Recorder>& recorder,
                               const std::shared_ptr<ModuleState>& module,
                               const std::vector<at::Tensor>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto bytes = parameters[i].nbytes();
        // Before the accumulator and not after it: DDP's own hook runs after it, and for the last gradient of
        // a bucket it runs the whole bucket hook.
        const auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
        auto ours = observer([recorder, module, index = static_cast<std::uint32_t>(i), bytes] {
            gradient_ready(*recorder, *module, index, bytes);
        });
        watched_.push_back(
            {.parameter = WeakParameter(parameters[i].getIntrusivePtr()), .observer = ours.get()});
        accumulator->add_pre_hook(std::move(ours));
    }
}

void ParameterWatch::end() {
    for (const Watched& watched : watched_) {
        const at::Tensor parameter(watched.parameter.lock());
        if (!parameter.defined()) {
            continue;
        }
        // Its type depends on torch's version.
        if (const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter)) {
            std::erase_if(accumulator->pre_hooks(),
                          [&](const auto& hook) { return hook.get() == watched.observer; });
        }
    }
    watched_.clear();
}

void forward_begin(ModuleState& module, bool synchronising) {
    module.marks.synchronising.store(synchronising, std::memory_order_relaxed);
    module.marks.forward_begin.store(platform::monotonic_ns(), std::memory_order_relaxed);
    module.marks.forward_end.store(0, std::memory_order_relaxed);
}

void forward_end(const Recorder& recorder, const std::shared_ptr<ModuleState>& module,
                 const std::vector<at::Tensor>& outputs, std::function<void()> begins) {
    PassMarks& marks = module->marks;
    marks.forward_end.store(platform::monotonic_ns(), std::memory_order_relaxed);
    marks.backward_begin.store(0, std::memory_order_relaxed);
    marks.first_gradient.store(0, std::memory_order_relaxed);
    module->used.begin_pass();
    const std::uint32_t pass = marks.begun.load(std::memory_order_relaxed);
    marks.number.store(pass, std::memory_order_relaxed);
    marks.sampled.store(marks.synchronising.load(std::memory_order_relaxed) && recorder.sampled(pass),
                        std::memory_order_relaxed);
    if (!c10::GradMode::is_enabled()) {
        return;
    }
    marks.armed.store(true, std::memory_order_relaxed);
    for (const at::Tensor& output : outputs) {
        if (const auto& node = output.grad_fn(); node != nullptr) {
            node->add_pre_hook(observer([module, begins = std::exchange(begins, {})] {
                if (begins) {
                    begins();
                }
                if (module->marks.armed.exchange(false, std::memory_order_relaxed)) {
                    module->marks.backward_begin.store(platform::monotonic_ns(), std::memory_order_relaxed);
                    module->marks.backward_signs.fetch_add(1, std::memory_order_relaxed);
                }
            }));
        }
    }
}

}  // namespace ddpdiag
