// Which process group a Gloo worker serves: a single one as long as it lives, which Gloo does not tell.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

namespace ddpdiag {

// The calling thread is a worker of this group.
void this_worker_serves(std::uint64_t group) noexcept;

// The group of the operation whose span begins on the calling thread: what its caller noted, or what is known of this
// worker, for which the note then holds for good. 0: not known.
[[nodiscard]] std::uint64_t group_of_operation() noexcept;

// While torch's dispatcher is watched, the caller of each collective notes its group in the thread-local state that the
// worker enters. That needs the arguments of every operation that torch runs, some 0.2 us for each: so it ends after a
// number of operations, and begins again for a worker of whom nothing is known yet.
class GroupSearch {
public:
    // Of so many operations from now on.
    static void renew() noexcept;
    // For a worker without a group, a few times; false: it has been tried.
    [[nodiscard]] static bool renew_for_this_worker() noexcept;
    [[nodiscard]] static bool due() noexcept;

    // Under a mutex of the caller's.
    void listen(bool wanted);

private:
    bool listening_ = false;
    std::uint64_t handle_ = 0;
};

}  // namespace ddpdiag
