#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/shared/member.hpp"
#include "python/bindings.hpp"
#include "torch/reduce/future_work.hpp"
#include "torch/reduce/pinning.hpp"
#include "torch/reduce/shared/gloo_between.hpp"
#include "torch/reduce/shared/path.hpp"
#include "torch/reduce/shared/place.hpp"
#include "torch/reduce/shared/ranks.hpp"

namespace ddpdiag::python {
namespace {

template <typename Member>
py::bytes secret(const Member& member) {
    const SharedSecret words = member.secret();
    return {reinterpret_cast<const char*>(words.data()), sizeof words};
}

// What is mapped is taken over: the Python objects are empty afterwards.
std::shared_ptr<SharedRanks> make_ranks(SharedMember& own, const std::vector<SharedPeer*>& peers,
                                        std::vector<std::string> names, std::int64_t timeout_ms,
                                        std::shared_ptr<GlooBetween> between) {
    std::vector<std::optional<SharedPeer>> others;
    others.reserve(peers.size());
    for (SharedPeer* const peer : peers) {
        others.push_back(peer != nullptr ? std::optional<SharedPeer>(std::move(*peer)) : std::nullopt);
    }
    return std::make_shared<SharedRanks>(std::move(own), std::move(others), std::move(names),
                                         std::chrono::milliseconds(timeout_ms), std::move(between));
}

// A bucket that nobody records. Its gradients are divided already. `place`: kept by the caller for this buffer and these
// ranks. nullptr: the sum is complete already, as of small ones that all ranks bring at once; to make a work for it and to
// wait for that would take as long again.
c10::intrusive_ptr<c10d::Work> add_up(const std::shared_ptr<SharedRanks>& ranks, const at::Tensor& buffer,
                                      std::uint64_t number, SharedPlace& place) {
    if (!SharedPath::possible(buffer)) {
        throw std::invalid_argument("this tensor cannot lie in shared memory.");
    }
    auto future =
        place.average(*ranks, buffer, number, /*divided=*/true, /*start=*/nullptr, /*watched=*/false);
    // On an accelerator a wait is needed all the same: it makes the current streams wait.
    if (buffer.is_cpu() && future->completed() && !future->hasError()) {
        return nullptr;
    }
    return work_of(std::move(future), helper_of(ranks));
}

// Called with the GIL. The functions live as long as the process: there is no moment at which the last pinned memory is
// known to be gone.
void pin_with(const std::string& device, py::function pin, py::function unpin) {
    const auto call = [](py::handle function, auto... arguments) {
        const py::gil_scoped_acquire gil;
        try {
            return function(arguments...).template cast<bool>();
        } catch (const std::exception& error) {
            static_cast<void>(error);  // training goes on without it
            return false;
        }
    };
    const py::handle pins = pin.release();
    const py::handle unpins = unpin.release();
    const py::gil_scoped_release no_gil;  // whoever pins right now needs it
    set_pinning(c10::Device(device).type(),
                {.pin = [=](std::uintptr_t address, std::size_t bytes) { return call(pins, address, bytes); },
                 .unpin = [=](std::uintptr_t address) { call(unpins, address); }});
}

}  // namespace

void bind_shared(py::module_& module) {
    py::class_<SharedMember>(module, "SharedMember")
        .def(py::init<>())
        .def_property_readonly("name", &SharedMember::name)
        .def_property_readonly("secret", &secret<SharedMember>);
    py::class_<SharedPeer>(module, "SharedPeer")
        .def(py::init<const std::string&, std::uint64_t>(), py::arg("name"), py::arg("process"))
        .def_property_readonly("secret", &secret<SharedPeer>);
    py::class_<GlooBetween, std::shared_ptr<GlooBetween>>(module, "GlooBetween")
        .def(py::init<const std::shared_ptr<OwnBackend>&, const c10::intrusive_ptr<c10d::Store>&,
                      std::vector<std::string>, std::size_t>(),
             py::arg("link"), py::arg("store"), py::arg("names"), py::arg("home"));
    py::class_<SharedPlace>(module, "SharedPlace").def(py::init<>());
    py::class_<SharedRanks, std::shared_ptr<SharedRanks>>(module, "SharedRanks")
        .def(py::init(&make_ranks), py::arg("own"), py::arg("peers"), py::arg("names"), py::arg("timeout_ms"),
             py::arg("between") = nullptr)
        .def("add_up", &add_up, py::arg("buffer"), py::arg("number"), py::arg("place"),
             py::call_guard<py::gil_scoped_release>())
        .def("give_up", &SharedRanks::give_up, py::call_guard<py::gil_scoped_release>());
    module.def("pin_with", &pin_with, py::arg("device"), py::arg("pin"), py::arg("unpin"));
    module.def("end_pinning", &end_pinning, py::call_guard<py::gil_scoped_release>());
}

}  // namespace ddpdiag::python
