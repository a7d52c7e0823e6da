#include <pybind11/stl.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "python/bindings.hpp"
#include "python/stack_looks.hpp"

namespace ddpdiag::python {
namespace {

// Copied first: while Python's lists are made, the other thread may look.
std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>, std::vector<std::size_t>,
           std::vector<StackNumbers>>
kept(const StackLooks& looks) {
    const StackSamples& samples = looks.samples();
    return {samples.interval(), samples.missed(), samples.at(), samples.places(), samples.stacks()};
}

}  // namespace

void bind_stacks(py::module_& module) {
    py::class_<StackLooks>(module, "StackLooks")
        .def(py::init<std::uint64_t, py::function, std::size_t, std::size_t, std::size_t>(),
             py::arg("thread"), py::arg("name_of"), py::kw_only(), py::arg("samples"), py::arg("stacks"),
             py::arg("depth"))
        .def("look", &StackLooks::look, py::arg("paused"))
        .def("kept", &kept)
        .def("code", &StackLooks::code, py::arg("number"))
        .def("module", &StackLooks::module, py::arg("number"));
}

}  // namespace ddpdiag::python
