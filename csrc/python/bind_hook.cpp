#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "python/bindings.hpp"
#include "torch/backward_probe.hpp"
#include "torch/bucket_hook.hpp"
#include "torch/process_group.hpp"

namespace ddpdiag::python {
namespace {

using torch::jit::PythonFutureWrapper;
using Handle = c10::intrusive_ptr<c10d::ProcessGroup>;

std::shared_ptr<PythonFutureWrapper> hook(const std::shared_ptr<Recorder>& recorder, c10d::GradBucket& bucket,
                                          const std::optional<Handle>& group) {
    // A hook from Python must give DDP a future that holds a Python object. Made here, under the lock.
    const c10::IValue result =
        torch::jit::toIValue(py::cast(bucket.getBufferRef()), c10::PyObjectType::get());
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        // Enqueueing may wait for a mutex of Gloo's; other Python threads go on meanwhile.
        const py::gil_scoped_release nogil;
        future = timed_allreduce(recorder, bucket, group ? recorder->group(*group) : nullptr, result);
    }
    return std::make_shared<PythonFutureWrapper>(std::move(future));
}

}  // namespace

void bind_hook(py::module_& module) {
    module.def("timed_allreduce", &hook, py::arg("recorder"), py::arg("bucket"),
               py::arg("group") = py::none());
    module.def("attach", &attach, py::arg("recorder"), py::arg("module"), py::arg("reducer"),
               py::arg("parameters"));
    module.def("forward_begin", &forward_begin, py::arg("module"), py::arg("synchronising"));
    module.def("forward_end", &forward_end, py::arg("recorder"), py::arg("module"), py::arg("outputs"));
    module.def(
        "backend_name",
        [](const Handle& group, const std::string& device) {
            return backend_name(*group, c10::Device(device).type());
        },
        py::arg("group"), py::arg("device"));
}

}  // namespace ddpdiag::python
