#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "python/bindings.hpp"
#include "torch/probe/backward_probe.hpp"
#include "torch/probe/recorder.hpp"

// What a training calls in every step, as Python's own builtin functions. A step leaves nothing of ours in the processor's
// caches, and of all that a call through pybind reads, as its tables of types, the most part would come from memory.
namespace ddpdiag::python {
namespace {

struct Bound {
    std::shared_ptr<Recorder> recorder;
    std::shared_ptr<ModuleState> module;
};

constexpr const char* bound_name = "pyddpdiag._native.Bound";

const Bound& bound_to(PyObject* self) {
    return *static_cast<const Bound*>(PyCapsule_GetPointer(self, bound_name));
}

// `method` lives as long as the process.
py::object bind(PyMethodDef& method, Bound to) {
    const py::capsule self(new Bound(std::move(to)), bound_name, [](PyObject* capsule) {
        delete static_cast<Bound*>(PyCapsule_GetPointer(capsule, bound_name));
    });
    return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&method, self.ptr(), nullptr));
}

// What `call` returns, or nullptr with its exception as Python's.
template <typename Call>
PyObject* guarded(const Call& call) {
    try {
        return call();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// Calls it with the GIL. Who holds the function may be a graph that any thread releases, even after Python's end.
std::function<void()> called(py::object callback) {
    const std::shared_ptr<py::object> held(new py::object(std::move(callback)), [](py::object* object) {
        if (Py_IsInitialized() == 0) {
            object->release();
            delete object;
            return;
        }
        const py::gil_scoped_acquire gil;
        delete object;
    });
    return [held] {
        const py::gil_scoped_acquire gil;
        try {
            (*held)();
        } catch (py::error_already_set& error) {
            // A look holds its own errors. This one is a signal's, which Python heeds as soon as any of it runs: Ctrl-C, or
            // what the script's handler raised. torch hands it on to whoever called `backward`.
            error.restore();
            python_error signals;
            signals.persist();
            throw signals;
        }
    };
}

PyObject* passes(PyObject* self, PyObject* /*nothing*/) {
    return PyLong_FromUnsignedLong(bound_to(self).module->marks.begun.load(std::memory_order_relaxed));
}

PyObject* step_end(PyObject* self, PyObject* /*nothing*/) {
    return guarded([&] { return PyLong_FromSize_t(bound_to(self).recorder->step_end()); });
}

PyObject* step_begun(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "step_begun() takes two times");
        return nullptr;
    }
    const auto wait_begin = PyLong_AsLongLong(arguments[0]);
    const auto begin = PyLong_AsLongLong(arguments[1]);
    if (PyErr_Occurred() != nullptr) {
        return nullptr;
    }
    return guarded([&] {
        bound_to(self).recorder->step_begun(wait_begin, begin);
        return Py_NewRef(Py_None);
    });
}

PyObject* begin_forward(PyObject* self, PyObject* synchronising) {
    const int is_true = PyObject_IsTrue(synchronising);
    if (is_true < 0) {
        return nullptr;
    }
    return guarded([&] {
        forward_begin(*bound_to(self).module, is_true != 0);
        return Py_NewRef(Py_None);
    });
}

PyObject* end_forward(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "forward_end() takes outputs and what to call");
        return nullptr;
    }
    return guarded([&] {
        std::vector<at::Tensor> outputs;
        if (THPVariable_Check(arguments[0])) {
            outputs.push_back(THPVariable_Unpack(arguments[0]));
        } else {
            outputs = py::handle(arguments[0]).cast<std::vector<at::Tensor>>();
        }
        const Bound& to = bound_to(self);
        forward_end(*to.recorder, to.module, outputs,
                    Py_IsNone(arguments[1]) != 0 ? std::function<void()>()
                                                 : called(py::reinterpret_borrow<py::object>(arguments[1])));
        return Py_NewRef(Py_None);
    });
}

template <typename Function>
PyMethodDef method(const char* name, Function function, int flags) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), flags, nullptr};
}

}  // namespace

void bind_quick(py::module_& module) {
    static PyMethodDef of_passes = method("passes", &passes, METH_NOARGS);
    static PyMethodDef of_step_end = method("step_end", &step_end, METH_NOARGS);
    static PyMethodDef of_step_begun = method("step_begun", &step_begun, METH_FASTCALL);
    static PyMethodDef of_forward_begin = method("forward_begin", &begin_forward, METH_O);
    static PyMethodDef of_forward_end = method("forward_end", &end_forward, METH_FASTCALL);
    module.def(
        "quick_passes",
        [](std::shared_ptr<ModuleState> of) { return bind(of_passes, {nullptr, std::move(of)}); },
        py::arg("module"));
    module.def(
        "quick_steps",
        [](const std::shared_ptr<Recorder>& recorder) {
            return py::make_tuple(bind(of_step_begun, {recorder, nullptr}),
                                  bind(of_step_end, {recorder, nullptr}));
        },
        py::arg("recorder"));
    module.def(
        "quick_forward",
        [](const std::shared_ptr<Recorder>& recorder, const std::shared_ptr<ModuleState>& of) {
            return py::make_tuple(bind(of_forward_begin, {recorder, of}),
                                  bind(of_forward_end, {recorder, of}));
        },
        py::arg("recorder"), py::arg("module"));
}

}  // namespace ddpdiag::python
