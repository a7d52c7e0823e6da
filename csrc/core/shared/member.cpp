#include "core/shared/member.hpp"

#include <new>
#include <random>

namespace ddpdiag {
namespace {

SharedControl& control_in(const platform::SharedMemory& memory) noexcept {
    return *reinterpret_cast<SharedControl*>(memory.data());
}

SharedSecret secret_in(const SharedControl& control) noexcept {
    return {control.secret[0].load(), control.secret[1].load()};
}

}  // namespace

SharedMember::SharedMember()
    : memory_(platform::SharedMemory::create(sizeof(SharedControl))),
      bell_(platform::SharedBell::create(memory_.name())) {
    auto* const control = new (memory_.data()) SharedControl{};
    std::random_device random;
    for (auto& word : control->secret) {
        word = (std::uint64_t{random()} << 32U) | random();
    }
    control->magic = shared_magic;
}

SharedSecret SharedMember::secret() const noexcept {
    return secret_in(control());
}

SharedControl& SharedMember::control() const noexcept {
    return control_in(memory_);
}

SharedPeer::SharedPeer(const std::string& name, std::uint64_t process)
    : watch_(process),
      memory_(platform::SharedMemory::open(name, sizeof(SharedControl))),
      bell_(platform::SharedBell::open(name)) {
    if (control_in(memory_).magic != shared_magic) {
        throw platform::SystemError(platform::Cause::other,
                                    "the shared memory '" + name + "' is not that of a rank");
    }
}

SharedSecret SharedPeer::secret() const noexcept {
    return secret_in(control());
}

SharedControl& SharedPeer::control() const noexcept {
    return control_in(memory_);
}

void SharedPeer::ring() const noexcept {
    SharedControl& theirs = control();
    theirs.rings.fetch_add(1);
    if (theirs.sleeping.load() != 0) {
        bell_.wake(theirs.rings);
    }
}

}  // namespace ddpdiag
