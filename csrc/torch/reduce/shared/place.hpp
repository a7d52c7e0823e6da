// Where one bucket lies in the memory that the ranks share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/shared/wire.hpp"
#include "torch/reduce/shared/ranks.hpp"

namespace ddpdiag {

// For one thread at a time.
class SharedPlace {
public:
    // `wire`: see SharedBucket.
    explicit SharedPlace(std::shared_ptr<SharedWire> wire = nullptr) : wire_(std::move(wire)) {}

    // Averages the bucket, or adds it up if `divided`; moves it into shared memory if it is not there, or through such
    // memory from an accelerator and back. `sequence` and `watched` as in SharedBucket, `start` as in
    // SharedRanks::average. Only for buffers that SharedPath::possible allows.
    [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> average(SharedRanks& ranks,
                                                                  const at::Tensor& buffer,
                                                                  std::uint64_t sequence, bool divided,
                                                                  std::shared_ptr<StartListener> start,
                                                                  bool watched);

private:
    // The bucket's, for a turn of its own.
    [[nodiscard]] const std::shared_ptr<Staging>& idle_staging(const at::Tensor& buffer);

    std::shared_ptr<SharedWire> wire_;
    std::shared_ptr<Staging> staging_;  // nullptr: the bucket lies in shared memory itself
    std::uint64_t block_ = 0;           // the id of the bucket's block
    std::size_t place_ = 0;             // that of the block
};

}  // namespace ddpdiag
