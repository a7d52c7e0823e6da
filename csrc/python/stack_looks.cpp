#include "python/stack_looks.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "platform/platform.hpp"

namespace ddpdiag::python {
namespace {

// Frames of one stack that are looked at, so that a deep recursion costs no more.
constexpr int walk_limit = 200;
constexpr std::size_t codes_limit = 10'000;
constexpr std::size_t files_limit = 10'000;

py::object owned(void* object) {
    return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
}

// The oldest with this number: a thread that has not begun has that of the one that starts it.
PyThreadState* state_of(std::uint64_t thread) {
    PyThreadState* found = nullptr;
    for (PyThreadState* state = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); state != nullptr;
         state = PyThreadState_Next(state)) {
        if (std::uint64_t{state->thread_id} == thread) {
            found = state;
        }
    }
    if (found == nullptr) {
        throw std::invalid_argument("no thread of Python has the number " + std::to_string(thread) + ".");
    }
    return found;
}

}  // namespace

StackLooks::StackLooks(std::uint64_t thread, py::function name_of, std::size_t samples, std::size_t stacks,
                       std::size_t depth)
    : thread_(state_of(thread)),
      name_of_(std::move(name_of)),
      depth_(depth),
      samples_(samples, stacks),
      random_(static_cast<std::minstd_rand::result_type>(platform::monotonic_ns())) {}

double StackLooks::look(bool paused) {
    if (!paused && take()) {
        const std::int64_t now = platform::monotonic_ns();
        samples_.add(now, taken_, due_ == 0 ? 0 : now - due_);
    }
    const std::int64_t before = std::exchange(used_, platform::thread_cpu_ns());
    if (before >= 0 && used_ >= before) {
        samples_.spent(used_ - before);
    }
    std::uniform_real_distribution<double> part(0.5, 1.5);
    const double wait_ns = static_cast<double>(samples_.interval()) * part(random_);
    due_ = platform::monotonic_ns() + static_cast<std::int64_t>(wait_ns);
    return wait_ns / 1e9;
}

std::string StackLooks::module(std::int64_t number) const {
    const auto found = modules_.find(number);
    return found == modules_.end() ? std::string() : found->second;
}

bool StackLooks::take() {
    py::object frame = owned(PyThreadState_GetFrame(thread_));
    if (!frame) {
        return false;
    }
    taken_.assign({disk_.now() ? 1 : 0, 0});
    for (int i = 0; i < walk_limit && frame && taken_.size() < 2 + 3 * depth_; ++i) {
        auto* const place = reinterpret_cast<PyFrameObject*>(frame.ptr());
        const py::object code = owned(PyFrame_GetCode(place));
        auto* const function = reinterpret_cast<PyCodeObject*>(code.ptr());
        if (i == 0) {
            taken_[1] = number_if_foreign(frame, function);
        }
        if (is_own(function) && keep(code)) {
            const std::int64_t last = taken_.size() > 2 ? -1 : frame.attr("f_lasti").cast<std::int64_t>();
            taken_.push_back(reinterpret_cast<std::intptr_t>(function));
            taken_.push_back(std::max(PyFrame_GetLineNumber(place), 0));
            taken_.push_back(last);
        }
        frame = owned(PyFrame_GetBack(place));
    }
    if (collected_on().load(std::memory_order_relaxed) == std::uint64_t{thread_->thread_id}) {
        taken_[1] = -1;
    }
    return true;
}

bool StackLooks::is_own(PyCodeObject* code) {
    PyObject* const file = code->co_filename;
    if (const auto found = files_.find(file); found != files_.end()) {
        return found->second.own;
    }
    const auto name = py::reinterpret_borrow<py::object>(file);
    const bool own = py::bool_(name_of_(name));
    if (files_.size() < files_limit) {
        files_.insert_or_assign(file, File{.name = name, .own = own});
    }
    return own;
}

bool StackLooks::keep(py::handle code) {
    const auto number = reinterpret_cast<std::intptr_t>(code.ptr());
    if (codes_.contains(number)) {
        return true;
    }
    if (codes_.size() >= codes_limit) {
        return false;
    }
    codes_.emplace(number, py::reinterpret_borrow<py::object>(code));
    return true;
}

std::int64_t StackLooks::number_if_foreign(py::handle frame, PyCodeObject* code) {
    const py::handle function(reinterpret_cast<PyObject*>(code));
    if (is_own(code) || !keep(function)) {
        return 0;
    }
    const auto number = reinterpret_cast<std::intptr_t>(code);
    if (!modules_.contains(number)) {
        const py::object name = frame.attr("f_globals").attr("get")("__name__");
        modules_.emplace(number, py::isinstance<py::str>(name) ? name.cast<std::string>() : std::string());
    }
    return number;
}

}  // namespace ddpdiag::python
