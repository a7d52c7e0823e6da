#include "torch/reduce/shared/storage.hpp"

#include <c10/core/StorageImpl.h>

#include <cstring>
#include <utility>

namespace ddpdiag {
namespace {

using Holder = std::shared_ptr<const SharedBlock>;

void let_go(void* context) {
    delete static_cast<Holder*>(context);
}

}  // namespace

std::shared_ptr<const SharedBlock> shared_block_of(const at::Tensor& tensor) {
    const c10::DataPtr& data = tensor.storage().data_ptr();
    return data.get_deleter() == &let_go ? *static_cast<const Holder*>(data.get_context()) : nullptr;
}

std::shared_ptr<const SharedBlock> move_to_shared_memory(const at::Tensor& tensor) {
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    const auto block = std::make_shared<const SharedBlock>(storage.nbytes());
    std::memcpy(block->data(), storage.data(), storage.nbytes());
    auto holder = std::make_unique<Holder>(block);
    // As tensor.share_memory_() does. Whoever reads the data pointer afresh, all views included, finds the new memory.
    c10::DataPtr data(block->data(), holder.release(), &let_go, tensor.device());
    storage.set_data_ptr_noswap(std::move(data));
    return block;
}

void move_out_of_shared_memory(const at::Tensor& tensor) {
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    c10::DataPtr data = c10::GetAllocator(c10::kCPU)->allocate(storage.nbytes());
    std::memcpy(data.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(data));
}

}  // namespace ddpdiag
