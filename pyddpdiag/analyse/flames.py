"""A rank's looks by part and stack, for a flame graph and for tools that draw one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from pyddpdiag.analyse.filing import PARTS, RankLines
from pyddpdiag.model.lines import Flame

ON_DISK: Final = "waits for a disk"
"""Below the line or the call in which a thread did so."""

LEAST: Final = 0.002
"""Share of all looks at the rank: what has fewer is not drawn."""


class _Node:
    def __init__(self) -> None:
        self.count = 0
        self.below: dict[str, _Node] = {}


def stacks_of(lines: RankLines) -> Iterable[tuple[tuple[str, ...], int]]:
    """Each part with each stack in it, the outermost first, and how many looks saw that."""
    for number, part in enumerate(PARTS):
        counts = np.bincount(lines.stack[lines.part == number], minlength=len(lines.stacks)).tolist()
        for stack, count in zip(lines.stacks, counts, strict=True):
            if count:
                names = [part, *map(str, stack.lines), stack.call, ON_DISK if stack.on_disk else ""]
                yield tuple(name for name in names if name), count


def flame(rank: int, lines: RankLines) -> Flame:
    """The bars of one rank; beside one another, the one with most looks first. Parts keep their order."""
    root = _Node()
    for names, count in stacks_of(lines):
        node = root
        node.count += count
        for name in names:
            node = node.below.setdefault(name, _Node())
            node.count += count
    bars: list[tuple[str, int, float, float]] = []
    second = lines.interval_ms / 1e3
    _place(root, 0, 0, LEAST * root.count, second, bars)
    names, depth, start, end = zip(*bars, strict=True) if bars else ((), (), (), ())
    return Flame(rank, names, depth, start, end)


def _place(
    node: _Node, depth: int, at: int, least: float, second: float, bars: list[tuple[str, int, float, float]]
) -> None:
    below = node.below.items()
    for name, each in below if depth == 0 else sorted(below, key=lambda item: -item[1].count):
        if each.count >= least:
            bars.append((name, depth, at * second, (at + each.count) * second))
            _place(each, depth + 1, at, least, second, bars)
        at += each.count
