"""The file with looks at a rank's stack, written from docs/trace-format.md and not from the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Look = tuple[int, tuple[str, int, str], str, bool]
"""When it was, the innermost line of own code, what that called, and whether the thread waited for a disk."""


def looks_file(run_id: bytes, looks: Sequence[Look]) -> dict[str, Any]:
    """The content of the file with these looks, 50 ms apart on average."""
    frames = list(dict.fromkeys(line for _, line, *_ in looks))
    calls = list(dict.fromkeys(call for _, _, call, _ in looks))
    seen = [(calls.index(call), frames.index(line), on_disk) for _, line, call, on_disk in looks]
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
        "stacks": [[call, frame] for call, frame, _ in stacks],
        "on_disk": [number for number, (*_, on_disk) in enumerate(stacks) if on_disk],
        "at_us": [at - before for before, at in zip([0, *at_us], at_us, strict=False)],
        "stack": [stacks.index(stack) for stack in seen],
    }
