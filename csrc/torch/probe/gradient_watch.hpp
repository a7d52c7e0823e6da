// What watched backward passes record about the gradients: statistics, and a fingerprint of every all-reduce.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/kernels/fused_copy.hpp"
#include "core/trace/record.hpp"
#include "torch/probe/bucket_layout.hpp"

namespace ddpdiag {

class Recorder;

// What is read of all gradients or weights every n-th time is read every 4n-th time after the first 16: in short steps
// it is most of what a recording costs. The same on all ranks; who asks for each time gets it.
[[nodiscard]] constexpr std::uint64_t interval_at(std::uint32_t interval, std::uint32_t pass) noexcept {
    constexpr std::uint64_t often = 16;
    constexpr std::uint64_t rarer = 4;
    return interval > 1 && pass >= often * interval ? rarer * interval : interval;
}

struct GradientOptions {
    // Statistics of every n-th synchronising backward pass go to the trace (`interval_at`); 0 = never.
    std::uint32_t statistics_interval = 16;
    // Also one record per parameter.
    bool per_parameter = false;
    // The ranks compare their fingerprints after every n-th pass; 0 = never.
    std::uint32_t sentinel_interval = 0;
};

// One all-reduce of a watched pass, as the ranks compare it. Plain numbers: it travels between them as bytes.
struct Fingerprint {
    std::uint64_t sequence = 0;     // of this bucket in its group
    std::uint64_t collectives = 0;  // that this rank had begun in the group before
    std::uint64_t identity = 0;     // the bucket's
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;          // of the result; 0 = not taken
    std::uint64_t non_finite = 0;        // values that this rank put in
    std::uint64_t first_non_finite = 0;  // index of the first of them in the bucket
    std::uint64_t weights = 0;           // checksum of the bucket's parameters; 0 = not taken
    std::uint32_t step = 0;
    std::uint32_t bucket = 0;
    std::uint32_t parameter = 0;  // that holds the first of them; no_parameter = none
    std::uint32_t type = 0;       // Dtype | ReduceOp << 8
};
static_assert(sizeof(Fingerprint) == 80);

inline constexpr std::uint32_t no_parameter = ~std::uint32_t{0};

// Whether the current pass is watched. For the thread that runs the hook.
struct WatchedPass {
    bool looks = false;     // examine gradients and results, for the trace
    bool compares = false;  // compare them with the other ranks'; implies looks

    // For the pass with this number.
    [[nodiscard]] static WatchedPass due(const GradientOptions& options, std::uint32_t pass) noexcept;
};

// The current pass's fingerprints for the comparison. For any thread.
class Fingerprints {
public:
    void clear();
    void note(const Fingerprint& fingerprint);
    // In the order of their sequence numbers.
    [[nodiscard]] std::vector<Fingerprint> take();

private:
    std::mutex mutex_;
    std::vector<Fingerprint> noted_;
};

// The content of a bucket: `values` are the gradients over `divided_by`.
struct Look {
    at::Tensor values;
    double divided_by = 1.0;
    std::optional<GradientStatistics> statistics = std::nullopt;  // of the values, if already taken
    // The values are the averages by now; the statistics and the level are those of this rank's gradients.
    bool averaged = false;
    double level = 0;  // as in level_of(), where they are the averages
};

// The mean over a bucket's parameters of the logarithm of each one's sum of squares, in which each counts alike: the
// sum over all of them is that of the few with the largest gradients. 0 = not known: a parameter's gradient is zero,
// as it may be whatever the data is, or not finite, or the bucket is sparse. `values`: in the host's memory.
[[nodiscard]] double level_of(const BucketLayout& layout, const at::Tensor& values, double divided_by);

// One bucket of a watched pass between its two examinations: before it is averaged, and after.
class GradientNote {
public:
    // Writes the statistics of the parameters, if wanted; the bucket's follow in reduced(). `bucket` is its
    // trace record.
    GradientNote(Recorder& recorder, const BucketLayout& layout, const Record& bucket, const Look& seen,
                 std::uint64_t collectives);

    [[nodiscard]] bool finite() const noexcept { return fingerprint_.non_finite == 0; }
    // `buffer`: undefined = its content is not known.
    void reduced(Recorder& recorder, const BucketLayout& layout, const at::Tensor& buffer);

private:
    Record record_;
    Fingerprint fingerprint_;
};

}  // namespace ddpdiag
