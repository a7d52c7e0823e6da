#include <ATen/Functions.h>
#include <pybind11/stl.h>

#include <tuple>

#include "python/bindings.hpp"
#include "torch/flatten/flatten.hpp"

namespace ddpdiag::python {
namespace {

// Two rows each: sum of squares and absolute maximum; count of non-finite values and index of the first, or -1.
std::tuple<at::Tensor, at::Tensor> as_tensors(const std::vector<GradientStatistics>& statistics) {
    const auto count = static_cast<std::int64_t>(statistics.size());
    at::Tensor sizes = at::empty({2, count}, at::kDouble);
    at::Tensor places = at::empty({2, count}, at::kLong);
    auto* size = sizes.mutable_data_ptr<double>();
    auto* place = places.mutable_data_ptr<std::int64_t>();
    for (const GradientStatistics& one : statistics) {
        size[0] = one.sum_squares;
        size[count] = one.absolute_maximum;
        place[0] = static_cast<std::int64_t>(one.non_finite);
        place[count] =
            one.first_non_finite == no_index ? -1 : static_cast<std::int64_t>(one.first_non_finite);
        ++size;
        ++place;
    }
    return {sizes, places};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flatten_(const std::vector<at::Tensor>& tensors,
                                                        const std::optional<at::Tensor>& out, double scale,
                                                        std::optional<at::ScalarType> dtype,
                                                        std::size_t streaming_above, bool by_aten) {
    const py::gil_scoped_release nogil;
    const Flattened result = flatten(tensors, out, dtype, {scale, streaming_above, by_aten});
    const auto [sizes, places] = as_tensors(result.statistics);
    return {result.buffer, sizes, places};
}

void unflatten_(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors, double scale,
                std::size_t streaming_above, bool by_aten) {
    const py::gil_scoped_release nogil;
    unflatten(buffer, tensors, {scale, streaming_above, by_aten});
}

}  // namespace

void bind_flatten(py::module_& module) {
    module.def("flatten", &flatten_, py::arg("tensors"), py::arg("out"), py::arg("scale"), py::arg("dtype"),
               py::arg("streaming_above"), py::arg("by_aten") = false);
    module.def("unflatten_", &unflatten_, py::arg("buffer"), py::arg("tensors"), py::arg("scale"),
               py::arg("streaming_above"), py::arg("by_aten") = false);
}

}  // namespace ddpdiag::python
