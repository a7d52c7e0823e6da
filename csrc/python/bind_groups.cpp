#include <memory>
#include <utility>

#include "python/bindings.hpp"
#include "torch/own_backend.hpp"

namespace ddpdiag::python {
namespace {

std::shared_ptr<OwnBackend> make_own(c10::intrusive_ptr<c10d::Backend> backend) {
    // Its end waits for Gloo's threads, one of which may need the GIL, to let go of a tensor of Python's.
    const auto end = [](OwnBackend* own) {
        if (PyGILState_Check() == 0) {
            delete own;
            return;
        }
        const py::gil_scoped_release nogil;
        delete own;
    };
    return {new OwnBackend(std::move(backend)), end};
}

}  // namespace

void bind_groups(py::module_& module) {
    py::class_<OwnBackend, std::shared_ptr<OwnBackend>>(module, "OwnBackend")
        .def(py::init(&make_own), py::arg("backend"));
}

}  // namespace ddpdiag::python
