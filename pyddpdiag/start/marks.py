"""When this process had done what before its first step: for the account of its life."""

from __future__ import annotations

from pyddpdiag.system.clock import monotonic_ns

_marks: dict[str, str | int] = {}
_taken = False


def note(name: str) -> None:
    """Now, under this name (`model.sidecar.Sidecar.start_up`); the first time counts."""
    _marks.setdefault(name, monotonic_ns())


def keep(name: str, value: str | int) -> None:
    """Something else that was seen, under this name; the first time counts."""
    _marks.setdefault(name, value)


def take() -> dict[str, str | int]:
    """All of them, for the first recorder of the process; a later one began in the middle of its life."""
    global _taken
    first, _taken = not _taken, True
    return dict(_marks) if first else {}
