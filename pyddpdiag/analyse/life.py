"""One rank's life on its own clock: its steps as spans, and what is known of the time around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pyddpdiag.analyse.calls.collectives import MEETING
from pyddpdiag.analyse.coverage import Coverage
from pyddpdiag.analyse.grouped import Float32, Float64
from pyddpdiag.analyse.history import RankHistory, in_parts, rank_history, shared_out
from pyddpdiag.analyse.phases import RankPhases
from pyddpdiag.analyse.spans import step_spans
from pyddpdiag.analyse.steps import RankSteps
from pyddpdiag.analyse.usage import RankUsage, in_steps
from pyddpdiag.model.cube import BEFORE, SPANS
from pyddpdiag.trace.layout import BackwardTime, CollectiveTime, Flag, Kind, Records, StepTime
from pyddpdiag.trace.reader import RankTrace
from pyddpdiag.trace.rows import Bool, Int64

S: Final = 1e9

TAIL: Final = 2**62
"""In place of a step: after the last one."""


@dataclass(frozen=True, eq=False)
class RankLife:
    """Seconds of one rank's life.

    Attributes:
        parts: what needs no other rank, by the names of `model.account`, but for the time within steps.
        phases: seconds of each named phase, wherever it lies.
        step: the steps after the first ones, with columns of one value each: the parts and spans of the `Cube`, its
            `before`, and `exposed` in place of its last two parts.
        split: whether the processor time of its thread is known.
        wall_s: all of it.
        between: what the rank did from one meeting with the others to the next.
        history: the steps whose records were overwritten, summed up; they are also in `step` and `columns`, an
            interval at a time.
    """

    parts: Mapping[str, float]
    phases: Mapping[str, float]
    step: Int64
    columns: Mapping[str, Float32]
    split: bool
    wall_s: float
    between: Between
    history: RankHistory


@dataclass(frozen=True, eq=False)
class Between:
    """From leaving one step's last all-reduce to bringing the next one's last bucket; ms, one value per step.

    Attributes:
        step: the step that ends it; before the first one it begins where the recorder was opened. `TAIL`: from the last
            all-reduce to the end of the last collective that needs all ranks, if there is one.
        busy: the time outside of other collectives, with phases.
        outside: what of `busy` lies before the step's first forward pass and after the last backward pass of the step
            before, without the wait for data; NaN: not known.
        calls: the time in other collectives.
        data: the step's wait for data.
        phase: the time in named phases.
        own: `busy` without them: the rank's own part of a step; NaN: not between two meetings.
        phases: of each named phase; none before the first meeting.
        epoch: whether a loader came to its end in it.
        from_start: whether the first one begins where the recorder was opened.
        begun_ns, left_ns: when the first step began, and when the rank left the last meeting.
        set_up_busy, set_up_calls: what it did, and waited in collectives, between its process group and its first
            module, and from there to that module's first pass; NaN: not known.
        join_after, join_wait: when it began to join its process group, since the process's begin, and how long that
            took; NaN: not known.
        first_after: when it came to the first meeting, since the process's begin; NaN: not known.
    """

    step: Int64
    busy: Float64
    outside: Float64
    calls: Float64
    data: Float64
    phase: Float64
    own: Float64
    phases: Mapping[str, Float64]
    epoch: Bool
    from_start: bool
    begun_ns: int
    left_ns: int
    set_up_busy: tuple[float, float]
    set_up_calls: tuple[float, float]
    join_after: float
    join_wait: float
    first_after: float


def rank_life(
    trace: RankTrace, steps: RankSteps, collectives: Records, phases: RankPhases, usage: RankUsage
) -> RankLife:
    """What is known of one rank's life."""
    times = collectives["times"]
    begun, ended = times[:, CollectiveTime.STARTED], times[:, CollectiveTime.ENDED]
    whole = (begun > 0) & (ended >= begun)
    calls = Coverage(begun[whole], ended[whole])
    named = phases.ended
    busy = Coverage(np.concatenate([begun[whole], named[0]]), np.concatenate([ended[whole], named[1]]))
    epochs = _epochs(trace)
    meets = (ended[whole & np.isin(collectives["name"], MEETING)]).max(initial=0)
    forward = _forwards(trace, steps)
    spans = _spans(steps, forward)
    edges = _edges(trace, steps)
    number, begin, end = spans
    parts: dict[str, float] = _start_up(trace, edges, int(begin[0]) if len(begin) else edges[2])

    def split(low: Int64, high: Int64, name: str) -> None:
        """File what lies between two steps, or before or after all of them."""
        if not len(low):
            return
        length, in_calls, in_all = high - low, calls.within(low, high), busy.within(low, high)
        add(parts, "collectives_between_s", in_calls)
        add(parts, "phases_s", in_all - in_calls)
        add(parts, name, length - in_all)

    lost = trace.begins_late
    history = rank_history(trace, int(begin[0]) if lost and len(begin) else 0)
    if len(begin):
        known = np.array([max(edges[1], parts.pop("_known"))])
        if len(history):
            split(known, history.begin[:1], "unknown_s" if history.first[0] else "set_up_s")
            split(history.end[:-1], history.begin[1:], "between_steps_s")
            split(history.end[-1:], begin[:1], "unknown_s")
        else:
            # A ring that was overwritten has lost what came before.
            split(known, begin[:1], "unknown_s" if lost else "set_up_s")
        low, high = end[:-1], begin[1:]
        over = np.searchsorted(epochs, low, "left") < np.searchsorted(epochs, high, "right")
        split(low[over], high[over], "between_epochs_s")
        split(low[~over], high[~over], "between_steps_s")
        split(end[-1:], np.array([max(edges[2], int(end[-1]))]), "tail_s")
    else:
        split(np.array([parts.pop("_known")]), np.array([edges[2]]), "unknown_s")
    columns, first_steps = _within(trace, steps, spans, calls, busy, usage, parts)
    number = number[first_steps:]
    if len(history):
        before = in_parts(history)
        parts["between_steps_s"] = parts.get("between_steps_s", 0.0) + float(before["between"].sum())
        before |= {name: np.full(len(history), np.nan) for name in SPANS}
        before["calls_between"] = np.zeros(len(history))
        columns = {name: np.concatenate([before[name], column]) for name, column in columns.items()}
        number = np.concatenate([history.first, number])
    last = max(edges[2], int(end[-1])) if len(end) else edges[2]
    of_phases = {
        name: float(spent[0]) / 1e3
        for name, spent in phases.within(np.array([edges[0]]), np.array([last])).items()
    }
    return RankLife(
        parts,
        of_phases,
        number,
        {name: _single(column) for name, column in columns.items()},
        bool(np.isfinite(usage.cpu).any()) and not trace.on_device,
        (last - edges[0]) / S,
        _between(trace, steps, calls, busy, phases, epochs, forward, int(meets), edges),
        history,
    )


def _single(column: Float64) -> Float32:
    """In single precision, as the cube takes it. A column of nothing but zeros takes no memory."""
    return column.astype(np.float32) if column.any() else np.broadcast_to(np.float32(0), column.shape)


def add(parts: dict[str, float], name: str, nanoseconds: Int64) -> None:
    """Add to a part."""
    parts[name] = parts.get(name, 0.0) + float(np.maximum(0, nanoseconds).sum()) / S


def _epochs(trace: RankTrace) -> Int64:
    """When a loader had no more batches."""
    records = trace.of_kind(Kind.STEP)
    times = records["times"]
    over = ((records["flags"] & Flag.NO_BATCH) > 0) & (times[:, StepTime.BEGIN] == 0)
    return np.sort(times[over, StepTime.END])


def _forwards(trace: RankTrace, steps: RankSteps) -> Int64:
    """When each step's first forward pass began; 0 = not known."""
    records = trace.of_kind(Kind.BACKWARD)
    times = records["times"][:, BackwardTime.FORWARD_BEGIN]
    found = np.full(len(steps.step), np.iinfo(np.int64).max)
    known = (times > 0) & np.isin(records["step"], steps.step)
    np.minimum.at(found, np.searchsorted(steps.step, records["step"][known]), times[known])
    found[found == np.iinfo(np.int64).max] = 0
    return found


def _spans(steps: RankSteps, forward: Int64) -> tuple[Int64, Int64, Int64]:
    """Number, begin and end of each step in order, none of which overlap."""
    marked = (steps.wait_begin > 0) & (steps.end > steps.wait_begin)
    number = steps.step.astype(np.int64)
    if marked.any():
        begin, end, kept = steps.wait_begin, steps.end, marked
    else:
        end = steps.finish
        before = np.concatenate([forward[:1], end[:-1]])
        begin, kept = before, (end > 0) & (before > 0)
    begin, end, number = begin[kept].copy(), end[kept].copy(), number[kept]
    if len(end):
        # Damaged or repeated records may say anything.
        end = np.maximum.accumulate(np.maximum(begin, end))
        begin = np.maximum(begin, np.concatenate([begin[:1], end[:-1]]))
    return number, begin, end


def _edges(trace: RankTrace, steps: RankSteps) -> tuple[int, int, int]:
    """Begin of the process (of the recording, where that is not known), opening of the recorder, end."""
    header, sidecar = trace.header, trace.sidecar
    opened = header.monotonic_ns
    started = opened
    if sidecar.start_up and sidecar.process_started_s is not None:
        before = header.wall_ns - int(sidecar.process_started_s * S)
        started = opened - before if 0 <= before <= 10**18 else opened
    ends = [sidecar.ended_ns, sidecar.end.at_ns if sidecar.end is not None else 0]
    end = max(ends)
    if not end:
        running = trace.glance is not None and not header.closed and trace.glance.process is not None
        end = trace.glance.reader_ns if running and trace.glance is not None else header.heartbeat_ns
    last = int(max(steps.finish.max(initial=0), steps.end.max(initial=0), trace.newest_ns))
    return max(0, min(started, opened)), opened, max(end, last, opened)


def _start_up(trace: RankTrace, edges: tuple[int, int, int], first: int) -> dict[str, float]:
    """The named parts before the first step; `_known` is until when the start-up's own marks reach."""
    marks, now = trace.sidecar.start_up, edges[0]
    parts: dict[str, float] = {}
    limit = max(now, min(first, edges[2]))
    for name, begin, end in (
        ("imports_s", "", "loaded_ns"),
        ("rendezvous_s", "rendezvous_begin_ns", "rendezvous_end_ns"),
        ("construction_s", "construction_begin_ns", "construction_end_ns"),
    ):
        since, until = (_mark(marks, begin) if begin else now), _mark(marks, end)
        if not now <= since <= until <= limit or until == 0:
            continue
        add(parts, "set_up_s", np.array([since - now]))
        add(parts, name, np.array([until - since]))
        now = until
    opened = min(max(edges[1], now), limit)
    add(parts, "set_up_s", np.array([opened - now]))
    parts["_known"] = opened
    return parts


def _set_up(trace: RankTrace, started: int) -> dict[str, Any]:
    """What is known of the time before the first module, by the names of `Between`; ms."""
    marks = trace.sidecar.start_up
    begin, end = _mark(marks, "rendezvous_begin_ns"), _mark(marks, "rendezvous_end_ns")
    busy, calls = [float("nan")] * 2, [float("nan")] * 2
    for place, name in enumerate(("set_up", "after_module")):
        seen, waited = _mark(marks, f"{name}_seen_ns"), _mark(marks, f"{name}_waited_ns")
        if 0 <= waited <= seen <= 10**18 and f"{name}_waited_ns" in marks:
            busy[place], calls[place] = (seen - waited) / 1e6, waited / 1e6
    found: dict[str, Any] = {"set_up_busy": tuple(busy), "set_up_calls": tuple(calls)}
    found |= {"join_after": float("nan"), "join_wait": float("nan")}
    if 0 < started <= begin <= end <= 10**18:
        found |= {"join_after": (begin - started) / 1e6, "join_wait": (end - begin) / 1e6}
    return found


def _mark(marks: Mapping[str, str | int], name: str) -> int:
    value = marks.get(name, 0)
    return value if isinstance(value, int) else 0


def _within(
    trace: RankTrace,
    steps: RankSteps,
    spans: tuple[Int64, Int64, Int64],
    calls: Coverage,
    busy: Coverage,
    usage: RankUsage,
    parts: dict[str, float],
) -> tuple[dict[str, Float64], int]:
    """The time within each step but the first ones, by what it was spent for; and how many were the first."""
    number, begin, end = spans
    first = int(len(number) > 0 and number[0] == 0)
    add(parts, "first_steps_s", (end - begin)[:first])
    ended = np.append(begin[:1], end[:-1])[first:]
    number, begin, end = number[first:], begin[first:], end[first:]
    called = calls.within(ended, begin)
    at = np.searchsorted(steps.step, number)
    marked = (steps.begin[at] >= steps.wait_begin[at]) & (steps.wait_begin[at] > 0)
    data = np.where(marked, steps.begin[at] - steps.wait_begin[at], 0)
    finish = np.clip(steps.finish[at], begin, end)
    passes = finish - begin - busy.within(begin, finish) - data - np.int64(1e6) * steps.exposed_ms[at]
    after = (end - finish - busy.within(finish, end)).astype(np.float64)
    cpu, delay = in_steps(usage, number, passes, after)
    if trace.on_device:
        # A thread that sleeps until its device is done is not idle.
        cpu = np.full(len(number), np.nan)
    columns = shared_out(
        (end - begin) / S,
        {
            "phase": (busy.within(begin, end) - calls.within(begin, end)) / S,
            "data_wait": data / S,
            "exposed": steps.exposed_ms[at] / 1e3,
            "other": steps.other_ms[at] / 1e3,
            "compute": np.where(np.isnan(cpu), np.inf, cpu / 1e3),
            "core": delay / 1e3,
        },
    )
    own = columns["compute"] + columns["core"] + columns["blocked"]
    for name, wanted in step_spans(trace, number, end, busy).items():
        # On an accelerator the host is done with a pass long before it is computed.
        columns[name] = np.full(len(own), np.nan) if trace.on_device else np.clip(wanted, 0.0, own)
        own = own - np.nan_to_num(columns[name])
    columns |= dict(zip(BEFORE, ((begin - ended - called) / S, called / S), strict=True))
    return columns, first


def _between(
    trace: RankTrace,
    steps: RankSteps,
    calls: Coverage,
    busy: Coverage,
    phases: RankPhases,
    epochs: Int64,
    forward: Int64,
    meets: int,
    edges: tuple[int, int, int],
) -> Between:
    """What the rank did from one meeting with the others to the next."""
    opened = edges[1]
    entered, left = steps.entered, steps.left
    mine = np.flatnonzero(left > 0)
    from_start = not trace.begins_late
    last = int(left[mine[-1]]) if len(mine) else opened
    rows = len(mine) + int(bool(len(mine)) and meets > last)
    since = np.append(opened, left[mine])[:rows]
    until = np.maximum(np.append(entered[mine], meets)[:rows], since)
    in_calls, in_all = calls.within(since, until), busy.within(since, until)
    # Damaged records may say that it came before it left.
    between = np.arange(rows) > 0
    between[: len(mine)] &= entered[mine] >= since[: len(mine)]
    between[len(mine) :] = False
    # The last pass of the step before, and the steps of accumulation between two meetings.
    over = np.append(since[:1], np.maximum(steps.finish[mine[:-1]], since[1 : len(mine)]))
    follows = np.append(mine[:1] * 0, mine[:-1] + 1)
    ahead = forward[follows]
    marked = (steps.begin >= steps.wait_begin) & (steps.wait_begin > 0)
    waited = np.where(marked, steps.begin - steps.wait_begin, 0)
    known = (ahead >= over) & (ahead > 0)
    outside = ahead - over - calls.within(over, np.maximum(ahead, over)) - waited[follows]
    begins = steps.wait_begin[steps.wait_begin > 0]
    first = begins[:1] if len(begins) else forward[forward > 0][:1]
    ended = np.searchsorted(epochs, since, "left") < np.searchsorted(epochs, until, "right")
    return Between(
        step=np.append(steps.step[mine].astype(np.int64), TAIL)[:rows],
        busy=(until - since - in_calls) / 1e6,
        outside=np.append(np.where(known, np.maximum(0, outside) / 1e6, np.nan), np.nan)[:rows],
        calls=in_calls / 1e6,
        data=np.append(waited[follows], 0)[:rows] / 1e6,
        phase=(in_all - in_calls) / 1e6,
        own=np.where(between, (until - since - in_all) / 1e6, np.nan),
        phases={name: np.where(between, spent, 0.0) for name, spent in phases.within(since, until).items()},
        epoch=np.append(ended[: len(mine)], False)[:rows],
        from_start=from_start,
        begun_ns=int(first[0]) if len(first) else opened,
        left_ns=max(meets, last) if len(mine) else opened,
        first_after=(int(entered[mine[0]]) - edges[0]) / 1e6 if len(mine) and edges[0] < opened else np.nan,
        **_set_up(trace, edges[0]),
    )
