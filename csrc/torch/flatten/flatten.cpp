#include "torch/flatten/flatten.hpp"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "torch/change.hpp"
#include "torch/flatten/flatten_checks.hpp"
#include "torch/flatten/parallel_copy.hpp"

namespace ddpdiag {
namespace {

Element known(const at::Tensor& tensor) {
    return known_element(tensor.scalar_type());
}

std::int64_t count_of(const std::vector<at::Tensor>& tensors) {
    std::int64_t total = 0;
    for (const at::Tensor& tensor : tensors) {
        total += tensor.numel();
    }
    return total;
}

void check_scale(double scale) {
    if (!std::isfinite(scale)) {
        throw std::invalid_argument("scale must be a finite number, not " + std::to_string(scale) + ".");
    }
}

at::ScalarType common_type(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
        if (tensor.scalar_type() != tensors[0].scalar_type()) {
            throw std::invalid_argument(
                "the tensors are of different types: " +
                std::string(c10::toString(tensors[0].scalar_type())) + " and " +
                c10::toString(tensor.scalar_type()) +
                ".\n  hint: say which one the buffer shall have: dtype=torch.float32.");
        }
    }
    return tensors.empty() ? at::kFloat : tensors[0].scalar_type();
}

// The values as the kernels take them: f64 as f64, all others as f32, scaled.
at::Tensor scaled_values(const at::Tensor& tensor, double scale) {
    const at::Tensor flat = tensor.detach().reshape({-1});
    const at::Tensor values = flat.scalar_type() == at::kDouble ? flat : flat.to(at::kFloat);
    return scale == 1.0 ? values : values.mul(scale);
}

// One row per tensor: sum of squares, maximum, count, index of the first. Nothing waits for the device.
at::Tensor statistics_by_aten(const at::Tensor& values) {
    if (values.numel() == 0) {
        const at::Tensor row = at::zeros({4}, values.options().dtype(at::kDouble));
        row[3].fill_(-1);
        return row;
    }
    const at::Tensor wide = values.to(at::kDouble);
    const at::Tensor bad = at::isfinite(values).logical_not();
    const at::Tensor count = bad.sum();
    const at::Tensor first = at::where(count.gt(0), bad.to(at::kByte).argmax(), -1);
    return at::stack({wide.mul(wide).sum(), wide.abs().max(), count.to(at::kDouble), first.to(at::kDouble)});
}

std::vector<GradientStatistics> flatten_by_aten(const at::Tensor& buffer,
                                                const std::vector<at::Tensor>& tensors, double scale) {
    std::vector<at::Tensor> rows;
    std::int64_t offset = 0;
    for (const at::Tensor& tensor : tensors) {
        const at::Tensor values = scaled_values(tensor, scale);
        const at::Tensor part = buffer.narrow(0, offset, tensor.numel());
        if (scale == 1.0) {
            part.copy_(tensor.detach().reshape({-1}));
        } else {
            // To 16 bits by way of f32, like the kernels.
            part.copy_(size_of(known(buffer)) == 2 ? values.to(at::kFloat) : values);
        }
        offset += tensor.numel();
        rows.push_back(statistics_by_aten(values));
    }
    if (rows.empty()) {
        return {};
    }
    const at::Tensor table = at::stack(rows).cpu().contiguous();
    const auto* numbers = table.const_data_ptr<double>();
    std::vector<GradientStatistics> results;
    for (std::size_t i = 0; i < tensors.size(); ++i, numbers += 4) {
        const bool none = numbers[3] < 0;
        results.push_back({numbers[0], numbers[1], static_cast<std::uint64_t>(numbers[2]),
                           none ? no_index : static_cast<std::uint64_t>(numbers[3])});
    }
    return results;
}

void unflatten_by_aten(const at::Tensor& buffer, const at::Tensor& tensor, double scale) {
    at::Tensor values = scale == 1.0 ? buffer : scaled_values(buffer, scale);
    if (scale != 1.0 && size_of(known(tensor)) == 2) {
        values = values.to(at::kFloat);
    }
    tensor.copy_(values.view(tensor.sizes()));
}

}  // namespace

Flattened flatten(const std::vector<at::Tensor>& tensors, const std::optional<at::Tensor>& out,
                  std::optional<at::ScalarType> dtype, const FlattenOptions& options) {
    const c10::NoGradGuard no_grad;
    check_scale(options.scale);
    check_tensors(tensors);
    const std::int64_t total = count_of(tensors);
    Flattened result;
    if (out) {
        check_buffer(*out, "out", tensors, total);
        if (dtype && *dtype != out->scalar_type()) {
            throw std::invalid_argument("out is of type " + std::string(c10::toString(out->scalar_type())) +
                                        ", but dtype says " + c10::toString(*dtype) + ".");
        }
        result.buffer = out->detach().narrow(0, 0, total);
    } else {
        const at::ScalarType type = dtype ? *dtype : common_type(tensors);
        if (!element_of(type)) {
            throw std::invalid_argument("dtype must be float32, float64, float16 or bfloat16, not " +
                                        std::string(c10::toString(type)) + ".");
        }
        const at::Device device = tensors.empty() ? at::Device(at::kCPU) : tensors[0].device();
        result.buffer = at::empty({total}, at::TensorOptions().dtype(type).device(device));
    }
    if (options.by_aten || !result.buffer.is_cpu()) {
        result.statistics = flatten_by_aten(result.buffer, tensors, options.scale);
        return result;
    }
    const Element to = known(result.buffer);
    auto* target = static_cast<std::byte*>(result.buffer.mutable_data_ptr());
    std::vector<Part> parts;
    parts.reserve(tensors.size() + static_cast<std::size_t>(total / values_per_part) + 1);
    std::vector<at::Tensor>
        copies;  // of tensors with gaps or another order of dimensions, kept until the end
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor* tensor = &tensors[i];
        const std::int64_t count = tensor->numel();
        at::Tensor ordered;
        if (!tensor->is_contiguous() || tensor->is_neg()) {
            ordered = copies.emplace_back(tensor->contiguous().resolve_neg());
            tensor = &ordered;
        }
        add_parts(parts, static_cast<const std::byte*>(tensor->const_data_ptr()), known(*tensor), target, to,
                  count, i);
        target += static_cast<std::size_t>(count) * size_of(to);
    }
    const auto bytes = static_cast<std::size_t>(total) * size_of(to);
    const auto of_parts = copy_parts(parts, options.scale, bytes > options.streaming_above);
    result.statistics.resize(tensors.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
        result.statistics[parts[i].tensor].merge(of_parts[i], static_cast<std::uint64_t>(parts[i].offset));
    }
    if (out) {
        note_change(*out);
    }
    return result;
}

void unflatten(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors,
               const FlattenOptions& options) {
    const c10::NoGradGuard no_grad;
    check_scale(options.scale);
    check_tensors(tensors);
    const std::int64_t total = count_of(tensors);
    check_buffer(buffer, "buffer", tensors, total);
    if (buffer.numel() != total) {
        throw std::invalid_argument("buffer has " + std::to_string(buffer.numel()) +
                                    " elements, but the tensors have " + std::to_string(total) +
                                    ".\n  hint: pass the buffer that flatten gave for these tensors.");
    }
    const bool by_aten = options.by_aten || !buffer.is_cpu();
    if (!by_aten) {
        check_disjoint(tensors);
    }
    const Element from = known(buffer);
    const auto* source = static_cast<const std::byte*>(buffer.const_data_ptr());
    std::vector<Part> parts;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& tensor = tensors[i];
        const std::int64_t count = tensor.numel();
        if (by_aten || !tensor.is_contiguous() || tensor.is_neg()) {
            unflatten_by_aten(buffer.detach().narrow(0, offset, count), tensor, options.scale);
        } else {
            add_parts(parts, source + static_cast<std::size_t>(offset) * size_of(from), from,
                      static_cast<std::byte*>(tensor.mutable_data_ptr()), known(tensor), count, i);
            note_change(tensor);
        }
        offset += count;
    }
    const auto bytes = static_cast<std::size_t>(total) * size_of(from);
    copy_parts(parts, options.scale, bytes > options.streaming_above);
}

}  // namespace ddpdiag
