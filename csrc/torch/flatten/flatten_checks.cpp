#include "torch/flatten/flatten_checks.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "torch/flatten/flatten.hpp"

namespace ddpdiag {
namespace {

using Extent = std::pair<std::uintptr_t, std::uintptr_t>;

// The memory from a tensor's first element to behind its last, gaps between strides included.
Extent extent_of(const at::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return {0, 0};
    }
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
        last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    const auto first = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    return {first,
            first + static_cast<std::size_t>(last + 1) * static_cast<std::size_t>(tensor.element_size())};
}

[[noreturn]] void refuse(const std::string& what) {
    throw std::invalid_argument(what);
}

void check_one(const at::Tensor& tensor, const std::string& name) {
    if (!tensor.defined()) {
        refuse(name + " is None.");
    }
    if (tensor.layout() != at::kStrided) {
        refuse(name + " is sparse.\n  hint: tensor.to_dense(), or an embedding with sparse=False.");
    }
    if (tensor.is_complex()) {
        refuse(name + " is complex.\n  hint: torch.view_as_real(tensor) is the same memory as real numbers.");
    }
    if (!element_of(tensor.scalar_type())) {
        refuse(name + " is of type " + std::string(c10::toString(tensor.scalar_type())) +
               ".\n  hint: float32, float64, float16 and bfloat16 can be flattened.");
    }
    if (tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python) || !tensor.has_storage()) {
        refuse(name +
               " has no memory of its own (a meta, fake or wrapped tensor).\n  hint: pass real tensors, " +
               "such as the local part of a distributed one.");
    }
}

}  // namespace

void check_tensors(const std::vector<at::Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const at::Tensor& tensor = tensors[i];
        // The usual case first, without building a text for it: there may be thousands.
        const bool usual = tensor.defined() && tensor.layout() == at::kStrided &&
                           element_of(tensor.scalar_type()) && !tensor.is_meta() &&
                           !tensor.key_set().has(c10::DispatchKey::Python) && tensor.has_storage();
        if (!usual) {
            check_one(tensor, "tensor " + std::to_string(i));
        }
        if (tensor.device() != tensors[0].device()) {
            refuse("tensor 0 is on " + tensors[0].device().str() + ", tensor " + std::to_string(i) + " on " +
                   tensor.device().str() + ".\n  hint: flatten the tensors of each device by themselves.");
        }
    }
}

void check_buffer(const at::Tensor& buffer, const char* name, const std::vector<at::Tensor>& tensors,
                  std::int64_t needed) {
    check_one(buffer, name);
    if (buffer.dim() != 1 || !buffer.is_contiguous()) {
        refuse(std::string(name) + " must have one dimension and no gaps.\n  hint: torch.empty(" +
               std::to_string(needed) + ").");
    }
    if (buffer.numel() < needed) {
        refuse(std::string(name) + " has " + std::to_string(buffer.numel()) + " elements, " +
               std::to_string(needed) + " are needed.");
    }
    if (!tensors.empty() && buffer.device() != tensors[0].device()) {
        refuse(std::string(name) + " is on " + buffer.device().str() + ", the tensors on " +
               tensors[0].device().str() + ".");
    }
    const Extent ours = extent_of(buffer.narrow(0, 0, needed));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Extent theirs = extent_of(tensors[i]);
        if (theirs.first < ours.second && ours.first < theirs.second) {
            refuse(std::string(name) + " shares memory with tensor " + std::to_string(i) +
                   ".\n  hint: pass other memory, or a clone of the tensor.");
        }
    }
}

void check_disjoint(const std::vector<at::Tensor>& tensors) {
    std::vector<Extent> extents;
    extents.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
        if (tensor.numel() != 0) {
            extents.push_back(extent_of(tensor));
        }
    }
    // They are mostly in order already, or nearly so.
    std::ranges::sort(extents);
    for (std::size_t i = 1; i < extents.size(); ++i) {
        if (extents[i].first < extents[i - 1].second) {
            refuse("two of the tensors share memory.\n  hint: pass each tensor once.");
        }
    }
}

}  // namespace ddpdiag
