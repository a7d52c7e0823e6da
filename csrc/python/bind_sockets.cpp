#include "platform/sockets.hpp"

#include "python/bindings.hpp"

namespace ddpdiag::python {
namespace {

py::tuple address(const platform::Address& address) {
    return py::make_tuple(address.ip, address.port);
}

py::list tcp_sockets() {
    std::vector<platform::TcpSocket> found;
    {
        const py::gil_scoped_release nogil;
        found = platform::tcp_sockets();
    }
    py::list result;
    for (const auto& socket : found) {
        py::dict info;
        for (const auto& [name, reading] : platform::tcp_info_readings) {
            const auto& value = socket.info.*reading;
            if (value.has_value()) {
                info[name] = value.value();
            }
        }
        py::object peer = py::none();
        if (const auto& known = socket.peer; known.has_value()) {
            peer = address(known.value());
        }
        result.append(py::make_tuple(socket.handle, address(socket.local), peer, socket.listening,
                                     socket.source, info));
    }
    return result;
}

}  // namespace

void bind_sockets(py::module_& module) {
    module.def("tcp_sockets", &tcp_sockets);
}

}  // namespace ddpdiag::python
