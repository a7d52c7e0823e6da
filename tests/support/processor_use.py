"""Written traces of ranks that use the processor in different ways."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.trace_writer import MS, RankWriter

STEPS = 40
THREADS = 2


@dataclass(frozen=True)
class Extra:
    """What a rank does beside its 30 ms of computing in some steps, in ms: `sleep` is neither of the others; its other
    threads compute `beside` of it. It reads `faults` pages of memory from a disk."""

    cpu: float = 0.0
    delay: float = 0.0
    sleep: float = 0.0
    collector: float = 0.0
    beside: float = 0.0
    faults: int = 0
    steps: Sequence[int] = range(STEPS)
    less: Sequence[int] = ()
    """Steps in which it has `cpu` less to compute; so many times of it as a step stands there."""

    def at(self, step: int) -> float:
        """How much longer the rank takes in this step."""
        waits = self.delay + self.sleep if step in self.steps else 0.0
        return self.computes(step) + waits

    def computes(self, step: int) -> float:
        """How much more it computes in this step."""
        return self.cpu * ((step in self.steps) - self.less.count(step))


NOTHING = Extra()


def write(
    folder: Path,
    ranks: Sequence[Extra],
    *,
    delay_known: bool = True,
    usage: bool = True,
    unread: Collection[int] = (),
    threads: Sequence[int] = (),
    cores: int = 0,
    steps: int = STEPS,
    load: float | None = None,
    platform: str = "",
    **sidecar: Sequence[Any],
) -> None:
    """Steps of about 40 ms, of which a rank computes 30 and communicates 3. `sidecar`: a field of each rank's.

    `unread`: ranks without readings of the processor."""
    random = np.random.default_rng(7)
    writers = [RankWriter(rank, len(ranks)) for rank in range(len(ranks))]
    readings = np.zeros((len(ranks), 5), np.int64)
    now = 10**9
    for step in range(steps):
        own = [int((30 + random.normal(0, 1) + extra.at(step)) * MS) for extra in ranks]
        arrived = now + max(own)
        for rank, (writer, extra) in enumerate(zip(writers, ranks, strict=True)):
            done = arrived + 3 * MS
            writer.step(step, now, now, done)
            writer.backward(step, now, now + own[rank], done)
            writer.bucket(step, now + own[rank], arrived, done)
            on = step in extra.steps
            added = (
                30 + extra.computes(step),
                on * extra.delay,
                30 * THREADS + extra.computes(step) + on * extra.beside,
                on * extra.collector,
                on * extra.faults / MS,
            )
            readings[rank] += np.rint(np.array(added) * MS).astype(np.int64)
            cpu, delay, process, collector, faults = readings[rank].tolist()
            if usage and rank not in unread:
                writer.usage(
                    step,
                    done,
                    cpu,
                    delay if delay_known else -1,
                    process,
                    collector,
                    -1 if load is None else round(1000 * load),
                    faults,
                )
        now = arrived + 3 * MS
    for writer, number in zip(writers, threads or [0] * len(ranks), strict=True):
        writer.sidecar["host"] = "one"
        writer.sidecar["platform"] = platform
        writer.sidecar["torch_threads"] = number
        writer.sidecar["cores"] = list(range(cores))
        writer.sidecar |= {name: values[writer.rank] for name, values in sidecar.items()}
        writer.write(folder)
