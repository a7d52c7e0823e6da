#include <string>

#include "python/bindings.hpp"

namespace ddpdiag::python {
namespace {

// A method of a class that pybind made, with a look at each call before it: `look(self, arguments, options)`. It replaces
// the method without a trace. Asked by a virtual call in C++ whether a Python subclass overrides that method, pybind takes a
// function of Python's for such an override, and calls it in place of the class's own; this one it knows as C++. And there
// is no frame of ours around the call, by which pybind tells that an override calls what it overrides.
py::object looked_at(const py::object& owner, const std::string& name, const py::function& look) {
    const py::object own = owner.attr(name.c_str());
    const auto call = [own, look](const py::object& self, const py::args& arguments,
                                  const py::kwargs& options) -> py::object {
        look(self, arguments, options);
        return own(self, *arguments, **options);
    };
    const auto text = own.attr("__doc__").cast<std::string>();
    py::options options;
    options.disable_function_signatures();  // the text has its own
    return py::cpp_function(call, py::name(name.c_str()), py::is_method(owner), py::doc(text.c_str()));
}

}  // namespace

void bind_calls(py::module_& module) {
    module.def("looked_at", &looked_at, py::arg("owner"), py::arg("name"), py::arg("look"));
}

}  // namespace ddpdiag::python
