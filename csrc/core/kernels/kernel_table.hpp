// All kernels of one level; after fused_kernel.hpp and sum_kernel.hpp.

namespace ddpdiag {
namespace {

template <Element from>
constexpr std::array<KernelTable::Copy, element_count> copies_from() {
    return {&run<from, Element::f32, true>, &run<from, Element::f64, true>, &run<from, Element::f16, true>,
            &run<from, Element::bf16, true>};
}

constexpr KernelTable table() {
    return {{copies_from<Element::f32>(), copies_from<Element::f64>(), copies_from<Element::f16>(),
             copies_from<Element::bf16>()},
            {&run<Element::f32, Element::f32, false>, &run<Element::f64, Element::f64, false>,
             &run<Element::f16, Element::f16, false>, &run<Element::bf16, Element::bf16, false>},
            &finite<float>,
            &finite<double>,
            &sum<Element::f16, std::uint16_t>,
            &sum<Element::bf16, std::uint16_t>,
            &sum<Element::f16, float>,
            &sum<Element::bf16, float>,
            {&sum_into_all<Element::f32>, &sum_into_all<Element::f64>, &sum_into_all<Element::f16>,
             &sum_into_all<Element::bf16>}};
}

}  // namespace
}  // namespace ddpdiag
