#include "torch/compressed_bucket.hpp"

#include <ATen/Functions.h>

#include "torch/element.hpp"
#include "torch/parallel_copy.hpp"

namespace ddpdiag {
namespace {

c10::ScalarType wire_type(Compression to) {
    return to == Compression::bf16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Half;
}

}  // namespace

bool CompressedBucket::possible(const at::Tensor& buffer) {
    const auto type = buffer.scalar_type();
    return !buffer.is_sparse() && buffer.is_contiguous() &&
           (type == c10::ScalarType::Float || type == c10::ScalarType::Double);
}

CompressedBucket::CompressedBucket(const at::Tensor& buffer, const Group& group,
                                   const CompressionOptions& options)
    : serves_(buffer.getIntrusivePtr()),
      group_(&group),
      wire_(at::empty({buffer.numel()}, buffer.options().dtype(wire_type(options.to)))) {
    if (options.error_feedback) {
        residual_ = at::zeros_like(buffer);
    }
    if (BucketExchange::suits(wire_, group)) {
        exchange_.emplace(wire_, group);
    }
}

bool CompressedBucket::serves(const at::Tensor& buffer, const Group& group) const {
    return serves_._unsafe_get_target() == buffer.unsafeGetTensorImpl() && wire_.numel() == buffer.numel() &&
           group_ == &group;
}

c10::intrusive_ptr<c10::ivalue::Future> CompressedBucket::reduce(std::uint64_t sequence) {
    return exchange_ ? exchange_->begin(sequence) : all_reduce(*group_, wire_);
}

void CompressedBucket::collect(const at::Tensor& buffer) {
    expanded_ = 0;
    if (exchange_) {
        exchange_->finish([&](std::int64_t end) {
            if (buffer.scalar_type() == c10::ScalarType::Float) {
                expand_up_to(buffer, end);
            }
        });
    }
}

std::vector<const std::uint16_t*> CompressedBucket::addends() const {
    return exchange_ ? exchange_->addends() : std::vector{bits(wire_)};
}

void CompressedBucket::expand_up_to(const at::Tensor& buffer, std::int64_t end) {
    auto inputs = addends();
    for (const std::uint16_t*& input : inputs) {
        input += expanded_;
    }
    add_up(wire_.scalar_type(), inputs, buffer.mutable_data_ptr<float>() + expanded_, end - expanded_);
    expanded_ = end;
}

void CompressedBucket::compress(const at::Tensor& buffer, std::int64_t ranks) {
    const double scale = 1.0 / static_cast<double>(ranks);
    if (!buffer.device().is_cpu()) {
        at::Tensor scaled = buffer.mul(scale);
        if (residual_.defined()) {
            scaled.add_(residual_);
        }
        wire_.copy_(scaled);
        if (residual_.defined()) {
            at::sub_out(residual_, scaled, wire_.to(scaled.scalar_type()));
        }
        return;
    }
    const Element from = known_element(buffer.scalar_type());
    const Element to = known_element(wire_.scalar_type());
    const auto count = static_cast<std::size_t>(buffer.numel());
    if (!residual_.defined()) {
        copy_in_parallel(buffer.const_data_ptr(), from, wire_.mutable_data_ptr(), to, count, scale);
        return;
    }
    // The buffer's own memory takes the sum: it is overwritten by the result in any case.
    buffer.mul_(scale).add_(residual_);
    const auto statistics =
        copy_in_parallel(buffer.const_data_ptr(), from, wire_.mutable_data_ptr(), to, count, 1.0);
    copy_in_parallel(wire_.const_data_ptr(), to, residual_.mutable_data_ptr(), from, count, -1.0);
    residual_.add_(buffer);
    if (statistics.non_finite != 0) {
        // An infinity would stay in the residual as NaN and spoil every later step.
        residual_.zero_();
    }
}

// By one thread: torch would give the worker a team of threads of its own, beside those that still do the backward pass.
void CompressedBucket::expand(const at::Tensor& buffer) {
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
