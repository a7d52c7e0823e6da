// The operations that the device has itself; the CPU does the others, and waits for them.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "memory.hpp"
#include "streams.hpp"

namespace test_device {
namespace {

// Copies that were not to wait, and did.
std::atomic<std::int64_t> blocking_copies{0};

// The tensor's memory as the thread of a stream sees it: nothing is kept alive by it.
at::Tensor seen(const at::Tensor& tensor) {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         at::TensorOptions().dtype(tensor.scalar_type()));
}

template <typename Work>
void compute(const Work& work) {
    thread_of(current_stream).compute([work] {
        const at::AutoDispatchBelowADInplaceOrView below;
        work();
    });
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    const at::Tensor source = from.expand_as(to);
    compute([target = seen(to), source = seen(source)] { target.copy_(source); });
    const at::Tensor& host = to.is_cpu() ? to : from;
    const bool waits = host.is_cpu() && !(non_blocking && is_pinned(host.data_ptr()));
    if (waits) {
        blocking_copies += non_blocking ? 1 : 0;
        thread_of(current_stream).synchronize();
    }
    return to;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    at::Tensor target = to;
    return copy(target, from, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    at::Tensor target = to;
    if (target.sizes() != from.sizes()) {
        const at::Tensor fresh = at::detail::empty_generic(from.sizes(), allocator(), target.key_set(),
                                                           target.scalar_type(), std::nullopt);
        target.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
        target.unsafeGetTensorImpl()->set_sizes_contiguous(from.sizes());
    }
    return copy(target, from, /*non_blocking=*/false);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
    compute([target = seen(self), value] { target.fill_(value); });
    return self;
}

at::Tensor& divide(at::Tensor& self, const at::Scalar& value) {
    compute([target = seen(self), value] { target.div_(value); });
    return self;
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
    return at::detail::empty_generic(size, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pin*/) {
    return at::detail::empty_strided_generic(size, stride, allocator(),
                                             c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
    return at::native::view(self, size);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

void fall_back(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
    at::native::cpu_fallback(operation, stack);
}

void set_delay(std::int64_t of_default_us, std::int64_t of_pool_us) {
    default_delay_us = of_default_us;
    pool_delay_us = of_pool_us;
}

std::int64_t take_blocking_copies() {
    return blocking_copies.exchange(0);
}

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
};

const bool registered = [] {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
}();

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
    library.impl("empty.memory_format", &empty);
    library.impl("empty_strided", &empty_strided);
    library.impl("_copy_from", &copy_from);
    library.impl("_copy_from_and_resize", &copy_from_and_resize);
    library.impl("copy_", [](at::Tensor& to, const at::Tensor& from, bool non_blocking) -> at::Tensor& {
        return copy(to, from, non_blocking);
    });
    library.impl("fill_.Scalar", &fill);
    library.impl("div_.Scalar", &divide);
    library.impl("view", &view);
    library.impl("as_strided", &as_strided);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

TORCH_LIBRARY_FRAGMENT(pyddpdiag_test_device, library) {
    library.def("set_delay", &set_delay);
    library.def("take_blocking_copies", &take_blocking_copies);
}

}  // namespace test_device
