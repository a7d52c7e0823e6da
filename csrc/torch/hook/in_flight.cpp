#include "torch/hook/in_flight.hpp"

namespace ddpdiag {

const std::shared_ptr<Path>& InFlight::path(std::size_t index, const at::Tensor& buffer,
                                            const std::shared_ptr<Group>& group, const PathOptions& options) {
    Slot& known = slot(index);
    if (known.path == nullptr || !(known.options == options) || !known.path->serves(buffer, *group)) {
        known.path = choose_path(buffer, group, options);
        known.options = options;
    }
    return known.path;
}

InFlight& in_flight_of(ModuleState& module) {
    auto& in_flight = module.hook.in_flight;
    if (in_flight == nullptr) {
        in_flight = std::make_shared<InFlight>();
    }
    return *in_flight;
}

}  // namespace ddpdiag
