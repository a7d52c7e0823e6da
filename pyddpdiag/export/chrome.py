"""Chrome's trace format, for Perfetto, chrome://tracing and Holistic Trace Analysis: one file per rank, and one of all.

Holistic Trace Analysis knows work on a device by the category `kernel` and a stream, and communication by names that
begin with `nccl` and hold `Kernel`. So the program's computing and each all-reduce come as such, though none of it is a
kernel; everything else is an ordinary slice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun
from pyddpdiag.model.details import RankTimeline
from pyddpdiag.output import clean
from pyddpdiag.report.events import lanes, moments
from pyddpdiag.trace.layout import BackwardTime, BucketTime, CollectiveTime, PhaseTime, StepTime

COMMUNICATION: Final = "ncclKernel_AllReduce_Gloo"
"""The only name for a bucket's all-reduce that the analysis takes for communication."""

PROGRAM: Final = 1
STEPS: Final = 2
PHASES: Final = 3
BUCKETS: Final = 100
"""Thread numbers: from here on, a lane for each bucket that is in flight at the same time."""

COLLECTIVES: Final = 1000
COMPUTE_STREAM: Final = 7

Event = dict[str, Any]


def outputs(run: ExportedRun) -> Iterator[Output]:
    """A file for each rank, and one of all of them."""
    for line in run.timelines:
        # partial binds the line of this turn.
        yield Output(PurePath("chrome", f"rank_{line.rank}.json"), partial(_written_rank, run, line))
    yield Output(PurePath("chrome-all-ranks.json"), lambda: written(whole_document(run)))


def _written_rank(run: ExportedRun, line: RankTimeline) -> str:
    return written(rank_document(run, line))


def rank_document(run: ExportedRun, line: RankTimeline) -> dict[str, Any]:
    """The whole file of one rank."""
    return {
        **_head(run),
        "distributedInfo": {
            "backend": "gloo",
            "rank": line.rank,
            "world_size": run.report.world_size,
            "pg_count": 1,
        },
        "traceEvents": rank_events(run, line),
    }


def whole_document(run: ExportedRun) -> dict[str, Any]:
    """All ranks in one file, with arrows from the rank that brought a bucket last to those that waited for it."""
    events = [event for line in run.timelines for event in rank_events(run, line)]
    return {**_head(run), "traceEvents": events}


def written(document: dict[str, Any]) -> str:
    """A file's content, one event to a line."""
    events = document["traceEvents"]
    rest = json.dumps(
        {name: value for name, value in document.items() if name != "traceEvents"}, allow_nan=False
    )
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events)
    return f'{rest[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def zero_ns(run: ExportedRun) -> int:
    """The moment on the common clock that the files' time begins with: when the first recorder was opened.

    Holistic Trace Analysis leaves out the last steps if any event has a negative time: it moves the beginnings of all
    events to the first one, and not their ends.
    """
    return run.first_base.monotonic_ns + run.first_base.offset_ns


def rank_events(run: ExportedRun, line: RankTimeline) -> list[Event]:
    """All events of one rank, with its rank as the process."""
    return [*_names(run, line), *_program(run, line), *_buckets(run, line), *_collectives(run, line)]


def _head(run: ExportedRun) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        # As in the profiler's traces: the wall clock at time 0.
        "baseTimeNanoseconds": run.first_base.wall_ns,
        "pyddpdiag": {"run_id": run.report.run_id, "verdict": clean(run.report.verdict.line)},
    }


def _names(run: ExportedRun, line: RankTimeline) -> Iterator[Event]:
    hosts = {rank.rank: rank.host for rank in run.report.ranks}
    host = hosts.get(line.rank, "")
    label = f"rank {line.rank}" + (f" on {clean(host)}" if host else "")
    yield {"ph": "M", "name": "process_name", "pid": line.rank, "args": {"name": label}}
    yield {"ph": "M", "name": "process_sort_index", "pid": line.rank, "args": {"sort_index": line.rank}}
    for thread, name in ((STEPS, "steps"), (PROGRAM, "program"), (PHASES, "phases"), (BUCKETS, "buckets")):
        yield {"ph": "M", "name": "thread_name", "pid": line.rank, "tid": thread, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            "pid": line.rank,
            "tid": thread,
            "args": {"sort_index": thread},
        }


def _slice(
    run: ExportedRun, line: RankTimeline, name: str, begin: int, end: int, thread: int, **more: Any
) -> list[Event]:
    """A slice from `begin` to `end`, ns on the common clock; nothing if one of them is not known."""
    if begin <= 0 or end < begin:
        return []
    zero = zero_ns(run)
    return [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": line.rank,
            "tid": thread,
            "ts": (begin - zero) / 1e3,
            "dur": (end - begin) / 1e3,
            **more,
        }
    ]


def _program(run: ExportedRun, line: RankTimeline) -> Iterator[Event]:
    kernel = {"cat": "kernel", "args": {"stream": COMPUTE_STREAM, "correlation": -1}}
    passes: dict[int, list[list[int]]] = {}
    for step, times in zip(line.passes.step.tolist(), line.passes.times.tolist(), strict=True):
        passes.setdefault(step, []).append(times)
    marks = dict(zip(line.steps.step.tolist(), line.steps.times.tolist(), strict=True))
    for step, times in marks.items():
        wait, begin, end = times[StepTime.WAIT_BEGIN], times[StepTime.BEGIN], times[StepTime.END]
        yield from _slice(run, line, f"ProfilerStep#{step}", wait, end, STEPS, cat="user_annotation")
        yield from _slice(run, line, "data", wait, begin, PROGRAM)
    for step in sorted({*passes, *marks}):
        done = marks[step][StepTime.BEGIN] if step in marks else 0
        for times in sorted(passes.get(step, []), key=lambda one: one[BackwardTime.FINALIZE_BEGIN]):
            split = times[BackwardTime.BEGIN] or times[BackwardTime.FIRST_GRADIENT]
            over = times[BackwardTime.FINALIZE_BEGIN]
            done = done or times[BackwardTime.FORWARD_BEGIN] or split
            if split and done <= split <= over:
                yield from _slice(run, line, "forward", done, split, PROGRAM, **kernel)
                yield from _slice(run, line, "backward", split, over, PROGRAM, **kernel)
            else:
                yield from _slice(run, line, "forward and backward", done, over, PROGRAM, **kernel)
            yield from _slice(run, line, "waits for buckets", over, times[BackwardTime.FINALIZE_END], PROGRAM)
            done = max(done, times[BackwardTime.FINALIZE_END])
        if step in marks and step in passes:
            yield from _slice(
                run, line, "optimizer and the rest", done, marks[step][StepTime.END], PROGRAM, **kernel
            )
    for place, times in enumerate(line.phases.times.tolist()):
        name = clean(line.phases.name_of(place))
        yield from _slice(
            run, line, name, times[PhaseTime.BEGIN], times[PhaseTime.END], PHASES, cat="user_annotation"
        )


def _buckets(run: ExportedRun, line: RankTimeline) -> Iterator[Event]:
    buckets = line.buckets
    times = buckets.times[:, [BucketTime.ENQUEUED, BucketTime.ENDED]]
    rows = np.flatnonzero((times > 0).all(axis=1)).tolist()
    spans = [(begin, end) for begin, end in times[rows].tolist()]
    parameters = {bucket.bucket: bucket.parameters for bucket in run.report.buckets}
    for place, lane in zip(rows, lanes(spans), strict=True):
        key = int(buckets.group[place]), int(buckets.sequence[place])
        at, who = run.last_arrivals[key]
        reference = f"{int(buckets.reference[place]):016x}"
        enqueued, last, begun, ended = moments(buckets, place, at)
        about = {
            "stream": BUCKETS + lane,
            "correlation": -1,
            "bucket": reference,
            "step": int(buckets.step[place]),
            "sequence": key[1],
            "bytes": int(buckets.bytes[place]),
            "last rank": who,
            "parameters": clean(", ".join(parameters.get(reference, ())[:32])),
        }
        thread = BUCKETS + lane
        yield from _slice(run, line, COMMUNICATION, enqueued, ended, thread, cat="kernel", args=about)
        for name, begin, end in (
            ("waiting for the last rank", enqueued, last),
            ("in Gloo's queue", last, begun),
            ("on the wire", begun, ended),
        ):
            if end > begin:
                yield from _slice(run, line, name, begin, end, thread, cat="gloo")
        yield from _flow(run, line, key, who, (enqueued, last, begun, ended), thread)
    yield from _in_flight(run, line, spans)


def _flow(
    run: ExportedRun,
    line: RankTimeline,
    key: tuple[int, int],
    who: int,
    times: tuple[int, int, int, int],
    thread: int,
) -> Iterator[Event]:
    """An arrow from where the last rank brings the bucket to where the others' waiting ends."""
    enqueued, last, begun, ended = times
    if ended <= enqueued or len(run.timelines) < 2:
        return
    event = {
        "cat": "bucket",
        "name": "last rank",
        "id": f"{key[0]:x}-{key[1]}",
        "pid": line.rank,
        "tid": thread,
    }
    at = enqueued if line.rank == who else min(max(last, begun), ended - 1)
    yield {**event, "ph": "s" if line.rank == who else "f", "bp": "e", "ts": (at - zero_ns(run)) / 1e3}


def _in_flight(run: ExportedRun, line: RankTimeline, spans: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """A counter of the buckets that are in flight."""
    changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
    count = 0
    for at, change in changes:
        count += change
        yield {
            "ph": "C",
            "name": "buckets in flight",
            "pid": line.rank,
            "ts": (at - zero_ns(run)) / 1e3,
            "args": {"buckets": count},
        }


def _collectives(run: ExportedRun, line: RankTimeline) -> Iterator[Event]:
    events = line.collectives
    rows = [
        (place, times[CollectiveTime.STARTED], times[CollectiveTime.ENDED])
        for place, times in enumerate(events.times.tolist())
        if times[CollectiveTime.STARTED] and times[CollectiveTime.ENDED]
    ]
    for (place, begin, end), lane in zip(rows, lanes([(begin, end) for _, begin, end in rows]), strict=True):
        about = {"bytes": int(events.bytes[place]), "step": int(events.step[place])}
        yield from _slice(
            run, line, clean(events.name_of(place)), begin, end, COLLECTIVES + lane, cat="gloo", args=about
        )
