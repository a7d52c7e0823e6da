#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/reducer.hpp>
#include "platform/beside.hpp"
#include "platform/last_signal.hpp"
#include "python/bindings.hpp"
#include "python/stack_looks.hpp"

#include "torch/group.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/probe/start_signal.hpp"
#include "torch/probe/values_mark.hpp"

namespace ddpdiag::python {
namespace {

using GroupHandle = c10::intrusive_ptr<c10d::ProcessGroup>;

int error_number(platform::Cause cause) {
    switch (cause) {
        case platform::Cause::exists:
            return EEXIST;
        case platform::Cause::not_found:
            return ENOENT;
        case platform::Cause::permission:
            return EACCES;
        case platform::Cause::no_space:
            return ENOSPC;
        case platform::Cause::other:
            break;
    }
    return EIO;
}

// A path from Python is UTF-8 on every system.
std::filesystem::path path_of(const std::string& path) {
    return {std::u8string(path.begin(), path.end())};
}

std::shared_ptr<Recorder> open(const std::string& path, std::uint32_t rank, std::uint32_t world_size,
                               const py::bytes& run_id, std::size_t capacity_bytes, bool overwrite,
                               std::uint32_t parameter_interval, std::uint32_t statistics_interval,
                               bool parameter_statistics, std::uint32_t sentinel_interval,
                               bool sample_connections, std::uint32_t weights_interval) {
    RecorderOptions options;
    options.trace.rank = rank;
    options.trace.world_size = world_size;
    options.trace.capacity_bytes = capacity_bytes;
    options.trace.if_exists = overwrite ? platform::IfExists::replace : platform::IfExists::refuse;
    options.parameter_interval = parameter_interval;
    options.sample_connections = sample_connections;
    options.weights_interval = weights_interval;
    options.gradients = {.statistics_interval = statistics_interval,
                         .per_parameter = parameter_statistics,
                         .sentinel_interval = sentinel_interval};
    const auto id = static_cast<std::string>(run_id);
    if (id.size() != options.trace.run_id.size()) {
        throw std::invalid_argument("run_id must have 16 bytes, not " + std::to_string(id.size()));
    }
    std::ranges::copy(id, options.trace.run_id.begin());
    const py::gil_scoped_release nogil;
    return Recorder::open(path_of(path), options);
}

py::dict counters(const Recorder& recorder) {
    const TraceCounters counters = recorder.trace().counters();
    py::dict result;
    result["tickets"] = counters.tickets;
    result["overwritten"] = counters.overwritten;
    result["skipped"] = counters.skipped;
    result["dropped"] = counters.dropped;
    result["capacity"] = recorder.trace().capacity();
    return result;
}

py::dict clock(const Recorder& recorder) {
    const Header& header = recorder.trace().header();
    py::dict result;
    result["name"] = std::string(header.clock_name);
    result["identity"] = std::string(header.clock_identity);
    result["monotonic_ns"] = header.monotonic_ns;
    result["wall_ns"] = header.wall_ns;
    return result;
}

py::list groups(const Recorder& recorder) {
    py::list result;
    for (const auto& group : recorder.groups()) {
        result.append(py::make_tuple(group->id, group->name, group->handle.lock()));
    }
    return result;
}

py::list layouts(const Recorder& recorder) {
    py::list result;
    for (const auto& layout : recorder.layouts()) {
        result.append(py::make_tuple(layout->identity, layout->module->identity.index(), layout->index,
                                     layout->parameters, layout->bytes, static_cast<int>(layout->dtype)));
    }
    return result;
}

py::dict used(const ModuleState& module) {
    const UsedParameters::Counts counts = module.used.counts();
    py::dict result;
    result["passes"] = counts.passes;
    result["passes_with_unused"] = counts.with_unused;
    result["most_unused"] = counts.most_unused;
    result["passes_changed"] = counts.changed;
    result["never_used"] = counts.never_used;
    return result;
}

// Never destroyed: threads may fail while Python shuts down.
py::object& last_look() {
    static auto* const callback = new py::object;
    return *callback;
}

// Gloo's threads fail without the GIL, which the main thread mostly gives up while it waits for them. If it does not, the
// process ends without the look.
void look_before_terminate() {
    constexpr std::chrono::milliseconds longest{500};
    if (Py_IsInitialized() == 0 || PyGILState_Check() != 0) {
        return;
    }
    auto done = std::make_shared<std::promise<void>>();
    platform::start_beside([done] {
        const py::gil_scoped_acquire gil;
        try {
            last_look()();
        } catch (py::error_already_set& error) {
            // Nobody is there to hear of it.
            error.restore();
            PyErr_Clear();
        }
        done->set_value();
    }).detach();
    done->get_future().wait_for(longest);
}

// For `gc.callbacks`: adds the collector's pauses to a recorder. No function of Python's, or that would heed the signals that
// came meanwhile, and what their handlers raise, Ctrl-C's as well, Python prints and drops there. Collections may follow
// each other on different threads, but never overlap: the interpreter runs one at a time. After a long one, whoever waits
// for the interpreter lock gets it, as after a function of Python's: the looks at the stack see at which line that was.
py::cpp_function collector_watch(std::shared_ptr<Recorder> recorder) {
    constexpr std::int64_t long_ns = 1'000'000;
    recorder->add_collector_pause(0);
    py::cpp_function watch([recorder = std::move(recorder), begun = std::int64_t{0}](
                               const std::string& phase, const py::handle& /*facts*/) mutable {
        const std::int64_t now = platform::monotonic_ns();
        if (phase == "start") {
            begun = now;
        } else if (begun != 0) {
            const std::int64_t took = now - std::exchange(begun, 0);
            recorder->add_collector_pause(took);
            if (took >= long_ns) {
                collected_on() = PyThread_get_thread_ident();
                {
                    const py::gil_scoped_release look;
                }
                collected_on() = 0;
            }
        }
    });
    return watch;
}

// A named part of the program that has begun; ends once.
class Phase {
public:
    Phase(std::shared_ptr<Recorder> recorder, const std::string& name)
        : recorder_(std::move(recorder)), operation_(recorder_->begin_phase(name)) {}

    void end() const {
        operation_.stamp(phase_time::end, platform::monotonic_ns());
        operation_.complete();
    }

private:
    std::shared_ptr<Recorder> recorder_;  // keeps the mapping
    Operation operation_;
};

// `callback(module index, fingerprints as bytes)`: NumPy reads the plain structures (pyddpdiag/sentinel.py).
void on_compare(Recorder& recorder, std::function<void(std::uint32_t, py::bytes)> callback) {
    recorder.on_compare([callback = std::move(callback)](const ModuleState& module,
                                                         const std::vector<Fingerprint>& ours) {
        const py::gil_scoped_acquire gil;
        callback(module.identity.index(),
                 py::bytes(reinterpret_cast<const char*>(ours.data()), ours.size() * sizeof(Fingerprint)));
    });
}

// (checksum, norm) of each tensor; None for one that cannot be read.
py::list weight_marks(const std::vector<at::Tensor>& tensors) {
    py::list result;
    for (const at::Tensor& tensor : tensors) {
        std::optional<WeightMark> mark;
        {
            const py::gil_scoped_release nogil;
            mark = mark_of(tensor);
        }
        result.append(mark ? py::object(py::make_tuple(mark->bits, std::sqrt(mark->sum_squares)))
                           : py::none());
    }
    return result;
}

}  // namespace

void bind_recorder(py::module_& module) {
    module.attr("OWN_GROUP") = own_group;
    module.def("note_last_signal",
               [](const std::string& note) { platform::note_last_signal(path_of(note)); });
    module.def("forget_last_signal",
               [](const std::string& note) { platform::forget_last_signal(path_of(note)); });
    module.def(
        "look_before_terminate",
        [](py::object callback) {
            last_look() = std::move(callback);
            platform::before_terminate(&look_before_terminate);
        },
        py::arg("callback"));
    module.def("wait_for_workers", &StartSignal::wait_for_workers, py::call_guard<py::gil_scoped_release>());
    py::register_exception_translator([](std::exception_ptr error) {
        try {
            std::rethrow_exception(std::move(error));
        } catch (const platform::SystemError& e) {
            const py::object text = py::cast(std::string(e.what()));
            PyErr_SetObject(PyExc_OSError, py::make_tuple(error_number(e.cause()), text).ptr());
        }
    });

    py::class_<ModuleState, std::shared_ptr<ModuleState>>(module, "Module")
        .def_property_readonly("index", [](const ModuleState& self) { return self.identity.index(); })
        .def_property_readonly("names", [](const ModuleState& self) { return self.identity.names(); })
        .def_property_readonly("group_id", [](const ModuleState& self) { return self.identity.group()->id; })
        .def(
            "watch_used", [](ModuleState& self, std::size_t parameters) { self.used.watch(parameters); },
            py::arg("parameters"))
        .def("used", &used)
        .def_property_readonly(
            "passes",
            [](const ModuleState& self) { return self.marks.begun.load(std::memory_order_relaxed); })
        .def_property_readonly(
            "waited_ns",
            [](const ModuleState& self) { return self.marks.waited_ns.load(std::memory_order_relaxed); })
        .def(
            "set_reducer",
            [](ModuleState& self, const std::shared_ptr<c10d::Reducer>& reducer) {
                self.identity.set_reducer(reducer);
            },
            py::arg("reducer"));
    module.def("collector_watch", &collector_watch, py::arg("recorder"));
    module.def("weight_marks", &weight_marks, py::arg("tensors"));
    module.def("are_without_gradients", &are_without_gradients, py::arg("parameters"));
    module.def("mark_of_values", &mark_of_values, py::arg("tensor"), py::arg("most"), py::arg("mark"));

    py::class_<Recorder, std::shared_ptr<Recorder>>(module, "Recorder")
        .def(py::init(&open), py::kw_only(), py::arg("path"), py::arg("rank"), py::arg("world_size"),
             py::arg("run_id"), py::arg("capacity_bytes"), py::arg("overwrite"),
             py::arg("parameter_interval"), py::arg("statistics_interval"), py::arg("parameter_statistics"),
             py::arg("sentinel_interval"), py::arg("sample_connections"), py::arg("weights_interval"))
        .def("wait_begin", &Recorder::wait_begin)
        .def("step_begin", &Recorder::step_begin)
        .def("step_end", &Recorder::step_end)
        .def("step_withdrawn", &Recorder::step_withdrawn)
        .def("wait_abandoned", &Recorder::wait_abandoned)
        .def_property_readonly("current_step", &Recorder::current_step)
        .def_property_readonly("backward_signs", &Recorder::backward_signs)
        .def("set_paused", &Recorder::set_paused)
        .def(
            "mark_ended",
            [](Recorder& self, bool orderly) {
                self.trace().mark_ended(orderly ? ProcessEnd::orderly : ProcessEnd::exception);
            },
            py::arg("orderly"))
        .def("close",
             [](Recorder& self) {
                 self.close();
                 const py::gil_scoped_release nogil;
                 StartSignal::wait_for_workers();
             })
        .def_property_readonly("closed", &Recorder::closed)
        .def_property_readonly("paused", &Recorder::paused)
        .def("on_layout", &Recorder::on_layout)
        .def("on_compare", &on_compare)
        .def("on_unknown_module", &Recorder::on_unknown_module)
        .def("on_lost", &Recorder::on_lost)
        .def("set_default_group", &Recorder::set_default_group)
        .def(
            "set_peers",
            [](Recorder& self, const GroupHandle& group, std::vector<std::string> hosts,
               const std::shared_ptr<OwnBackend>& messages) {
                self.group(group)->peers.set(std::make_shared<const Peers>(std::move(hosts), messages));
            },
            py::arg("group"), py::arg("hosts"), py::arg("messages").none(true))
        .def(
            "knows_peers",
            [](Recorder& self, const GroupHandle& group) {
                return self.group(group)->peers.get() != nullptr;
            },
            py::arg("group"))
        .def(
            "add_module",
            [](Recorder& self, const GroupHandle& group, const std::vector<at::Tensor>& parameters,
               std::vector<std::string> names, const std::shared_ptr<c10d::Reducer>& reducer) {
                return self.add_module(self.group(group), parameters, std::move(names), reducer);
            },
            py::arg("group"), py::arg("parameters"), py::arg("names"), py::arg("reducer") = py::none())
        .def("counters", &counters)
        .def("clock", &clock)
        .def("groups", &groups)
        .def("layouts", &layouts);

    py::class_<Phase>(module, "Phase")
        .def(py::init<std::shared_ptr<Recorder>, const std::string&>(), py::arg("recorder"), py::arg("name"))
        .def("end", &Phase::end);
}

}  // namespace ddpdiag::python
