// The summing kernels, for the vectors and on top of the pieces of fused_kernel.hpp, after which it is included.

namespace ddpdiag {
namespace {

// Sums of 16-bit values, rounded to their type; `Output`: those bits, or float for the values that they
// represent.
template <Element element, typename Output>
KERNEL void put_sums(Output* output, const Floats& low, const Floats& high) {
    if constexpr (std::is_same_v<Output, float>) {
        alignas(64) std::array<std::byte, block * 2> rounded{};
        store<element>(rounded.data(), low, high, false);
        auto* const out = reinterpret_cast<std::byte*>(output);
        store_f32(out, load<element>(rounded.data()), false);
        store_f32(out + lane_count * 4, load<element>(rounded.data() + lane_count * 2), false);
    } else {
        store<element>(reinterpret_cast<std::byte*>(output), low, high, false);
    }
}

template <Element element, typename Output>
KERNEL_ENTRY void sum(const std::uint16_t* const* inputs, std::size_t input_count, Output* output,
                      std::size_t count) {
    if (input_count == 0) {
        std::memset(output, 0, count * sizeof *output);
        return;
    }
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
        const auto* first = reinterpret_cast<const std::byte*>(inputs[0] + i);
        Floats low = load<element>(first);
        Floats high = load<element>(first + lane_count * 2);
        for (std::size_t k = 1; k < input_count; ++k) {
            const auto* next = reinterpret_cast<const std::byte*>(inputs[k] + i);
            low = add(low, load<element>(next));
            high = add(high, load<element>(next + lane_count * 2));
        }
        put_sums<element>(output + i, low, high);
    }
    for (; i < count; ++i) {
        float total = load_one<element>(reinterpret_cast<const std::byte*>(inputs[0] + i));
        for (std::size_t k = 1; k < input_count; ++k) {
            total += load_one<element>(reinterpret_cast<const std::byte*>(inputs[k] + i));
        }
        std::uint16_t bits = 0;
        store_one<element>(reinterpret_cast<std::byte*>(&bits), total);
        if constexpr (std::is_same_v<Output, float>) {
            output[i] = load_one<element>(reinterpret_cast<const std::byte*>(&bits));
        } else {
            output[i] = bits;
        }
    }
}

// Divided by 1, which changes nothing, or by the number of ranks.
template <bool exact, typename Values>
KERNEL Values divided(const Values& values, const Values& by) {
    if constexpr (exact) {
        return mul(values, by);
    } else {
        return div(values, by);
    }
}
template <bool exact, typename Value>
KERNEL Value divided_one(Value value, Value by) {
    return exact ? value * by : value / by;
}

// Each value is read and written once, and does not leave its register in between. One page after the other: here,
// more at once, as the copies read them, are slower.
template <Element element, bool exact>
KERNEL std::size_t sum_parts(const KernelTable::Parts& parts, double one_by) {
    constexpr std::size_t size = size_of(element);
    constexpr std::size_t half = lane_count * size;
    const std::byte* const* const inputs = parts.inputs;
    using Values = decltype(load<element>(inputs[0]));
    using Value = decltype(load_one<element>(inputs[0]));
    Values by;
    spread(by, one_by);
    std::size_t i = 0;
    for (; i + block <= parts.count; i += block) {
        const std::size_t at = parts.begin + i * size;
        Values low = divided<exact>(load<element>(inputs[0] + at), by);
        Values high = divided<exact>(load<element>(inputs[0] + at + half), by);
        for (std::size_t k = 1; k < parts.input_count; ++k) {
            low = add(low, divided<exact>(load<element>(inputs[k] + at), by));
            high = add(high, divided<exact>(load<element>(inputs[k] + at + half), by));
        }
        if ((not_finite(low) | not_finite(high)) != 0 && parts.stops) [[unlikely]] {
            return i;
        }
        for (std::size_t k = 0; k < parts.output_count; ++k) {
            store<element>(parts.outputs[k] + at, low, high, false);
        }
    }
    const auto divisor = static_cast<Value>(one_by);
    for (; i < parts.count; ++i) {
        const std::size_t at = parts.begin + i * size;
        Value sum = divided_one<exact>(load_one<element>(inputs[0] + at), divisor);
        for (std::size_t k = 1; k < parts.input_count; ++k) {
            sum += divided_one<exact>(load_one<element>(inputs[k] + at), divisor);
        }
        if (!(std::abs(sum) <= std::numeric_limits<Value>::max()) && parts.stops) [[unlikely]] {
            return i;
        }
        for (std::size_t k = 0; k < parts.output_count; ++k) {
            store_one<element>(parts.outputs[k] + at, sum);
        }
    }
    return i;
}

template <Element element>
KERNEL_ENTRY std::size_t sum_into_all(const KernelTable::Parts& parts) {
    // A power of two may be multiplied: the bits are the same.
    return std::has_single_bit(parts.divisor)
               ? sum_parts<element, true>(parts, 1.0 / static_cast<double>(parts.divisor))
               : sum_parts<element, false>(parts, static_cast<double>(parts.divisor));
}

}  // namespace
}  // namespace ddpdiag
