// The parts that module.cpp combines.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ddpdiag::python {

namespace py = pybind11;

void bind_build(py::module_& module);
void bind_calls(py::module_& module);
void bind_groups(py::module_& module);
void bind_recorder(py::module_& module);
void bind_shared(py::module_& module);
void bind_sockets(py::module_& module);
void bind_stacks(py::module_& module);
void bind_lanes(py::module_& module);
void bind_hook(py::module_& module);
void bind_quick(py::module_& module);
void bind_flatten(py::module_& module);

}  // namespace ddpdiag::python
