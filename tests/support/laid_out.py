"""Runs of two ranks whose buckets are of a given layout."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pyddpdiag.model.findings import Finding
from pyddpdiag.trace.layout import DTYPE_NAMES
from support.reported import report_of
from support.trace_writer import GROUP, MS, RankWriter

MB = 1_000_000


def write(
    folder: Path,
    sizes: Sequence[int],
    *,
    latency_ms: float = 0.0,
    ms_per_mb: float = 1.0,
    compute_ms: float = 40.0,
    parameters: int = 3,
    noise: float = 0.05,
    dtype: str = "float32",
    gloo_ms: float | None = None,
    sidecar: dict[str, object] | None = None,
) -> list[Finding]:
    """Two ranks whose buckets of these bytes are ready evenly over backward, and sent one after the other.

    `gloo_ms`: processor time of Gloo's threads per step; None: the processor's use is not recorded. `sidecar`: more of
    the sidecar.
    """
    random = np.random.default_rng(1)
    writers = [RankWriter(rank, 2, capacity=8192) for rank in range(2)]
    for writer in writers:
        count = parameters * len(sizes)
        writer.sidecar["modules"] = [
            {
                "index": 0,
                "name": "Net",
                "group": f"{GROUP:016x}",
                "parameters": [{"name": f"p{index}"} for index in range(count)],
            }
        ]
        writer.sidecar["buckets"] = [
            {
                "id": f"{100 + place:016x}",
                "module": 0,
                "index": place,
                "parameters": list(range(place * parameters, (place + 1) * parameters)),
                "dtype": dtype,
            }
            for place in range(len(sizes))
        ]
        writer.sidecar |= sidecar or {}
    now = 10**9
    for step in range(24):
        done = now + int(compute_ms * MS)
        free, spans = 0, []
        for place, size in enumerate(sizes):
            ready = now + int(compute_ms * MS * (0.5 + 0.5 * (place + 1) / len(sizes)))
            wire = (latency_ms + ms_per_mb * size / MB) * random.uniform(1 - noise, 1 + noise)
            start = max(ready, free)
            free = start + int(wire * MS)
            spans.append((ready, start, free))
        end = max(free, done)
        for writer in writers:
            writer.step(step, now, now, end)
            writer.backward(step, now, done, end)
            if gloo_ms is not None:
                cpu = int((step + 1) * compute_ms * MS)
                gloo = int((step + 1) * gloo_ms * MS)
                writer.usage(step, end, thread_cpu=cpu, run_delay=0, process_cpu=cpu + gloo)
            for place, (ready, start, ended) in enumerate(spans):
                writer.bucket(
                    step * len(sizes) + place,
                    ready,
                    start,
                    ended,
                    reference=100 + place,
                    step=step,
                    bytes=sizes[place],
                    dtype=DTYPE_NAMES.index(dtype),
                )
        now = end
    return list(report_of(writers, folder).verdict.findings)
