"""Which buckets DDP would make of a run's parameters with another cap, and how much backward could then hide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import BACKWARD_SHARE, NEARLY_ALL
from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.step_matrix import median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.sidecar import Layout, Module

MIB: Final = 2**20

ITEM_BYTES: Final = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "complex64": 8,
    "complex128": 16,
}

FINEST: Final = 16
"""Caps down to this part of all bytes are tried."""


ROWS: Final = 1000
"""A lookup table has at least this many rows."""

_TABLE: Final = re.compile(r"emb|lookup|wte|wpe|vocab|token", re.IGNORECASE)

_NAMELESS: Final = re.compile(r"(?:\d+\.)*weight")
"""In an nn.Sequential."""

NO_SPARSE: Final = "GradientReducer"
"""It takes no sparse gradients."""

HIGHER: Final = 8
"""Without such a name, it has this many times more rows than columns."""


@dataclass(frozen=True)
class Parameter:
    """A parameter by the name that the report shows, and its gradient's bytes; `table`: it may be an embedding's."""

    name: str
    bytes: int
    table: bool


@dataclass(frozen=True)
class _Line:
    """A module's parameters of one type, in the order in which DDP goes through them.

    Where it has rebuilt its buckets, that is as their gradients became ready. Before that it is as the module names
    them, and the last bucket is the first (`backwards`).
    """

    parameters: tuple[Parameter, ...]
    backwards: bool

    def filled(self, *caps_bytes: float) -> list[list[Parameter]]:
        """What is in each bucket, the one that is ready first at the front: it closes as it reaches its cap.

        Each bucket has a cap of its own, as DDP fills them one after the other; the last one is for all further ones.
        """
        found: list[list[Parameter]] = []
        bucket: list[Parameter] = []
        size = 0
        for parameter in self.parameters:
            bucket.append(parameter)
            size += parameter.bytes
            if size >= caps_bytes[min(len(found), len(caps_bytes) - 1)]:
                found.append(bucket)
                bucket, size = [], 0
        found += [bucket] if size else []
        return found[::-1] if self.backwards else found

    def buckets(self, cap_bytes: float) -> list[int]:
        """The bytes of each bucket, in the same order."""
        return [sum(each.bytes for each in bucket) for bucket in self.filled(cap_bytes)]


@dataclass(frozen=True)
class Assignment:
    """The parameters of the buckets of a layout.

    `cap_mb`: the present cap, if it is known: a larger one cannot split anything.
    """

    lines: tuple[_Line, ...]
    cap_mb: float | None

    @cached_property
    def bytes(self) -> int:
        """Of all gradients."""
        return sum(each.bytes for line in self.lines for each in line.parameters)

    def buckets(self, cap_mb: float) -> int:
        """How many buckets a cap makes."""
        return sum(len(line.buckets(cap_mb * MIB)) for line in self.lines)

    def layout(self, *caps_mb: float) -> list[list[Parameter]] | None:
        """What a cap puts into each bucket, or a cap of each; in the order in which they leave.

        None for gradients of several types.
        """
        return self.lines[0].filled(*(cap * MIB for cap in caps_mb)) if len(self.lines) == 1 else None

    def last_bytes(self, cap_mb: float) -> int:
        """The bytes that a cap leaves in the buckets that are ready last."""
        return sum(line.buckets(cap_mb * MIB)[-1] for line in self.lines)

    def best_split(self, caps_mb: Iterable[float], most: int) -> tuple[float, int]:
        """The cap that leaves the least in the last bucket, in no more than so many buckets, and what it leaves there.

        Of equal ones the largest. Where none divides anything, all bytes are left.
        """
        usable = [cap for cap in caps_mb if self.cap_mb is None or cap < self.cap_mb]
        found = [(self.last_bytes(cap), -cap) for cap in usable if 1 < self.buckets(cap) <= most]
        left, cap = min(found, default=(self.bytes, 0.0))
        return -cap, left

    @property
    def is_one_piece(self) -> bool:
        """Whether no cap lets a part worth mentioning leave before the end."""
        _, left = self.best_split((self.bytes / MIB / pieces for pieces in range(2, FINEST + 1)), FINEST)
        return left > NEARLY_ALL * self.bytes

    def of(self, bucket: BucketStats) -> list[Parameter]:
        """The parameters of a bucket."""
        own = set(bucket.parameters)
        return [each for line in self.lines for each in line.parameters if each.name in own]


def assignment(names: Names, buckets: Sequence[BucketStats]) -> Assignment | None:
    """The parameters of the buckets; None if the size of one is not known."""
    by_module: dict[int, list[tuple[BucketStats, Layout]]] = {}
    for bucket in buckets:
        layout = names.layouts.get(int(bucket.bucket, 16))
        if layout is None or not layout.parameters:
            return None
        by_module.setdefault(layout.module, []).append((bucket, layout))
    lines: list[_Line] = []
    for index, laid_out in by_module.items():
        module = names.modules.get(index)
        if module is None:
            return None
        laid_out.sort(key=lambda each: each[1].index)
        found = list(_lines(module, laid_out))
        if not found:
            return None
        lines += found
    caps = {names.modules[index].bucket_cap_mb for index in by_module}
    return Assignment(tuple(lines), caps.pop() if len(caps) == 1 else None) if lines else None


def _lines(module: Module, laid_out: Sequence[tuple[BucketStats, Layout]]) -> Iterator[_Line]:
    """One for each type of gradients; none if something is not known, or was not sent as it is."""
    by_type: dict[str, list[list[tuple[int, Parameter]]]] = {}
    for bucket, layout in laid_out:
        item = ITEM_BYTES.get(layout.dtype)
        if item is None or max(layout.parameters) >= len(module.parameters):
            return
        each = [
            (index, Parameter(name, item * prod(module.shapes[index]), _may_look_up(module, index)))
            for index, name in zip(layout.parameters, bucket.parameters, strict=True)
        ]
        # Of parameters without shapes, and of sparse gradients, the sum is another one.
        total = sum(parameter.bytes for _, parameter in each)
        if not total or total != (layout.bytes or bucket.bytes):
            return
        by_type.setdefault(layout.dtype, []).append(each)
    for parts in by_type.values():
        forward = [pair for part in reversed(parts) for pair in part]
        backwards = all(one[0] < other[0] for one, other in pairwise(forward))
        ordered = forward if backwards else [pair for part in parts for pair in part]
        yield _Line(tuple(parameter for _, parameter in ordered), backwards)


def _may_look_up(module: Module, index: int) -> bool:
    """Whether a parameter has two dimensions, many rows, and a name like that; or without a name, few columns."""
    name, shape = module.parameters[index], module.shapes[index]
    if len(shape) != 2 or shape[0] < ROWS or module.name == NO_SPARSE:
        return False
    narrow = shape[0] >= HIGHER * shape[1] and _NAMELESS.fullmatch(name)
    return bool(narrow or _TABLE.search(name))


def saved_by_hiding(view: RunView, buckets: Sequence[BucketStats], sent_earlier_ms: float) -> float:
    """What a step would take less at most if so much of the exposed transfers were sent while backward goes on; ms.

    Two things bound it. Only backward can hide communication, and only that of the last step of several that
    accumulate; what of the transfers is not exposed is hidden there already. And where ranks have no core to spare,
    backward takes longer by what a hidden transfer takes of the processor.

    Args:
        sent_earlier_ms: what another layout would send earlier.
    """
    backward = BACKWARD_SHARE * min(
        (
            rank.compute_ms.median / rank.micro_steps
            for rank in view.ranks
            if rank.compute_ms.median is not None
        ),
        default=0.0,
    )
    wire = sum(bucket.times.wire_ms.median or 0.0 for bucket in buckets)
    hidden = max(0.0, wire - view.exposure.typical_ms)
    return min(sent_earlier_ms, max(0.0, backward - hidden)) * (1.0 - _taken(view, wire, hidden))


def _taken(view: RunView, wire_ms: float, hidden_ms: float) -> float:
    """How much longer backward is for each millisecond that it hides, from 0 to 1; 0 where nothing is known of it."""
    if not wire_ms > 0 or not _is_crowded(view):
        return 0.0
    usage = view.usage
    # Gloo's threads are nearly all that a rank has besides the one that computes.
    gloo = float(np.nan_to_num(median((usage.process_cpu - usage.cpu).mean(axis=1)))) / wire_ms
    waits = float(np.nan_to_num(median(usage.run_delay.mean(axis=1))))
    seen = waits / hidden_ms if hidden_ms >= waits > 0 else 0.0
    return min(1.0, max(gloo, seen, 0.0))


def _is_crowded(view: RunView) -> bool:
    """Whether the ranks of a host compute on all of its cores."""
    for ranks in by_host(view.sidecars, (rank.rank for rank in view.ranks)).values():
        threads = sum(max(1, view.sidecars[rank].torch_threads) for rank in ranks)
        if 0 < host_cores(view.sidecars, ranks) <= threads:
            return True
    return False
