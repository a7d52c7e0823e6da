// The copying kernels, for the vectors that the including file has defined: fused_scalar.cpp, fused_avx2.cpp and
// fused_avx512.cpp. No #pragma once and no includes: this is a part of each of those files.
//
// They define in namespace ddpdiag, all with internal linkage:
//   KERNEL            how a function of this level is declared (its target and that it is inlined)
//   KERNEL_ENTRY      the same for one that is called through the table
//   Floats, Doubles   16 values each
//   zeros_f, zeros_d, spread_f, spread_d, mul, div, add, absolute_max
//   add_squares       of 16 values to 16 running sums; the product of two f32 is exact in double
//   not_finite        a bit per value
//   load_f32, load_f64, load_f16, load_bf16, widen, narrow
//   store_f32, store_f64 (16 values), store_f16, store_bf16 (two times 16 values), copy_64_bytes
//   store_bf16_numbers  the same as store_bf16 where no value is NaN, and quicker
//   fetch             asks for a line of memory, wherever it is, that will be read soon
//   drain             makes streamed stores visible to other threads
//
// Value i is summed in lane i % 16, on every level, so the sums are the same to the last bit.

namespace ddpdiag {
namespace {

constexpr std::size_t lane_count = 16;
constexpr std::size_t block = 2 * lane_count;  // values per turn of the loop: a whole line of a 16-bit target

// This many pages are read in turn, a block of each. A processor prefetches within a page and stops at its
// end, so one page at a time leaves memory idle for part of the time (docs/flattening.md). The same place of the pages
// after them is fetched meanwhile.
constexpr std::size_t pages_at_once = 4;
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t line_bytes = 64;

[[nodiscard]] constexpr bool is_short(Element element) {
    return size_of(element) == 2;
}

template <Element element>
KERNEL auto load(const std::byte* from) {
    if constexpr (element == Element::f32) {
        return load_f32(from);
    } else if constexpr (element == Element::f64) {
        return load_f64(from);
    } else if constexpr (element == Element::f16) {
        return load_f16(from);
    } else {
        return load_bf16(from);
    }
}

KERNEL Floats to_floats(const Floats& values) {
    return values;
}
KERNEL Floats to_floats(const Doubles& values) {
    return narrow(values);
}
KERNEL Doubles to_doubles(const Floats& values) {
    return widen(values);
}
KERNEL Doubles to_doubles(const Doubles& values) {
    return values;
}

template <Element element, typename Values>
KERNEL void store(std::byte* to, const Values& low, const Values& high, bool streaming) {
    if constexpr (element == Element::f32) {
        store_f32(to, to_floats(low), streaming);
        store_f32(to + lane_count * 4, to_floats(high), streaming);
    } else if constexpr (element == Element::f64) {
        store_f64(to, to_doubles(low), streaming);
        store_f64(to + lane_count * 8, to_doubles(high), streaming);
    } else if constexpr (element == Element::f16) {
        store_f16(to, to_floats(low), to_floats(high), streaming);
    } else {
        store_bf16(to, to_floats(low), to_floats(high), streaming);
    }
}

// One value, for the remainder that does not fill a block.
template <Element element>
KERNEL auto load_one(const std::byte* from) {
    if constexpr (element == Element::f64) {
        double value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    } else if constexpr (element == Element::f32) {
        float value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from, sizeof bits);
        return element == Element::f16 ? f32_of_f16(bits) : f32_of_bf16(bits);
    }
}

template <Element element, typename Value>
KERNEL void store_one(std::byte* to, Value value) {
    if constexpr (element == Element::f64) {
        const auto wide = static_cast<double>(value);
        std::memcpy(to, &wide, sizeof wide);
    } else {
        const auto single = static_cast<float>(value);
        if constexpr (element == Element::f32) {
            std::memcpy(to, &single, sizeof single);
        } else {
            const std::uint16_t bits = element == Element::f16 ? f16_of_f32(single) : bf16_of_f32(single);
            std::memcpy(to, &bits, sizeof bits);
        }
    }
}

KERNEL void clear(Floats& values) {
    values = zeros_f();
}
KERNEL void clear(Doubles& values) {
    values = zeros_d();
}
KERNEL void spread(Floats& values, double value) {
    values = spread_f(static_cast<float>(value));
}
KERNEL void spread(Doubles& values, double value) {
    values = spread_d(value);
}

// The values from `base` on whose bits are set. Blocks may come in any order.
KERNEL void note_not_finite(GradientStatistics& result, std::uint32_t which, std::size_t base) {
    const std::uint64_t first = base + static_cast<std::size_t>(std::countr_zero(which));
    result.first_non_finite = first < result.first_non_finite ? first : result.first_non_finite;
    result.non_finite += static_cast<std::uint64_t>(std::popcount(which));
}

// The running statistics by lane, extracted from the vectors.
struct Lanes {
    std::array<double, lane_count> sums{};
    std::array<double, lane_count> maxima{};
};

template <typename Value>
KERNEL void add_one(Lanes& lanes, GradientStatistics& result, Value value, std::size_t index) {
    const auto wide = static_cast<double>(value);
    const double magnitude = std::abs(wide);
    lanes.sums[index % lane_count] += wide * wide;
    lanes.maxima[0] = magnitude > lanes.maxima[0] ? magnitude : lanes.maxima[0];
    if (!(magnitude <= std::numeric_limits<double>::max())) {
        note_not_finite(result, 1, index);
    }
}

KERNEL void fold(Lanes& lanes, GradientStatistics& result) {
    for (std::size_t half = lane_count / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) {
            lanes.sums[lane] += lanes.sums[lane + half];
            const double other = lanes.maxima[lane + half];
            lanes.maxima[lane] = other > lanes.maxima[lane] ? other : lanes.maxima[lane];
        }
    }
    const bool has_nan = std::isnan(lanes.sums[0]);
    result.sum_squares = has_nan ? std::numeric_limits<double>::quiet_NaN() : lanes.sums[0];
    result.absolute_maximum = has_nan ? std::numeric_limits<double>::quiet_NaN() : lanes.maxima[0];
}

template <Element from, Element to, bool scaled, bool finite, typename Values>
KERNEL void store_block(std::byte* out, const std::byte* in, const Values& low, const Values& high,
                        bool streaming) {
    if constexpr (from == to && is_short(from) && !scaled) {
        copy_64_bytes(out, in, streaming);
    } else if constexpr (to == Element::bf16 && finite) {
        store_bf16_numbers(out, to_floats(low), to_floats(high), streaming);
    } else {
        store<to>(out, low, high, streaming);
    }
}

// The state of a pass, in vectors.
template <typename Values>
struct Running {
    Values scale;
    Values maxima;
    Doubles sums{};
    GradientStatistics result;
};

// The block of values from `i` on.
template <Element from, Element to, bool stores, bool scaled, typename Values>
KERNEL void turn(Running<Values>& running, const std::byte* source, std::byte* target, std::size_t i,
                 bool streaming) {
    constexpr std::size_t from_size = size_of(from);
    const std::byte* in = source + i * from_size;
    Values low = load<from>(in);
    Values high = load<from>(in + lane_count * from_size);
    if constexpr (scaled) {
        low = mul(low, running.scale);
        high = mul(high, running.scale);
    }
    add_squares(running.sums, low);
    add_squares(running.sums, high);
    running.maxima = absolute_max(absolute_max(running.maxima, low), high);
    const std::uint32_t which = not_finite(low) | (not_finite(high) << lane_count);
    std::byte* const out = target + i * size_of(to);
    if (which != 0) [[unlikely]] {
        note_not_finite(running.result, which, i);
        if constexpr (stores) {
            store_block<from, to, scaled, false>(out, in, low, high, streaming);
        }
    } else if constexpr (stores) {
        store_block<from, to, scaled, true>(out, in, low, high, streaming);
    }
}

// Asks for the block in the same place of the next pages. Past the end of the source, too: that is no access.
template <Element from>
KERNEL void fetch_next(const std::byte* source, std::size_t i) {
    const auto at = reinterpret_cast<std::uintptr_t>(source) + i * size_of(from) + pages_at_once * page_bytes;
    for (std::size_t line = 0; line < block * size_of(from); line += line_bytes) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): past the end of the source, a pointer must not be computed
        fetch(reinterpret_cast<const std::byte*>(at + line));
    }
}

template <Element from, Element to, bool stores, bool scaled, typename Value>
KERNEL GradientStatistics pass(const std::byte* source, std::byte* target, std::size_t count, Value one_scale,
                               bool streaming) {
    constexpr std::size_t from_size = size_of(from);
    constexpr std::size_t to_size = size_of(to);
    constexpr std::size_t page = page_bytes / from_size;  // values
    using Values = decltype(load<from>(source));
    Values scale;
    spread(scale, one_scale);
    Values maxima;
    clear(maxima);
    Running<Values> running{scale, maxima, zeros_d(), {}};
    std::size_t i = 0;
    for (; i + pages_at_once * page <= count; i += pages_at_once * page) {
        for (std::size_t k = i; k < i + page; k += block) {
            for (std::size_t n = 0; n < pages_at_once; ++n) {
                fetch_next<from>(source, k + n * page);
                turn<from, to, stores, scaled>(running, source, target, k + n * page, streaming);
            }
        }
    }
    for (; i + block <= count; i += block) {
        turn<from, to, stores, scaled>(running, source, target, i, streaming);
    }
    if (stores && streaming) {
        drain();
    }

    GradientStatistics& result = running.result;
    Lanes lanes;
    store_f64(reinterpret_cast<std::byte*>(lanes.sums.data()), running.sums, false);
    store_f64(reinterpret_cast<std::byte*>(lanes.maxima.data()), to_doubles(running.maxima), false);
    for (; i < count; ++i) {
        const std::byte* in = source + i * from_size;
        Value value = load_one<from>(in);
        if constexpr (scaled) {
            value *= one_scale;
        }
        add_one(lanes, result, value, i);
        if constexpr (stores && from == to && !scaled) {
            std::memmove(target + i * to_size, in, to_size);
        } else if constexpr (stores) {
            store_one<to>(target + i * to_size, value);
        }
    }
    fold(lanes, result);
    return result;
}

template <Element from, Element to, bool stores>
KERNEL_ENTRY GradientStatistics run(const void* source, void* target, std::size_t count, double scale,
                                    bool streaming) {
    const auto* in = static_cast<const std::byte*>(source);
    auto* out = static_cast<std::byte*>(target);
    const auto one_scale = static_cast<decltype(load_one<from>(in))>(scale);
    // A separate loop without a multiplication by 1, which may change the bits of a NaN.
    return one_scale == 1 ? pass<from, to, stores, false>(in, out, count, one_scale, streaming)
                          : pass<from, to, stores, true>(in, out, count, one_scale, streaming);
}

template <typename Value>
KERNEL_ENTRY bool finite(const void* values, std::size_t count) {
    AllFinite<Value> seen;
    for (std::size_t i = 0; i < count; ++i) {
        seen.see(static_cast<const Value*>(values)[i]);
    }
    return seen.so_far();
}

}  // namespace
}  // namespace ddpdiag
