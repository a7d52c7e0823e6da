// What c10 asks of a device: its current stream, its streams and its events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "memory.hpp"
#include "streams.hpp"

namespace test_device {
namespace {

using c10::Device;
using c10::Stream;

const Device only(c10::DeviceType::PrivateUse1, 0);

Stream stream_of(c10::StreamId id) {
    return Stream(Stream::UNSAFE, only, id);
}

std::shared_ptr<Event>& event_of(void* event) {
    return *static_cast<std::shared_ptr<Event>*>(event);
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
public:
    c10::DeviceType type() const override { return only.type(); }
    Device exchangeDevice(Device /*device*/) const override { return only; }
    Device getDevice() const override { return only; }
    void setDevice(Device /*device*/) const override {}
    void uncheckedSetDevice(Device /*device*/) const noexcept override {}
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }

    Stream getStream(Device /*device*/) const override { return stream_of(current_stream); }
    Stream getDefaultStream(Device /*device*/) const override { return stream_of(0); }
    Stream getStreamFromGlobalPool(Device /*device*/, bool /*high*/) const override {
        static std::atomic<c10::StreamId> last{0};
        return stream_of(1 + last++ % static_cast<c10::StreamId>(streams - 1));
    }
    Stream getNewStream(Device device, int /*priority*/) const override {
        return getStreamFromGlobalPool(device, false);
    }
    Stream exchangeStream(Stream stream) const override {
        return stream_of(std::exchange(current_stream, stream.id()));
    }
    bool queryStream(const Stream& stream) const override { return thread_of(stream.id()).is_idle(); }
    void synchronizeStream(const Stream& stream) const override { thread_of(stream.id()).synchronize(); }
    void synchronizeDevice(const c10::DeviceIndex /*index*/) const override {
        for (std::size_t id = 0; id < streams; ++id) {
            thread_of(static_cast<c10::StreamId>(id)).synchronize();
        }
    }

    void record(void** event, const Stream& stream, const c10::DeviceIndex /*index*/,
                const c10::EventFlag /*flag*/) const override {
        if (*event == nullptr) {
            *event = new std::shared_ptr<Event>(std::make_shared<Event>());
        }
        thread_of(stream.id()).record(event_of(*event));
    }
    void block(void* event, const Stream& stream) const override {
        thread_of(stream.id()).wait_for(event_of(event));
    }
    bool queryEvent(void* event) const override {
        return event_of(event)->is_reached(event_of(event)->recorded());
    }
    void synchronizeEvent(void* event) const override { event_of(event)->wait(event_of(event)->recorded()); }
    void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
        delete static_cast<std::shared_ptr<Event>*>(event);
    }

    void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
        used_on(data, stream.id());
    }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace test_device
