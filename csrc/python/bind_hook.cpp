#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "python/bindings.hpp"
#include "torch/group.hpp"
#include "torch/hook/ddp_hook.hpp"
#include "torch/hook/detached.hpp"
#include "torch/hook/foreign_hook.hpp"
#include "torch/hook/plain_ddp.hpp"
#include "torch/hook/reducer_parts.hpp"
#include "torch/hook/reduction.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/reduce/choose_path.hpp"
#include "torch/reduce/lanes/path.hpp"
#include "torch/reduce/shared/ranks.hpp"

namespace ddpdiag::python {
namespace {

using torch::jit::PythonFutureWrapper;
using Handle = c10::intrusive_ptr<c10d::ProcessGroup>;

// A Python hook must give DDP a future that holds a Python object. Make it here, under the GIL.
c10::IValue python_object(c10d::GradBucket& bucket) {
    return torch::jit::toIValue(py::cast(bucket.getBufferRef()), c10::PyObjectType::get());
}

// Of a module that was detached from the recorder that its Python hook has; nullptr: it was not.
std::shared_ptr<PythonFutureWrapper> detached_hook(c10d::GradBucket& bucket) {
    const auto hook = detached_hook_of(bucket);
    if (hook == nullptr) {
        return nullptr;
    }
    const HookOfModule::Caller caller{.wants = Wants::object, .object = python_object(bucket)};
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        // Not only for other Python threads: enqueueing waits for a mutex of Gloo. Under that mutex a worker may
        // release a finished work, and with it a Python object, for which it needs the GIL.
        const py::gil_scoped_release nogil;
        future = hook->run(bucket, caller);
    }
    return std::make_shared<PythonFutureWrapper>(std::move(future));
}

std::shared_ptr<PythonFutureWrapper> hook(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                                          const std::optional<Handle>& group, const PathOptions& options) {
    if (auto future = detached_hook(bucket)) {
        return future;
    }
    const c10::IValue result = python_object(bucket);
    const auto over = group ? recorder->group(*group) : nullptr;
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        const py::gil_scoped_release nogil;  // as above
        future = timed_allreduce(recorder, bucket, over, result, options);
    }
    return std::make_shared<PythonFutureWrapper>(std::move(future));
}

std::shared_ptr<PythonFutureWrapper> foreign(const std::shared_ptr<Recorder>& recorder,
                                             c10d::GradBucket& bucket, const py::function& hook,
                                             const std::optional<Handle>& group) {
    std::shared_ptr<PythonFutureWrapper> wrapper;
    timed_foreign(recorder, bucket, group ? recorder->group(*group) : nullptr, [&] {
        wrapper = py::cast<std::shared_ptr<PythonFutureWrapper>>(hook());
        return wrapper->fut;
    });
    return wrapper;
}

}  // namespace

void bind_hook(py::module_& module) {
    py::enum_<Compression>(module, "Compression")
        .value("none", Compression::none)
        .value("bf16", Compression::bf16)
        .value("fp16", Compression::fp16);
    py::class_<PathOptions>(module, "PathOptions")
        .def(py::init([](Compression compression, bool error_feedback, std::shared_ptr<SharedRanks> shared,
                         std::shared_ptr<Lanes> lanes) {
                 return PathOptions{.compression = compression,
                                    .error_feedback = error_feedback,
                                    .shared = std::move(shared),
                                    .lanes = std::move(lanes)};
             }),
             py::arg("compression") = Compression::none, py::arg("error_feedback") = false,
             py::arg("shared") = nullptr, py::arg("lanes") = nullptr);
    module.def("timed_allreduce", &hook, py::arg("recorder"), py::arg("bucket"),
               py::arg("group") = py::none(), py::arg("options") = PathOptions{});
    // What a hook of ours does before it opens or needs a recorder, as timed_allreduce() itself does: None, unless the
    // bucket's module was detached from the recorder that the hook has.
    module.def("detached_allreduce", &detached_hook, py::arg("bucket"));
    // The group of the bucket's DDP module.
    module.def(
        "group_of",
        [](const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket) {
            const py::gil_scoped_release nogil;
            return recorder->layout(bucket)->module->identity.group()->lock();
        },
        py::arg("recorder"), py::arg("bucket"));
    module.def("timed_foreign", &foreign, py::arg("recorder"), py::arg("bucket"), py::arg("hook"),
               py::arg("group") = py::none());
    // Its functions are called between two backward passes.
    py::class_<Attachment>(module, "Attachment")
        .def(py::init<const std::shared_ptr<Recorder>&, const std::shared_ptr<ModuleState>&,
                      const std::vector<at::Tensor>&, const PathOptions&>(),
             py::arg("recorder"), py::arg("module"), py::arg("parameters"), py::arg("options"))
        .def(py::init([](const Handle& group, const std::vector<at::Tensor>& parameters) {
                 return std::make_unique<Attachment>(std::make_shared<Group>(group), parameters);
             }),
             py::arg("group"), py::arg("parameters"))
        .def("serve", &Attachment::serve, py::arg("recorder"), py::arg("module"), py::arg("parameters"),
             py::arg("options"))
        .def("release", &Attachment::release);
    // The parameters of each bucket of DDP's reducer; also within its hook.
    module.def("parameters_of", &parameters_of, py::arg("reducer"));
    module.def("expects_sparse", &expects_sparse, py::arg("reducer"));
    py::class_<JoinedPass>(module, "JoinedPass")
        .def(py::init<const std::shared_ptr<ModuleState>&>(), py::arg("module"));
    py::class_<Reduction>(module, "Reduction")
        .def(py::init<std::shared_ptr<Recorder>, std::shared_ptr<ModuleState>, PathOptions>(),
             py::arg("recorder"), py::arg("module"), py::arg("options"))
        .def("first_gradient", &Reduction::first_gradient)
        // Without the GIL, like the hook above.
        .def("begin", &Reduction::begin, py::arg("index"), py::arg("count"), py::arg("buffer"),
             py::arg("parameters"), py::arg("number"), py::call_guard<py::gil_scoped_release>())
        .def("waiting", &Reduction::waiting)
        .def("taken", &Reduction::taken)
        .def("done", &Reduction::done, py::call_guard<py::gil_scoped_release>());
    module.def(
        "backend_name",
        [](const Handle& group, const std::string& device) {
            return backend_name(*group, c10::Device(device).type());
        },
        py::arg("group"), py::arg("device"));
}

}  // namespace ddpdiag::python
