#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.hpp"
#include "torch/reduce/future_work.hpp"
#include "torch/reduce/lanes/path.hpp"

namespace ddpdiag::python {
namespace {

// `rates`: latency in ns and ps per byte of each.
std::shared_ptr<Lanes> make_lanes(std::vector<std::string> names,
                                  const std::vector<std::shared_ptr<OwnBackend>>& backends,
                                  const std::vector<std::pair<std::int64_t, std::int64_t>>& rates,
                                  bool tried) {
    std::vector<LaneRate> known;
    known.reserve(rates.size());
    for (const auto& [latency_ns, ps_per_byte] : rates) {
        known.push_back({.latency_ns = latency_ns, .ps_per_byte = ps_per_byte});
    }
    return std::make_shared<Lanes>(std::move(names), backends, std::move(known), tried);
}

LaneParts make_parts(const at::Tensor& buffer, std::shared_ptr<Lanes> lanes) {
    if (!LaneParts::possible(buffer)) {
        throw std::invalid_argument("lanes carry dense and contiguous values on the CPU.");
    }
    return {buffer, std::move(lanes)};
}

c10::intrusive_ptr<c10d::Work> begin(LaneParts& parts, const at::Tensor& buffer) {
    return work_of(parts.begin(buffer));
}

}  // namespace

void bind_lanes(py::module_& module) {
    py::class_<Lanes, std::shared_ptr<Lanes>>(module, "Lanes")
        .def(py::init(&make_lanes), py::arg("names"), py::arg("backends"), py::arg("rates"), py::arg("tried"))
        .def(
            "ends",
            [](const Lanes& lanes, std::optional<std::uint64_t> bytes) { return lanes.shares(bytes).ends; },
            py::arg("bytes") = std::nullopt)
        .def("seconds", &seconds_over, py::arg("bytes"), py::arg("times"),
             py::call_guard<py::gil_scoped_release>());
    py::class_<LaneParts>(module, "LaneParts")
        .def(py::init(&make_parts), py::arg("buffer"), py::arg("lanes"))
        .def("begin", &begin, py::arg("buffer"), py::call_guard<py::gil_scoped_release>())
        .def("bring_back", &LaneParts::bring_back, py::arg("buffer"),
             py::call_guard<py::gil_scoped_release>());
}

}  // namespace ddpdiag::python
