"""Chrome's trace format, for Perfetto, chrome://tracing and Holistic Trace Analysis: one file per rank, and one of all.

Holistic Trace Analysis knows work on a device by the category `kernel` and a stream, and communication by names that
begin with `nccl` and hold `Kernel`. So the program's computing and each all-reduce come as such, though none of it is a
kernel; everything else is an ordinary slice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    rank = _Rank(run, line)
    return [*rank.names(), *rank.program(), *rank.buckets(), *rank.collectives()]


def _head(run: ExportedRun) -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        # As in the profiler's traces: the wall clock at time 0.
        "baseTimeNanoseconds": run.first_base.wall_ns,
        "pyddpdiag": {"run_id": run.report.run_id, "verdict": clean(run.report.verdict.line)},
    }


class _Rank:
    """The events of one rank."""

    def __init__(self, run: ExportedRun, line: RankTimeline) -> None:
        self._run, self._line, self._zero = run, line, zero_ns(run)

    def _event(self, kind: str, name: str, **more: Any) -> Event:
        return {"ph": kind, "name": name, "pid": self._line.rank, **more}

    def _ts(self, at: int) -> float:
        return (at - self._zero) / 1e3

    def _slice(self, name: str, begin: int, end: int, thread: int, **more: Any) -> list[Event]:
        """A slice from `begin` to `end`, ns on the common clock; nothing if one of them is not known."""
        if begin <= 0 or end < begin:
            return []
        times = {"ts": self._ts(begin), "dur": (end - begin) / 1e3}
        return [self._event("X", name, **{"cat": "cpu_op", "tid": thread, **times, **more})]

    def names(self) -> Iterator[Event]:
        rank = self._line.rank
        host = {each.rank: each.host for each in self._run.report.ranks}.get(rank, "")
        label = f"rank {rank}" + (f" on {clean(host)}" if host else "")
        yield self._event("M", "process_name", args={"name": label})
        yield self._event("M", "process_sort_index", args={"sort_index": rank})
        for thread, name in (
            (STEPS, "steps"),
            (PROGRAM, "program"),
            (PHASES, "phases"),
            (BUCKETS, "buckets"),
        ):
            yield self._event("M", "thread_name", tid=thread, args={"name": name})
            yield self._event("M", "thread_sort_index", tid=thread, args={"sort_index": thread})

    def program(self) -> Iterator[Event]:
        line = self._line
        kernel = {"cat": "kernel", "args": {"stream": COMPUTE_STREAM, "correlation": -1}}
        passes: dict[int, list[list[int]]] = {}
        for step, times in zip(line.passes.step.tolist(), line.passes.times.tolist(), strict=True):
            passes.setdefault(step, []).append(times)
        marks = dict(zip(line.steps.step.tolist(), line.steps.times.tolist(), strict=True))
        for step, times in marks.items():
            wait, begin, end = times[StepTime.WAIT_BEGIN], times[StepTime.BEGIN], times[StepTime.END]
            yield from self._slice(f"ProfilerStep#{step}", wait, end, STEPS, cat="user_annotation")
            yield from self._slice("data", wait, begin, PROGRAM)
        for step in sorted({*passes, *marks}):
            done = marks[step][StepTime.BEGIN] if step in marks else 0
            for times in sorted(passes.get(step, []), key=lambda one: one[BackwardTime.FINALIZE_BEGIN]):
                split = times[BackwardTime.BEGIN] or times[BackwardTime.FIRST_GRADIENT]
                over, left = times[BackwardTime.FINALIZE_BEGIN], times[BackwardTime.FINALIZE_END]
                done = done or times[BackwardTime.FORWARD_BEGIN] or split
                if split and done <= split <= over:
                    yield from self._slice("forward", done, split, PROGRAM, **kernel)
                    yield from self._slice("backward", split, over, PROGRAM, **kernel)
                else:
                    yield from self._slice("forward and backward", done, over, PROGRAM, **kernel)
                yield from self._slice("waits for buckets", over, left, PROGRAM)
                done = max(done, left)
            if step in marks and step in passes:
                end = marks[step][StepTime.END]
                yield from self._slice("optimizer and the rest", done, end, PROGRAM, **kernel)
        for place, times in enumerate(line.phases.times.tolist()):
            name, begin, end = clean(line.phases.name_of(place)), times[PhaseTime.BEGIN], times[PhaseTime.END]
            yield from self._slice(name, begin, end, PHASES, cat="user_annotation")

    def buckets(self) -> Iterator[Event]:
        buckets = self._line.buckets
        times = buckets.times[:, [BucketTime.ENQUEUED, BucketTime.ENDED]]
        rows = np.flatnonzero((times > 0).all(axis=1)).tolist()
        spans = [(begin, end) for begin, end in times[rows].tolist()]
        parameters = {bucket.bucket: bucket.parameters for bucket in self._run.report.buckets}
        for place, lane in zip(rows, lanes(spans), strict=True):
            key = int(buckets.group[place]), int(buckets.sequence[place])
            at, who = self._run.last_arrivals[key]
            reference = f"{int(buckets.reference[place]):016x}"
            enqueued, last, begun, ended = moments(buckets, place, at)
            thread = BUCKETS + lane
            about = {
                "stream": thread,
                "correlation": -1,
                "bucket": reference,
                "step": int(buckets.step[place]),
                "sequence": key[1],
                "bytes": int(buckets.bytes[place]),
                "last rank": who,
                "parameters": clean(", ".join(parameters.get(reference, ())[:32])),
            }
            yield from self._slice(COMMUNICATION, enqueued, ended, thread, cat="kernel", args=about)
            for name, begin, end in (
                ("waiting for the last rank", enqueued, last),
                ("in Gloo's queue", last, begun),
                ("on the wire", begun, ended),
            ):
                if end > begin:
                    yield from self._slice(name, begin, end, thread, cat="gloo")
            if ended > enqueued and len(self._run.timelines) > 1:
                # An arrow from where the last rank brings the bucket to where the others' waiting ends.
                begins = self._line.rank == who
                moment = self._ts(enqueued if begins else min(max(last, begun), ended - 1))
                arrow = {
                    "cat": "bucket",
                    "id": f"{key[0]:x}-{key[1]}",
                    "bp": "e",
                    "tid": thread,
                    "ts": moment,
                }
                yield self._event("s" if begins else "f", "last rank", **arrow)
        # A counter of the buckets that are in flight.
        count = 0
        for moment, change in sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]):
            count += change
            yield self._event("C", "buckets in flight", ts=self._ts(moment), args={"buckets": count})

    def collectives(self) -> Iterator[Event]:
        events = self._line.collectives
        times = events.times[:, [CollectiveTime.STARTED, CollectiveTime.ENDED]]
        rows = np.flatnonzero((times > 0).all(axis=1)).tolist()
        spans = [(begin, end) for begin, end in times[rows].tolist()]
        for place, (begin, end), lane in zip(rows, spans, lanes(spans), strict=True):
            about = {"bytes": int(events.bytes[place]), "step": int(events.step[place])}
            name = clean(events.name_of(place))
            yield from self._slice(name, begin, end, COLLECTIVES + lane, cat="gloo", args=about)
