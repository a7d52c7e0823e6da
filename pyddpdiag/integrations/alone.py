"""Whether this rank trains alone: optimizers step in a group of several ranks, and it calls no collective in between.

Every process below `pyddpdiag run` that loads torch's optimizers loads this; it asks torch only once a step is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyddpdiag.integrations.contained import contained
from pyddpdiag.system.handlers import by_handler

LEAST_STEPS: Final = 3
"""So many steps in a row are no accident: not without a collective, and not with one."""


called: Final[list[Any]] = []
"""Handles of hooks that have been called; `forget_called` removes them."""


class AloneWatch:
    """Counts the steps of optimizers until it is known, which costs some microseconds for each.

    Args:
        found: called once it is known that this rank trains alone.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self.over = False
        """It is known, or cannot be."""
        self._found = found
        self._begun: int | None = None  # collectives, at the last step
        self._without = self._with = 0

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped. Whatever is wrong with it, a training must not end by it."""
        try:
            self._stepped(optimizer)
        except Exception as error:
            if by_handler(error):
                raise
            self.over = True

    def _stepped(self, optimizer: Any) -> None:
        begun = _collectives_begun()
        if begun is None or not _has_gradients(optimizer):
            return
        before, self._begun = self._begun, begun
        if before is None:
            return
        if begun == before:
            self._without, self._with = self._without + 1, 0
        else:
            self._without, self._with = 0, self._with + 1
        self.over = max(self._without, self._with) >= LEAST_STEPS
        if self._without >= LEAST_STEPS:
            at_next_step(optimizer, self._found)


def at_next_step(optimizer: Any, call: Callable[[], None]) -> None:
    """Calls it once, in the optimizer's next step.

    A hook of all optimizers must not lead to another one: torch goes through these hooks then. It has not begun to when
    it calls those of one optimizer.
    """
    once = _Once(call)
    once.handle = optimizer.register_step_post_hook(once)


def forget_called() -> None:
    """Removes from optimizers what has been called. Called in a hook of all optimizers, which follows theirs."""
    while called:
        called.pop().remove()


class _Once:
    """A hook of one optimizer, to be removed once it has run: torch goes through the optimizer's hooks then."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call
        self.handle: Any = None

    def __call__(self, *_: object) -> None:
        call, self._call = self._call, None
        if call is not None:
            called.append(self.handle)
            with contained:
                call()

    def __reduce__(self) -> tuple[Any, ...]:
        # In a copy of the optimizer, read perhaps where pyddpdiag is not, a harmless type that takes a hook's
        # three arguments.
        return (type, (slice(None),))


def _has_gradients(optimizer: Any) -> bool:
    from pyddpdiag.record.unseen import unseen

    with unseen():
        return any(one.grad is not None for group in optimizer.param_groups for one in group["params"])


def _collectives_begun() -> int | None:
    """By this rank, in all its process groups; None: there is no other rank.

    Raises:
        RuntimeError: of a group whose backend does not count.
    """
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized() or c10d.get_world_size() < 2:
        return None
    groups: Mapping[Any, Any] = c10d._world.pg_map
    return sum(int(group._get_sequence_number_for_group()) for group in groups)
