#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "platform/mapping_guard.hpp"

namespace ddpdiag::platform {
namespace {

using Action = struct sigaction;
using Handler = void (*)(int, siginfo_t*, void*);

// Others may install handlers over ours; ours is then installed over theirs again. Each time it is another
// function, so that following "the handler before me" always leads down and never in a circle.
constexpr std::size_t max_levels = 8;

// Signal handlers are per process, so what they read is, too.
struct Guards {
    std::mutex mutex;  // for adding and removing; the handler never locks it
    std::atomic<GuardedMapping*> first{nullptr};
    std::array<Action, max_levels> before{};  // what each of our handlers replaced
    std::size_t levels = 0;
    bool watches_forks = false;
};

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
constinit Guards guards;

// Atomic for all threads: none sees a hole. A plain system call is allowed in a signal handler. Sanitizers do not see
// it: to them, the memory stays what it was.
bool put_memory_in_place(GuardedMapping& mapping, MappingState state) noexcept {
    const std::uintptr_t begin = mapping.begin.load(std::memory_order_acquire);
    const std::uintptr_t end = mapping.end.load(std::memory_order_acquire);
    const long placed = ::syscall(SYS_mmap, begin, end - begin, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);
    if (placed == -1) {
        return false;
    }
    mapping.state.store(state, std::memory_order_release);
    return true;
}

GuardedMapping* mapping_at(std::uintptr_t address) noexcept {
    for (auto* mapping = guards.first.load(std::memory_order_acquire); mapping != nullptr;
         mapping = mapping->next) {
        const std::uintptr_t begin = mapping->begin.load(std::memory_order_acquire);
        if (begin != 0 && begin <= address && address < mapping->end.load(std::memory_order_acquire)) {
            return mapping;
        }
    }
    return nullptr;
}

// Whether the fault was in one of our mappings and the store may be retried.
bool mended(const siginfo_t& info) noexcept {
    // Not a signal that a process sent, nor broken memory.
    if (info.si_code != BUS_ADRERR) {
        return false;
    }
    GuardedMapping* const mapping = mapping_at(reinterpret_cast<std::uintptr_t>(info.si_addr));
    if (mapping == nullptr) {
        return false;
    }
    // Another thread may have been faster.
    return mapping->state.load(std::memory_order_acquire) != MappingState::whole ||
           put_memory_in_place(*mapping, MappingState::cut_short);
}

bool has(const Action& action, unsigned flag) noexcept {
    return (static_cast<unsigned>(action.sa_flags) & flag) != 0;
}

// Does what would have happened without our handler.
void pass_on(Action& before, int signal, siginfo_t* info, void* context) noexcept {
    // Of memory that broke where nobody was reading it, the system tells but once.
    const bool sent = info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
    const bool takes_info = has(before, SA_SIGINFO);
    const bool is_default = !takes_info && before.sa_handler == SIG_DFL;
    const bool is_ignored = !takes_info && before.sa_handler == SIG_IGN;
    if (is_ignored && sent) {
        return;
    }
    if (is_default || is_ignored) {
        // A fault repeats at the same instruction and then ends the process there; a sent signal is sent again.
        Action end{};
        end.sa_handler = SIG_DFL;
        ::sigaction(signal, &end, nullptr);
        if (sent) {
            ::raise(signal);
        }
        return;
    }
    // The mask that this handler asked for; the return from ours restores the old one.
    ::pthread_sigmask(SIG_BLOCK, &before.sa_mask, nullptr);
    if (has(before, SA_NODEFER)) {
        sigset_t own{};
        ::sigemptyset(&own);
        ::sigaddset(&own, signal);
        ::pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
    }
    const Action called = before;
    if (has(before, SA_RESETHAND)) {
        before = Action{};
    }
    if (takes_info) {
        called.sa_sigaction(signal, info, context);
    } else {
        called.sa_handler(signal);
    }
}

template <std::size_t level>
void on_fault(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    if (!mended(*info)) {
        pass_on(guards.before[level], signal, info, context);
    }
    errno = error;
}

template <std::size_t... level>
constexpr std::array<Handler, max_levels> handlers_of(std::index_sequence<level...> /*levels*/) {
    return {&on_fault<level>...};
}

constexpr auto handlers = handlers_of(std::make_index_sequence<max_levels>());

bool is_ours(const Action& action) noexcept {
    return has(action, SA_SIGINFO) &&
           std::ranges::any_of(handlers, [&](Handler handler) { return action.sa_sigaction == handler; });
}

// Under the mutex.
void install() noexcept {
    Action now{};
    if (guards.levels == max_levels || ::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) {
        return;
    }
    guards.before[guards.levels] = now;
    Action ours{};
    ours.sa_sigaction = handlers[guards.levels];
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&ours.sa_mask);
    if (::sigaction(SIGBUS, &ours, nullptr) == 0) {
        ++guards.levels;
    }
}

// Runs after fork() in the child, which has only this thread. vfork() and posix_spawn() do not call it, and must not:
// their child shares our memory until it runs another program.
void leave_the_parents_files() noexcept {
    for (auto* mapping = guards.first.load(std::memory_order_acquire); mapping != nullptr;
         mapping = mapping->next) {
        if (mapping->begin.load(std::memory_order_relaxed) != 0) {
            put_memory_in_place(*mapping, MappingState::inherited);
        }
    }
    guards.mutex.unlock();
}

// Under the mutex.
void watch_forks() noexcept {
    if (!guards.watches_forks) {
        // The mutex is held during the fork, so that the child finds it free and the list consistent.
        guards.watches_forks = ::pthread_atfork([] { guards.mutex.lock(); }, [] { guards.mutex.unlock(); },
                                                &leave_the_parents_files) == 0;
    }
}

GuardedMapping& unused_or_new() {
    for (auto* mapping = guards.first.load(std::memory_order_acquire); mapping != nullptr;
         mapping = mapping->next) {
        if (mapping->begin.load(std::memory_order_relaxed) == 0) {
            return *mapping;
        }
    }
    auto* const added = new GuardedMapping;
    added->next = guards.first.load(std::memory_order_relaxed);
    guards.first.store(added, std::memory_order_release);
    return *added;
}

}  // namespace

GuardedMapping* guard(const std::byte* data, std::size_t size) {
    const std::lock_guard lock(guards.mutex);
    install();
    watch_forks();
    GuardedMapping& mapping = unused_or_new();
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    mapping.state.store(MappingState::whole, std::memory_order_relaxed);
    mapping.end.store(begin + size, std::memory_order_release);
    mapping.begin.store(begin, std::memory_order_release);
    return &mapping;
}

void give_up(GuardedMapping& mapping) noexcept {
    const std::lock_guard lock(guards.mutex);
    if (mapping.state.load(std::memory_order_acquire) == MappingState::whole) {
        put_memory_in_place(mapping, MappingState::whole);
    }
}

void unguard(GuardedMapping& mapping) noexcept {
    const std::lock_guard lock(guards.mutex);
    mapping.begin.store(0, std::memory_order_release);
}

void MappedFile::renew_guard() noexcept {
    const std::lock_guard lock(guards.mutex);
    install();
}

}  // namespace ddpdiag::platform
