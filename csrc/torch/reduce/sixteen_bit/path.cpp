#include "torch/reduce/sixteen_bit/path.hpp"

#include <ATen/Functions.h>

#include <utility>

#include "torch/element.hpp"
#include "torch/flatten/parallel_copy.hpp"
#include "torch/reduce/collectives.hpp"

namespace ddpdiag {
namespace {

PathFacts compressed_facts(const at::Tensor& buffer, c10::ScalarType type) {
    return {.name = "16-bit",
            .bytes = static_cast<std::uint64_t>(buffer.numel()) * sizeof(std::uint16_t),
            .dtype = dtype_of(type),
            .flags = flag_compressed,
            .finishes = true};
}

}  // namespace

bool SixteenBitPath::possible(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    return !buffer.is_sparse() && buffer.is_contiguous() &&
           (type == c10::ScalarType::Float || type == c10::ScalarType::Double);
}

SixteenBitPath::SixteenBitPath(const at::Tensor& buffer, const std::shared_ptr<Group>& group,
                               c10::ScalarType type, bool error_feedback)
    : Path(buffer, group, compressed_facts(buffer, type)),
      wire_(at::empty({buffer.numel()}, buffer.options().dtype(type))) {
    if (error_feedback) {
        residual_ = at::zeros_like(buffer);
    }
    if (auto peers = group->peers.get(); BucketExchange::suits(wire_, *group, peers.get())) {
        exchange_.emplace(wire_, *group, std::move(peers));
    }
}

Begun SixteenBitPath::begin(const at::Tensor& /*buffer*/, const Turn& turn) {
    return exchange_ ? exchange_->begin(turn.sequence) : all_reduce(group(), wire_);
}

void SixteenBitPath::collect(const at::Tensor& buffer) {
    expanded_ = 0;
    if (exchange_) {
        exchange_->finish([&](std::int64_t end) {
            if (buffer.scalar_type() == c10::ScalarType::Float) {
                expand_up_to(buffer, end);
            }
        });
    }
}

std::vector<const std::uint16_t*> SixteenBitPath::addends() const {
    return exchange_ ? exchange_->addends() : std::vector{bits(wire_)};
}

void SixteenBitPath::expand_up_to(const at::Tensor& buffer, std::int64_t end) {
    auto inputs = addends();
    for (const std::uint16_t*& input : inputs) {
        input += expanded_;
    }
    add_up(wire_.scalar_type(), inputs, buffer.mutable_data_ptr<float>() + expanded_, end - expanded_);
    expanded_ = end;
}

void SixteenBitPath::round_on_device(const at::Tensor& buffer, double scale) {
    at::Tensor scaled = buffer.mul(scale);
    if (residual_.defined()) {
        scaled.add_(residual_);
    }
    wire_.copy_(scaled);
    if (residual_.defined()) {
        at::sub_out(residual_, scaled, wire_.to(scaled.scalar_type()));
    }
}

Prepared SixteenBitPath::prepare(const at::Tensor& buffer, bool /*with_statistics*/) {
    const double scale = 1.0 / static_cast<double>(group().size);
    if (!buffer.device().is_cpu()) {
        round_on_device(buffer, scale);
        return {};
    }
    const Element from = known_element(buffer.scalar_type());
    const Element to = known_element(wire_.scalar_type());
    const auto count = static_cast<std::size_t>(buffer.numel());
    if (!residual_.defined()) {
        const auto statistics =
            copy_in_parallel(buffer.const_data_ptr(), from, wire_.mutable_data_ptr(), to, count, scale);
        return {.finite = statistics.non_finite == 0};
    }
    // The sum goes into the buffer's own memory: the result overwrites it in any case.
    buffer.mul_(scale).add_(residual_);
    const auto statistics =
        copy_in_parallel(buffer.const_data_ptr(), from, wire_.mutable_data_ptr(), to, count, 1.0);
    const auto rounded =
        copy_in_parallel(wire_.const_data_ptr(), to, residual_.mutable_data_ptr(), from, count, -1.0);
    residual_.add_(buffer);
    if (rounded.non_finite != 0) {
        // An infinity, be it only that of the rounded value, would stay in the residual and spoil every later step.
        residual_.zero_();
    }
    // With the residual of the last step in it: not quite the gradients.
    return {.finite = statistics.non_finite == 0, .divided_by = static_cast<double>(group().size)};
}

// With one thread: torch would give the worker a second team of threads, beside those that still run the
// backward pass.
void SixteenBitPath::finish(const at::Tensor& buffer) {
    if (!buffer.device().is_cpu()) {
        buffer.copy_(wire_);
        return;
    }
    if (buffer.scalar_type() == c10::ScalarType::Float) {
        expand_up_to(buffer, buffer.numel());
        return;
    }
    if (const auto inputs = addends(); inputs.size() > 1) {
        add_up(wire_.scalar_type(), inputs, static_cast<std::uint16_t*>(wire_.mutable_data_ptr()),
               wire_.numel());
    }
    fused_copy(wire_.const_data_ptr(), known_element(wire_.scalar_type()), buffer.mutable_data_ptr(),
               known_element(buffer.scalar_type()), static_cast<std::size_t>(buffer.numel()), 1.0, false);
}

}  // namespace ddpdiag
