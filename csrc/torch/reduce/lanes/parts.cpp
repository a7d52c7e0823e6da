#include "torch/reduce/lanes/parts.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/shared/ring_order.hpp"
#include "platform/platform.hpp"

namespace ddpdiag {
namespace {

using c10::ivalue::Future;

// Parts begin at values that share no cache line with another lane's.
constexpr std::int64_t alignment = 64;

// All parts of one turn, on the threads that end them.
class Together {
public:
    Together(std::size_t parts, std::shared_ptr<Lanes> lanes, const LaneTurn& turn, at::Tensor buffer)
        : missing_(parts),
          turn_(turn),
          lanes_(std::move(lanes)),
          buffer_(std::move(buffer)),
          future_(c10::make_intrusive<Future>(c10::TensorType::get())) {}

    [[nodiscard]] const c10::intrusive_ptr<Future>& future() const noexcept { return future_; }

    // `error`: empty if the part has ended well.
    void ended(std::size_t lane, std::int64_t part_begun_ns, const std::string& error) {
        lanes_->part_ended(turn_, lane, part_begun_ns);
        std::string failure;
        {
            const std::lock_guard lock(mutex_);
            if (!error.empty() && failure_.empty()) {
                failure_ = lanes_->description(lane) + ": " + error;
                lanes_->fail(failure_);
            }
            if (--missing_ > 0) {
                return;
            }
            failure = failure_;
        }
        lanes_->ended(turn_, begun_ns_);
        if (failure.empty()) {
            future_->markCompleted(std::move(buffer_));
        } else {
            buffer_.reset();
            future_->setError(std::make_exception_ptr(std::runtime_error(failure)));
        }
    }

private:
    std::mutex mutex_;
    std::size_t missing_;
    LaneTurn turn_;
    std::int64_t begun_ns_ = platform::monotonic_ns();
    std::string failure_;  // of the first part that has failed
    std::shared_ptr<Lanes> lanes_;
    at::Tensor buffer_;
    c10::intrusive_ptr<Future> future_;
};

void begin_part(Lanes& lanes, std::size_t lane, at::Tensor values,
                const std::shared_ptr<Together>& together) {
    const std::int64_t begun_ns = platform::monotonic_ns();
    try {
        std::vector<at::Tensor> one = {std::move(values)};
        const auto future = lanes.backend(lane)->allreduce(one)->getFuture();
        future->addCallback([together, lane, begun_ns](Future& done) {
            together->ended(lane, begun_ns, done.hasError() ? done.tryRetrieveErrorMessage() : "");
        });
    } catch (const std::exception& error) {
        // The parts that were begun before end by themselves, and then the bucket.
        together->ended(lane, begun_ns, error.what());
    }
}

// Of so many values, how many are before an end of a lane's share.
std::int64_t place_of(std::int64_t values, std::uint64_t end) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(values) * end / LaneShares::whole);
}

// With one thread: torch would give Gloo's worker a second team of threads, beside those of the backward pass.
void copy(const at::Tensor& to, std::int64_t to_place, const at::Tensor& from, std::int64_t from_place,
          std::int64_t count) {
    const auto width = static_cast<std::int64_t>(from.element_size());
    std::memcpy(static_cast<std::byte*>(to.mutable_data_ptr()) + to_place * width,
                static_cast<const std::byte*>(from.const_data_ptr()) + from_place * width,
                static_cast<std::size_t>(count * width));
}

}  // namespace

bool LaneParts::possible(const at::Tensor& buffer) {
    return !buffer.is_sparse() && buffer.is_cpu() && buffer.is_contiguous() && buffer.dim() == 1 &&
           buffer.numel() > 0;
}

LaneParts::LaneParts(const at::Tensor& buffer, std::shared_ptr<Lanes> lanes) : lanes_(std::move(lanes)) {
    cut(buffer);
}

void LaneParts::cut(const at::Tensor& buffer) {
    const LaneCut cut = lanes_->cut(buffer.nbytes());
    version_ = cut.version;
    whole_ = ranges(buffer, LaneShares::alone(cut.best, cut.shares.ends.size()));
    divides_ = cut.shares.divided();
    if (divides_) {
        divided_ = lanes_->ranks() > 2 ? ranges_of_chunks(buffer, cut.shares) : ranges(buffer, cut.shares);
    }
}

std::vector<LaneParts::Part> LaneParts::ranges(const at::Tensor& buffer, const LaneShares& shares) {
    std::vector<Part> parts;
    const std::int64_t values = buffer.numel();
    const std::int64_t step =
        std::max<std::int64_t>(1, alignment / static_cast<std::int64_t>(buffer.element_size()));
    std::int64_t begin = 0;
    for (std::size_t lane = 0; lane < shares.ends.size(); ++lane) {
        const std::int64_t place = place_of(values, shares.ends[lane]);
        const std::int64_t end = place == values ? values : place / step * step;
        if (end > begin) {
            parts.push_back(
                {.lane = lane, .values = {}, .ranges = {{.in_buffer = begin, .count = end - begin}}});
            begin = end;
        }
    }
    return parts;
}

std::vector<LaneParts::Part> LaneParts::ranges_of_chunks(const at::Tensor& buffer,
                                                         const LaneShares& shares) const {
    std::vector<Part> parts;
    const auto width = static_cast<std::uint64_t>(buffer.element_size());
    const auto ranks = static_cast<std::uint64_t>(lanes_->ranks());
    const std::int64_t values = buffer.numel();
    const auto chunk = static_cast<std::int64_t>(ring_chunk_bytes(buffer.nbytes(), width, ranks) / width);
    std::int64_t begin = 0;
    for (std::size_t lane = 0; lane < shares.ends.size(); ++lane) {
        const std::int64_t end = place_of(chunk, shares.ends[lane]);
        if (end <= begin) {
            continue;
        }
        // What is not the buffer's in it are zeros: enough for the ring to cut chunks of equal sizes.
        std::uint64_t each = static_cast<std::uint64_t>(end - begin) * width;
        while (ring_chunk_bytes(each * ranks, width, ranks) != each) {
            each = ring_chunk_bytes(each * ranks, width, ranks);
        }
        const auto stride = static_cast<std::int64_t>(each / width);
        Part part{
            .lane = lane, .values = at::zeros({stride * lanes_->ranks()}, buffer.options()), .ranges = {}};
        for (std::int64_t index = 0; index < lanes_->ranks(); ++index) {
            const std::int64_t from = std::min(values, index * chunk + begin);
            const std::int64_t to = std::min(values, index * chunk + end);
            if (to > from) {
                part.ranges.push_back({.in_buffer = from, .in_part = index * stride, .count = to - from});
            }
        }
        parts.push_back(std::move(part));
        begin = end;
    }
    return parts;
}

at::Tensor LaneParts::filled(const Part& part, const at::Tensor& buffer) {
    if (!part.values.defined()) {
        const Range& range = part.ranges.front();
        return buffer.narrow(0, range.in_buffer, range.count);
    }
    for (const Range& range : part.ranges) {
        copy(part.values, range.in_part, buffer, range.in_buffer, range.count);
    }
    return part.values;
}

c10::intrusive_ptr<Future> LaneParts::begin(const at::Tensor& buffer) {
    lanes_->require_sound();
    turn_ = lanes_->next(buffer.nbytes());
    if (turn_.version != version_) {
        cut(buffer);
    }
    const auto& parts = turn_.divided ? divided_ : whole_;
    auto together = std::make_shared<Together>(parts.size(), lanes_, turn_, buffer);
    // Held here: a part that has ended may be the last one.
    auto future = together->future();
    for (const Part& part : parts) {
        begin_part(*lanes_, part.lane, filled(part, buffer), together);
    }
    return future;
}

void LaneParts::bring_back(const at::Tensor& buffer) {
    if (!turn_.divided || !copies()) {
        return;
    }
    const std::int64_t begun_ns = platform::monotonic_ns();
    for (const Part& part : divided_) {
        for (const Range& range : part.ranges) {
            copy(buffer, range.in_buffer, part.values, range.in_part, range.count);
        }
    }
    lanes_->copied(turn_, begun_ns);
}

}  // namespace ddpdiag
