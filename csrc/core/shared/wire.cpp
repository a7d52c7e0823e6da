#include "core/shared/wire.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "core/shared/sum.hpp"

namespace ddpdiag {
namespace {

// into[i] += other[i]
void add(std::byte* into, std::byte* other, Element element, std::size_t count) noexcept {
    const SharedSum sum{.element = element, .bytes = count * size_of(element), .average = false};
    const std::array<std::byte*, 2> both = {into, other};
    sum.run(both, std::span(both).first(1), 0, sum.bytes, {});
}

}  // namespace

SharedWire::SharedWire(Element type, bool error_feedback) : type_(type), error_feedback_(error_feedback) {
    if (type != Element::f16 && type != Element::bf16) {
        throw std::invalid_argument("values between hosts travel in f16 or bf16.");
    }
}

Range SharedWire::shard_of(std::size_t host) const noexcept {
    if (two_hosts()) {
        return {.begin = 0, .count = count_};
    }
    const std::size_t each = (count_ + hosts_ - 1) / hosts_;
    const std::size_t begin = std::min(host * each, count_);
    return {.begin = begin, .count = std::min(each, count_ - begin)};
}

Range SharedWire::arriving_from(std::size_t host) const noexcept {
    const std::size_t each = shard_of(home_).count;
    return {.begin = count_ + (host < home_ ? host : host - 1) * each, .count = each};
}

void SharedWire::round(std::byte* part, Element element, std::size_t count, std::size_t hosts,
                       std::size_t home) {
    if (values_ == nullptr || count != count_ || hosts != hosts_ || home != home_) {
        count_ = count;
        hosts_ = hosts;
        home_ = home;
        values_ = std::make_shared<std::vector<std::uint16_t>>(count + (hosts - 1) * shard_of(home).count);
        residual_.assign(error_feedback_ ? count * size_of(element) : 0, std::byte{0});
    }
    if (error_feedback_) {
        add(part, residual_.data(), element, count);
    }
    fused_copy(part, element, values_->data(), type_, count, 1.0, false);
    if (error_feedback_) {
        keep_residual(part, element);
    }
}

void SharedWire::keep_residual(std::byte* part, Element element) {
    const auto rounded = fused_copy(values_->data(), type_, residual_.data(), element, count_, -1.0, false);
    if (rounded.non_finite == 0) {
        add(residual_.data(), part, element, count_);
    } else {
        // An infinity, be it only that of the rounded value, would stay in the residual and spoil every later pass.
        std::ranges::fill(residual_, std::byte{0});
    }
}

SharedSwap SharedWire::values_to_swap() const {
    SharedSwap swap{.values = values_, .sent = {}, .received = {}};
    for (std::size_t host = 0; host < hosts_; ++host) {
        swap.sent.push_back(host != home_ ? shard_of(host) : Range{});
        swap.received.push_back(host != home_ ? arriving_from(host) : Range{});
    }
    return swap;
}

void SharedWire::add_up() {
    const Range ours = shard_of(home_);
    std::vector<const std::uint16_t*> inputs;
    inputs.reserve(hosts_);
    // In the same order for all shards: of two NaN, the order decides which one the sum is.
    for (std::size_t host = 0; host < hosts_; ++host) {
        inputs.push_back(values_->data() + (host == home_ ? ours : arriving_from(host)).begin);
    }
    std::uint16_t* const sum = values_->data() + ours.begin;
    if (type_ == Element::bf16) {
        sum_bf16(inputs.data(), hosts_, sum, ours.count);
    } else {
        sum_f16(inputs.data(), hosts_, sum, ours.count);
    }
}

std::optional<SharedSwap> SharedWire::sums_to_swap() const {
    if (two_hosts()) {
        return std::nullopt;
    }
    SharedSwap swap{.values = values_, .sent = {}, .received = {}};
    for (std::size_t host = 0; host < hosts_; ++host) {
        swap.sent.push_back(host != home_ ? shard_of(home_) : Range{});
        swap.received.push_back(host != home_ ? shard_of(host) : Range{});
    }
    return swap;
}

void SharedWire::widen(std::byte* part, Element element) const {
    fused_copy(values_->data(), type_, part, element, count_, 1.0, false);
}

}  // namespace ddpdiag
