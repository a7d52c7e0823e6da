"""Samples of a rank's Python stack: one schema, for the recorder that writes them and the reader that trusts nothing.

docs/examples/rank_0.lines is an example, which a test holds against this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyddpdiag.model.memory import Memory, memory_from_json, memory_to_json
from pyddpdiag.model.untrusted import LATEST_NS, needed_list, needed_text, needed_whole

FORMAT: Final = "ddplines"
SCHEMA_VERSION: Final = 1

COLLECTED: Final = "pyddpdiag.record.collector.CollectorWatch._note"
"""What a thread calls, in the looks, that has just collected garbage."""

SAMPLES_LIMIT: Final = 2048
"""Samples that a recorder keeps: with more, it drops every second one and looks half as often."""

STACKS_LIMIT: Final = 1024
DEPTH_LIMIT: Final = 8
"""Lines of one stack, the innermost ones."""

NAME_LIMIT: Final = 120


def lines_beside(trace: Path) -> Path:
    """Where the samples of the rank lie whose trace this is."""
    return trace.with_suffix(".lines")


@dataclass(frozen=True)
class Line:
    """A line of the script's own code: a file relative to the script's folder, and the function that it is in."""

    file: str
    number: int
    function: str

    @property
    def place(self) -> str:
        """Without the function: `train.py:41`."""
        return f"{self.file}:{self.number}"

    def __str__(self) -> str:
        """As findings say it: `train.py:41 in load_labels`."""
        inside = self.function not in ("", "<module>")
        return self.place + (f" in {self.function}" if inside else "")


@dataclass(frozen=True)
class Stack:
    """The lines of own code in which a thread was, the outermost first, and what the innermost one called.

    `call` is no own code: `time.sleep`, or the innermost function of torch, Python or another package; may be empty.
    `on_disk`: the thread waited for a disk or a network file system there.
    """

    lines: tuple[Line, ...] = ()
    call: str = ""
    on_disk: bool = False


@dataclass(frozen=True)
class LineStats:
    """How often a rank was at a line in a part of the training.

    `where` is empty where no line of own code is on the stack; `call` is what it called there. `samples` of the looks
    in this part, `fraction` of them, and the time `total_s` for which they stand. `missed_s`: how long no look at this
    rank was possible in the whole run.
    """

    rank: int
    part: str
    where: str
    call: str
    samples: int
    fraction: float
    total_s: float
    missed_s: float


@dataclass(frozen=True)
class Flame:
    """The looks at a rank as bars below one another: the part of the training, then the lines of its stacks.

    Bar `i` is in lane `depth[i]` from `start_s[i]` to `end_s[i]`: not when it was, but for how long in all.
    """

    rank: int
    names: tuple[str, ...]
    depth: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


@dataclass(frozen=True)
class Lines:
    """Samples of one rank's main thread, the earliest first: `stack[i]` is an index into `stacks`.

    Attributes:
        run_id: of the run, as in the header of the trace.
        interval_ns: the mean time between two looks.
        missed_ns: for so long no look was possible though one was due, mostly because the main thread held the
            interpreter lock.
        stacks: the different ones.
        at_ns: when, on the records' clock.
        stack: which.
        memory: what the rank took meanwhile.
    """

    run_id: str
    interval_ns: int
    missed_ns: int
    stacks: tuple[Stack, ...]
    at_ns: tuple[int, ...]
    stack: tuple[int, ...]
    memory: Memory = field(default_factory=Memory)


def to_json(lines: Lines) -> dict[str, Any]:
    """The content of the file, to be dumped as JSON. Only the stacks that a sample has."""
    used = sorted(set(lines.stack))
    place = {stack: number for number, stack in enumerate(used)}
    frames: dict[Line, int] = {}
    calls: dict[str, int] = {}
    stacks = []
    for stack in (lines.stacks[number] for number in used):
        call = calls.setdefault(stack.call, len(calls))
        stacks.append([call, *(frames.setdefault(line, len(frames)) for line in stack.lines)])
    at_us = [at // 1000 for at in lines.at_ns]
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "run_id": lines.run_id,
        "interval_us": lines.interval_ns // 1000,
        "missed_us": lines.missed_ns // 1000,
        "frames": [[line.file, line.number, line.function] for line in frames],
        "calls": list(calls),
        "stacks": stacks,
        "on_disk": [number for number, stack in enumerate(used) if lines.stacks[stack].on_disk],
        # Each one as the difference to the one before.
        "at_us": [now - before for before, now in zip([0, *at_us], at_us, strict=False)],
        "stack": [place[stack] for stack in lines.stack],
        **({"memory": memory_to_json(lines.memory)} if lines.memory.at_ns else {}),
    }


def from_json(raw: Any) -> Lines | None:
    """What a file holds; None: it is not what a recorder writes, or of another version."""
    if not isinstance(raw, Mapping) or raw.get("format") != FORMAT:
        return None
    try:
        return _lines(raw)
    except (TypeError, ValueError, KeyError, IndexError):
        return None


def _lines(raw: Mapping[str, Any]) -> Lines:
    if raw["schema_version"] != SCHEMA_VERSION:
        raise ValueError("another version")
    frames = [
        Line(needed_text(file, NAME_LIMIT), needed_whole(number, 2**31), needed_text(function, NAME_LIMIT))
        for file, number, function in needed_list(raw["frames"], STACKS_LIMIT * DEPTH_LIMIT)
    ]
    calls = [needed_text(call, NAME_LIMIT) for call in needed_list(raw["calls"], STACKS_LIMIT)]
    # Files of 0.2.0 do not have it.
    on_disk = frozenset(needed_list(raw.get("on_disk", []), STACKS_LIMIT))
    stacks = tuple(
        Stack(
            tuple(
                frames[needed_whole(each, len(frames))] for each in needed_list(stack, DEPTH_LIMIT + 1)[1:]
            ),
            calls[needed_whole(stack[0], len(calls))],
            number in on_disk,
        )
        for number, stack in enumerate(needed_list(raw["stacks"], STACKS_LIMIT))
    )
    at_ns, at = [], 0
    for step in needed_list(raw["at_us"], SAMPLES_LIMIT):
        at += 1000 * needed_whole(step, LATEST_NS // 1000)
        at_ns.append(needed_whole(at, LATEST_NS))
    stack = tuple(needed_whole(each, len(stacks)) for each in needed_list(raw["stack"], SAMPLES_LIMIT))
    if len(stack) != len(at_ns) or not isinstance(raw["run_id"], str):
        raise ValueError("no samples")
    interval_ns = 1000 * needed_whole(raw["interval_us"], 10**12)
    if not interval_ns:
        raise ValueError("no interval")
    missed_ns = 1000 * needed_whole(raw["missed_us"], LATEST_NS // 1000)
    memory = memory_from_json(raw.get("memory"))
    return Lines(raw["run_id"], interval_ns, missed_ns, stacks, tuple(at_ns), stack, memory)
