#include "core/trace/header.hpp"
#include "core/trace/record.hpp"
#include "python/bindings.hpp"

namespace ddpdiag::python {

void bind_build(py::module_& module) {
    module.def("build_config", [] {
        py::dict config;
        config["torch"] = PYDDPDIAG_TORCH_MINOR;
        config["torch_version"] = PYDDPDIAG_TORCH_VERSION;
        config["compiler"] = PYDDPDIAG_COMPILER;
        config["build_type"] = PYDDPDIAG_BUILD_TYPE;
        config["trace_format"] = std::to_string(trace_major) + "." + std::to_string(trace_minor);
        config["record_bytes"] = sizeof(Record);
        return config;
    });
}

}  // namespace ddpdiag::python
