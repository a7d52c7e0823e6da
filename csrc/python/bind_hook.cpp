#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "python/bindings.hpp"
#include "torch/backward_probe.hpp"
#include "torch/bucket_hook.hpp"
#include "torch/foreign_hook.hpp"
#include "torch/process_group.hpp"
#include "torch/reduction.hpp"

namespace ddpdiag::python {
namespace {

using torch::jit::PythonFutureWrapper;
using Handle = c10::intrusive_ptr<c10d::ProcessGroup>;

std::shared_ptr<PythonFutureWrapper> hook(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                                          const std::optional<Handle>& group, std::uint8_t compression) {
    // A hook from Python must give DDP a future that holds a Python object. Made here, under the lock.
    const c10::IValue result =
        torch::jit::toIValue(py::cast(bucket.getBufferRef()), c10::PyObjectType::get());
    const auto over = group ? recorder->group(*group) : nullptr;
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        // Not only for the sake of other Python threads: enqueueing waits for a mutex of Gloo's, under which a worker
        // may let go of a finished work and with it of a Python object, for which it needs the lock.
        const py::gil_scoped_release nogil;
        future = timed_allreduce(recorder, bucket, over, result, Compression{compression});
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
    module.def("timed_allreduce", &hook, py::arg("recorder"), py::arg("bucket"),
               py::arg("group") = py::none(), py::arg("compression") = 0);
    // The group of the bucket's DDP module.
    module.def(
        "group_of",
        [](const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket) {
            const py::gil_scoped_release nogil;
            return recorder->layout(bucket)->module->group->lock();
        },
        py::arg("recorder"), py::arg("bucket"));
    module.def("timed_foreign", &foreign, py::arg("recorder"), py::arg("bucket"), py::arg("hook"),
               py::arg("group") = py::none());
    module.def(
        "attach",
        [](const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& state,
           c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters, std::uint8_t compression,
           bool error_feedback) {
            attach(recorder, state, reducer, parameters,
                   {.to = Compression{compression}, .error_feedback = error_feedback});
        },
        py::arg("recorder"), py::arg("module"), py::arg("reducer"), py::arg("parameters"),
        py::arg("compression") = 0, py::arg("error_feedback") = false);
    module.def("forward_begin", &forward_begin, py::arg("module"), py::arg("synchronising"));
    module.def("forward_end", &forward_end, py::arg("recorder"), py::arg("module"), py::arg("outputs"));
    py::class_<Reduction>(module, "Reduction")
        .def(py::init<std::shared_ptr<Recorder>, std::shared_ptr<ModuleState>>(), py::arg("recorder"),
             py::arg("module"))
        .def("first_gradient", &Reduction::first_gradient)
        // Without the lock, as the hook above.
        .def("begin", &Reduction::begin, py::arg("index"), py::arg("count"), py::arg("buffer"),
             py::arg("parameters"), py::call_guard<py::gil_scoped_release>())
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
