#include "torch/hook/flights.hpp"

namespace ddpdiag {

const std::shared_ptr<Path>& Flights::path(std::size_t index, const at::Tensor& buffer,
                                           const std::shared_ptr<Group>& group, const PathOptions& options) {
    Slot& known = slot(index);
    if (known.path == nullptr || !(known.options == options) || !known.path->serves(buffer, *group)) {
        known.path = choose_path(buffer, group, options);
        known.options = options;
    }
    return known.path;
}

Flights& flights_of(ModuleState& module) {
    auto& flights = module.hook.flights;
    if (flights == nullptr) {
        flights = std::make_shared<Flights>();
    }
    return *flights;
}

}  // namespace ddpdiag
