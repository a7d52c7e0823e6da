// From host to host over Gloo, for ranks that share memory with the others of their host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/shared/between.hpp"
#include "torch/own_backend.hpp"

namespace ddpdiag {

class GlooBetween final : public SharedBetween {
public:
    // `link`: of one rank with those that carry the same part on the other hosts. `store`: where the ranks of all hosts
    // meet, for the reason of a failure alone. `names`: see SharedBetween. `home`: our own host.
    GlooBetween(const std::shared_ptr<OwnBackend>& link, const c10::intrusive_ptr<c10d::Store>& store,
                std::vector<std::string> names, std::size_t home);
    ~GlooBetween() override;

    [[nodiscard]] const std::vector<std::string>& names() const noexcept override { return names_; }
    [[nodiscard]] const std::string& others() const noexcept override { return others_; }
    [[nodiscard]] std::size_t home() const noexcept override { return home_; }
    void tell(const BucketKey& ours) override;
    [[nodiscard]] std::vector<BucketKey> keys(std::chrono::milliseconds limit) override;
    void begin(const std::shared_ptr<const SharedBlock>& block, std::uint64_t offset, std::uint64_t bytes,
               Element element) override;
    [[nodiscard]] bool uses_block() const noexcept override;
    // By messages: Gloo's all-to-all would send before it asks (BucketExchange).
    void begin(const SharedSwap& swap) override;
    [[nodiscard]] bool wait(std::chrono::milliseconds limit) override;
    [[nodiscard]] std::string agreed(const std::string& reason,
                                     std::chrono::milliseconds secondary_error_delay) noexcept override;
    void give_up() noexcept override;

private:
    struct Arrival;

    // Throws SharedBetweenError: there is none any more.
    [[nodiscard]] c10::intrusive_ptr<c10d::Backend> backend() const;
    using Begin = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;
    [[nodiscard]] std::shared_ptr<Arrival> begun(const Begin& begin) const;

    std::weak_ptr<OwnBackend> link_;
    c10::intrusive_ptr<c10d::Store> store_;
    std::vector<std::string> names_;
    std::string others_;
    std::size_t home_;
    std::shared_ptr<Arrival> arrival_;       // of what was begun
    std::shared_ptr<Arrival> block_;         // of what was begun of a block
    std::shared_ptr<Arrival> keys_arrival_;  // of the keys
    std::vector<at::Tensor> keys_;           // what arrives then, by host
};

}  // namespace ddpdiag
