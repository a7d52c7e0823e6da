"""The file with looks at a rank's stack, written from docs/trace-format.md and not from the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Look = tuple[int, tuple[str, int, str], str]
"""When it was, the innermost line of own code, and what that called."""


def looks_file(run_id: bytes, looks: Sequence[Look]) -> dict[str, Any]:
    """The content of the file with these looks, 50 ms apart on average."""
    frames = list(dict.fromkeys(line for _, line, _ in looks))
    calls = list(dict.fromkeys(call for *_, call in looks))
    seen = [(calls.index(call), frames.index(line)) for _, line, call in looks]
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
        "stacks": [list(stack) for stack in stacks],
        "at_us": [at - before for before, at in zip([0, *at_us], at_us, strict=False)],
        "stack": [stacks.index(stack) for stack in seen],
    }
