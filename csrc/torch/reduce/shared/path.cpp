#include "torch/reduce/shared/path.hpp"

#include <utility>

#include "torch/change.hpp"
#include "torch/element.hpp"

namespace ddpdiag {
namespace {

PathFacts shared_facts(const at::Tensor& buffer, std::int64_t divided_by) {
    return {.name = "shared",
            .bytes = bytes_of(buffer),
            .dtype = dtype_of(buffer.scalar_type()),
            .flags = flag_shared,
            .collectives = 0,
            .start = StartFrom::path,
            .divided_by = divided_by != 0 ? static_cast<double>(divided_by) : 1.0,
            .statistics = StatisticsFrom::sum};
}

// Compressed, as a host sends them, with all its ranks.
PathFacts compressed_facts(const at::Tensor& buffer, Element wire) {
    PathFacts facts = shared_facts(buffer, 0);
    facts.bytes = static_cast<std::uint64_t>(buffer.numel()) * sizeof(std::uint16_t);
    facts.dtype = wire == Element::bf16 ? Dtype::bfloat16 : Dtype::float16;
    facts.flags |= flag_compressed;
    return facts;
}

}  // namespace

bool SharedPath::possible(const at::Tensor& buffer) {
    return !buffer.is_sparse() && buffer.is_contiguous() && buffer.numel() > 0 &&
           element_of(buffer.scalar_type()).has_value() && (buffer.is_cpu() || Staging::possible(buffer));
}

SharedPath::SharedPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                       std::shared_ptr<SharedRanks> ranks, std::int64_t divided_by)
    : Path(buffer, group, shared_facts(buffer, divided_by)),
      ranks_(std::move(ranks)),
      divided_(divided_by != 0) {}

SharedPath::SharedPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                       std::shared_ptr<SharedRanks> ranks, std::shared_ptr<SharedWire> wire)
    : Path(buffer, group, compressed_facts(buffer, wire->type())),
      ranks_(std::move(ranks)),
      divided_(false),
      place_(std::move(wire)) {}

Prepared SharedPath::prepare(const at::Tensor& buffer, bool /*with_statistics*/) {
    note_change(buffer);
    return {.divided_by = facts().divided_by};
}

Begun SharedPath::begin(const at::Tensor& buffer, const Turn& turn) {
    return {.future = place_.average(*ranks_, buffer, turn.sequence, divided_, turn.start, turn.watched),
            .work = nullptr};
}

}  // namespace ddpdiag
