#include "platform/last_signal.hpp"

namespace ddpdiag::platform {

void note_last_signal(const std::filesystem::path& /*note*/) noexcept {}
void forget_last_signal(const std::filesystem::path& /*note*/) noexcept {}
void before_terminate(void (* /*call*/)()) noexcept {}

}  // namespace ddpdiag::platform
