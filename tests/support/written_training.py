"""Written traces of trainings, by what their ranks' gradients, weights and sidecars say."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.trace.run import open_run
from support.trace_writer import GROUP, RankWriter

GRADIENT, WEIGHTS = 7, 11
KINDS = {"same_data", "different_weights", "unreduced_parameters", "not_reduced", "missing_no_sync"}
KINDS |= {"epoch_not_set", "settings_differ", "averaged_twice", "weights_unchanged", "schedule_ended"}
KINDS |= {"gradients_cleared", "different_splits"}
STEPS = 64

Weights = Callable[[int, int], tuple[int, float]]
"""Checksum and norm of the only parameter, by rank and pass."""


def found(
    folder: Path,
    *,
    gradient: Callable[[int, int], float] = lambda rank, step: 2.0 + rank + step,
    level: Callable[[int, int], float] = lambda _, step: -9.5 - step,
    weights: Weights = lambda rank, step: (77 + step, 3.5),
    training: Sequence[Mapping[str, Any]] = ({}, {}),
    looks: Callable[[int], Iterable[tuple[int, tuple[str, int, str], str]]] = lambda _: (),
    start_up: Sequence[Mapping[str, Any]] = (),
    buckets: bool = True,
    exchanged: Iterable[tuple[str, int]] = (),
) -> list[Finding]:
    """Findings about a run of so many ranks as have an entry in `training`."""
    for rank, seen in enumerate(training):
        writer = RankWriter(rank, len(training), capacity=512)
        for number, (name, size) in enumerate(exchanged):
            writer.collective(name, 2_000_000_000 + number, 2_000_000_900, bytes=size)
        for step in range(STEPS if buckets else 0):
            start = 1_000_000_000 + step * 10_000_000
            writer.bucket(step, start, start + 1_000, start + 2_000_000)
            if step % 16 == 0:
                value = gradient(rank, step)
                squares, most, mean = (
                    int(np.float64(one).view(np.int64)) for one in (value, np.sqrt(value), level(rank, step))
                )
                writer.add(GRADIENT, times=(squares, most, 0, -1, -1, 5 + step, 1000, mean), step=step, sequence=step,
                           group=GROUP, reference=7, dtype=1)  # fmt: skip
            if step % 8 == 5:
                bits, norm = weights(rank, step)
                word = bits | int(np.float32(norm).view(np.uint32)) << 32
                writer.add(WEIGHTS, times=(word,), step=step, sequence=step, group=GROUP, index=1)
        writer.sidecar["modules"] = buckets * [
            {"index": 0, "name": "Net", "group": f"{GROUP:016x}",
             "parameters": [{"name": name, "shape": [2], "dtype": "float32"} for name in ("bias", "body.weight")]}
        ]  # fmt: skip
        writer.sidecar["training"] = seen
        if start_up:
            writer.sidecar["start_up"] = start_up[rank]
        for at, line, call in looks(rank):
            writer.look(at, line, call)
        writer.write(folder)
    return [one for one in analyse(RunView(open_run(folder))).verdict.findings if one.kind in KINDS]
