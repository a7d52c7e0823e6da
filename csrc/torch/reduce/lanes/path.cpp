#include "torch/reduce/lanes/path.hpp"

#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <chrono>
#include <utility>

#include "torch/element.hpp"
#include "torch/reduce/average.hpp"

namespace ddpdiag {
namespace {

PathFacts lanes_facts(const at::Tensor& buffer, const Group& group, bool copies, std::int64_t divided_by) {
    return {.name = "lanes",
            .bytes = bytes_of(buffer),
            .dtype = dtype_of(buffer.scalar_type()),
            // They are of other groups, whose members count nothing.
            .collectives = 0,
            .start = StartFrom::first_span,
            .divided_by = divided_by != 0 ? static_cast<double>(divided_by) : 1.0,
            .statistics = divided_by == 0 && divides_with_statistics(buffer, group.size)
                              ? StatisticsFrom::prepare
                              : StatisticsFrom::hook,
            .finishes = copies};
}

}  // namespace

LanesPath::LanesPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                     std::shared_ptr<Lanes> lanes, std::int64_t divided_by)
    : LanesPath(buffer, group, LaneParts(buffer, std::move(lanes)), divided_by) {}

LanesPath::LanesPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group, LaneParts parts,
                     std::int64_t divided_by)
    : Path(buffer, group, lanes_facts(buffer, *group, parts.copies(), divided_by)),
      parts_(std::move(parts)),
      divided_(divided_by != 0) {}

Prepared LanesPath::prepare(const at::Tensor& buffer, bool with_statistics) {
    return divided_ ? Prepared{.divided_by = static_cast<double>(group().size)}
                    : divided_among(buffer, group().size, with_statistics);
}

Begun LanesPath::begin(const at::Tensor& buffer, const Turn& /*turn*/) {
    return {.future = parts_.begin(buffer), .work = nullptr};
}

void LanesPath::collect(const at::Tensor& buffer) {
    parts_.bring_back(buffer);
}

double seconds_over(const std::shared_ptr<Lanes>& lanes, std::int64_t bytes, int times) {
    const at::RecordFunctionGuard no_spans(/*is_enabled=*/false);
    const at::Tensor buffer = at::zeros({bytes / static_cast<std::int64_t>(sizeof(float))}, at::kFloat);
    LaneParts parts(buffer, lanes);
    const auto begin = std::chrono::steady_clock::now();
    for (int turn = 0; turn < times; ++turn) {
        const auto future = parts.begin(buffer);
        future->waitAndThrow();
        parts.bring_back(buffer);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ddpdiag
