// DDP without a communication hook: its reducer's own all-reduces, observed where torch dispatches them. The gradients, their
// division and the all-reduce stay DDP's, so a training keeps its bits whatever the number of ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "torch/probe/recorder.hpp"
#include "torch/reduce/path.hpp"

namespace ddpdiag {

// From now on, all-reduces of reducers without a hook are observed, if their module has a PlainDdp.
void observe_all_reduces();

// A module whose all-reduces are observed, for as long as this lives and its reducer has no hook. For the thread that runs
// its backward pass.
class PlainDdp {
public:
    using Call = std::function<c10::intrusive_ptr<c10d::Work>()>;

    PlainDdp(std::shared_ptr<Recorder> recorder, const std::shared_ptr<ModuleState>& module);
    PlainDdp(const PlainDdp&) = delete;
    PlainDdp& operator=(const PlainDdp&) = delete;
    ~PlainDdp();

    // The index of the bucket that `tensor` holds; nothing: it is none.
    [[nodiscard]] std::optional<std::size_t> bucket_of(const at::Tensor& tensor) const;
    // The same for the zeros that join() brings for a rank without data: they come in the order of the buckets.
    [[nodiscard]] std::optional<std::size_t> bucket_like(const at::Tensor& tensor, std::size_t next) const;
    // Records the all-reduce of bucket `index` that `call` begins. `values`: what is reduced.
    [[nodiscard]] c10::intrusive_ptr<c10d::Work> run(std::size_t index, const at::Tensor& values,
                                                     const Call& call);

private:
    class OwnPath;
    struct Seen {
        // Prevents another buffer from getting the same address.
        c10::weak_intrusive_ptr<c10::TensorImpl> buffer{c10::intrusive_ptr<c10::TensorImpl>()};
        std::shared_ptr<const BucketLayout> layout;
        std::shared_ptr<OwnPath> path;
    };

    std::shared_ptr<Recorder> recorder_;
    std::weak_ptr<ModuleState> module_;  // its thread refers to us
    std::vector<Seen> seen_;
};

// While it exists, the all-reduces of this thread are those that DDP's join() makes for a module on a rank without data.
class JoinedPass {
public:
    explicit JoinedPass(const std::shared_ptr<ModuleState>& module);
    JoinedPass(const JoinedPass&) = delete;
    JoinedPass& operator=(const JoinedPass&) = delete;
    ~JoinedPass();
};

}  // namespace ddpdiag
