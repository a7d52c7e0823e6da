"""The file with looks at a rank's stack, written from docs/trace-format.md and not from the reader."""

from collections.abc import Sequence
from typing import Any, TypeGuard

At = tuple[str, int, str]
Look = tuple[int, tuple[At, ...], str, bool]
"""When it was, the lines of own code, the outermost first, what the innermost one called, and whether the thread waited
for a disk."""


def is_line(line: At | Sequence[At]) -> TypeGuard[At]:
    """Whether this is a single one."""
    return isinstance(line[0], str)


def looks_file(run_id: bytes, looks: Sequence[Look]) -> dict[str, Any]:
    """The content of the file with these looks, 50 ms apart on average."""
    frames = list(dict.fromkeys(line for _, lines, *_ in looks for line in lines))
    calls = list(dict.fromkeys(call for _, _, call, _ in looks))
    seen = [
        (calls.index(call), tuple(map(frames.index, lines)), on_disk) for _, lines, call, on_disk in looks
    ]
    stacks = list(dict.fromkeys(seen))
    at_us = [at // 1000 for at, *_ in looks]
    return {
        "format": "ddplines",
        "schema_version": 1,
        "run_id": run_id.hex(),
        "interval_us": 50_000,
        "missed_us": 0,
        "frames": [list(frame) for frame in frames],
        "calls": calls,
        "stacks": [[call, *lines] for call, lines, _ in stacks],
        "on_disk": [number for number, (*_, on_disk) in enumerate(stacks) if on_disk],
        "at_us": [at - before for before, at in zip([0, *at_us], at_us, strict=False)],
        "stack": [stacks.index(stack) for stack in seen],
    }
