#include "python/bindings.hpp"

PYBIND11_MODULE(_native, module) {
    module.doc() = "Native core of pyddpdiag: trace ring, timing probes, DDP communication hook, flattening.";
    ddpdiag::python::bind_build(module);
    ddpdiag::python::bind_calls(module);
    ddpdiag::python::bind_groups(module);
    ddpdiag::python::bind_recorder(module);
    ddpdiag::python::bind_lanes(module);
    ddpdiag::python::bind_hook(module);
    ddpdiag::python::bind_quick(module);
    ddpdiag::python::bind_flatten(module);
    ddpdiag::python::bind_shared(module);
    ddpdiag::python::bind_sockets(module);
    ddpdiag::python::bind_stacks(module);
}
