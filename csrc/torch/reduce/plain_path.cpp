#include "torch/reduce/plain_path.hpp"

#include "torch/element.hpp"
#include "torch/reduce/average.hpp"
#include "torch/reduce/collectives.hpp"

namespace ddpdiag {
namespace {

PathFacts plain_facts(const at::Tensor& buffer, const Group& group, std::int64_t divided_by) {
    return {.name = "plain",
            .bytes = bytes_of(buffer),
            .dtype = dtype_of(buffer.scalar_type()),
            .divided_by = divided_by != 0 ? static_cast<double>(divided_by) : 1.0,
            .statistics = divided_by == 0 && divides_with_statistics(buffer, group.size)
                              ? StatisticsFrom::prepare
                              : StatisticsFrom::hook};
}

}  // namespace

PlainPath::PlainPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, std::int64_t divided_by)
    : Path(buffer, group, plain_facts(buffer, *group, divided_by)), divided_(divided_by != 0) {}

Prepared PlainPath::prepare(const at::Tensor& buffer, bool with_statistics) {
    return divided_ ? Prepared{.divided_by = static_cast<double>(group().size)}
                    : divided_among(buffer, group().size, with_statistics);
}

Begun PlainPath::begin(const at::Tensor& buffer, const Turn& /*turn*/) {
    return all_reduce(group(), buffer);
}

}  // namespace ddpdiag
