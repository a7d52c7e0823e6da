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

#include "core/shared_member.hpp"
#include "python/bindings.hpp"
#include "torch/probe/recorder.hpp"
#include "torch/reduce/future_work.hpp"
#include "torch/reduce/gloo_between.hpp"
#include "torch/reduce/shared_path.hpp"
#include "torch/reduce/shared_place.hpp"
#include "torch/reduce/shared_ranks.hpp"

namespace ddpdiag::python {
namespace {

using Handle = c10::intrusive_ptr<c10d::ProcessGroup>;

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

// A bucket that nobody records. Its gradients are divided already.
c10::intrusive_ptr<c10d::Work> add_up(const std::shared_ptr<SharedRanks>& ranks, const at::Tensor& buffer,
                                      std::uint64_t number) {
    if (!SharedPath::possible(buffer)) {
        throw std::invalid_argument("this tensor cannot lie in shared memory.");
    }
    return work_of(SharedPlace().average(*ranks, buffer, number, /*divided=*/true, nullptr),
                   helper_of(ranks));
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
    py::class_<HostLink, std::shared_ptr<HostLink>>(module, "HostLink")
        .def(py::init<c10::intrusive_ptr<c10d::Backend>>(), py::arg("backend"));
    py::class_<GlooBetween, std::shared_ptr<GlooBetween>>(module, "GlooBetween")
        .def(py::init<const std::shared_ptr<HostLink>&, const c10::intrusive_ptr<c10d::Store>&,
                      std::vector<std::string>, std::size_t>(),
             py::arg("link"), py::arg("store"), py::arg("names"), py::arg("home"));
    py::class_<SharedRanks, std::shared_ptr<SharedRanks>>(module, "SharedRanks")
        .def(py::init(&make_ranks), py::arg("own"), py::arg("peers"), py::arg("names"), py::arg("timeout_ms"),
             py::arg("between") = nullptr)
        .def("add_up", &add_up, py::arg("buffer"), py::arg("number"),
             py::call_guard<py::gil_scoped_release>());
    module.def(
        "share_memory",
        [](Recorder& recorder, const Handle& group, std::shared_ptr<SharedRanks> ranks) {
            recorder.group(group)->sharing.set(std::move(ranks));
        },
        py::arg("recorder"), py::arg("group"), py::arg("ranks"));
    module.def(
        "shares_memory",
        [](Recorder& recorder, const Handle& group) {
            return recorder.group(group)->sharing.get() != nullptr;
        },
        py::arg("recorder"), py::arg("group"));
}

}  // namespace ddpdiag::python
