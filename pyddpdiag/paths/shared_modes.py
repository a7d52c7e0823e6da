"""The values of `shared_memory=...`."""

from __future__ import annotations

from typing import Final, Literal

from pyddpdiag.errors import UsageError

SharedMemory = Literal["off", "auto", "require"]
_MODES: Final = ("off", "auto", "require")


def require_mode(mode: str) -> None:
    """Checks an argument.

    Raises:
        UsageError: there is no such mode.
    """
    if mode not in _MODES:
        raise UsageError(
            f"shared_memory must be 'off', 'auto' or 'require', not {mode!r}.",
            hint="'auto' uses shared memory where all ranks have it, 'require' fails where they do not.",
        )


__all__ = ["SharedMemory", "require_mode"]
