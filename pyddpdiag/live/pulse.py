"""How a run goes right now: the figures of `pyddpdiag watch`, taken from its newest records at every look."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np

from pyddpdiag.analyse.intake import Intake
from pyddpdiag.analyse.step_matrix import StepMatrix, exposed_ms, extra_ms, matrix, median
from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.errors import TraceError
from pyddpdiag.live.ranks import oldest_of
from pyddpdiag.model.account import PARTS, START_UP, RankAccount
from pyddpdiag.model.findings import Finding, Verdict
from pyddpdiag.model.kinds import brief
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.stats import Stat
from pyddpdiag.report.trial import answer, status
from pyddpdiag.trace.follow import RunFollower
from pyddpdiag.trace.notes import read_trial
from pyddpdiag.trace.run import Run

KEPT: Final = 6
"""As many are shown."""

GONE: Final = 3
"""A finding is over when so many looks in a row do not have it: near a threshold it comes and goes."""

Key = tuple[str, int | None]


@dataclass(frozen=True)
class _Seen:
    text: str
    missing: int = 0


class Changes:
    """Compares the findings of each look with those of the looks before it."""

    def __init__(self) -> None:
        self._run = ""
        self._active: dict[Key, _Seen] = {}
        self._said: deque[str] = deque(maxlen=KEPT)

    def look(
        self, run_id: str, at_s: float, step: int | None, findings: Sequence[Finding]
    ) -> tuple[str, ...]:
        """What began and ended so far, the latest last; nothing of an earlier run.

        Args:
            at_s: when the look was; seconds since 1970.
            step: the newest step.
            findings: of the look. Notes and what may be chance (`low`) do not count.
        """
        if run_id != self._run:
            self._run, self._active = run_id, {}
            self._said.clear()
        now = {
            (one.kind, one.rank): one
            for one in findings
            if one.severity != "note" and one.confidence != "low"
        }
        at = time.strftime("%H:%M:%S", time.localtime(at_s))
        for key, one in now.items():
            if key not in self._active:
                since = step if one.since_step is None else one.since_step
                begins = "" if since is None else f" since step {since}"
                self._said.append(f"{at}{begins}: {brief(replace(one, since_step=None))}")
            self._active[key] = _Seen(_whom(key))
        for key in [key for key in self._active if key not in now]:
            seen = replace(self._active[key], missing=self._active[key].missing + 1)
            self._active[key] = seen
            if seen.missing == GONE:
                del self._active[key]
                self._said.append(
                    f"{at}" + ("" if step is None else f" step {step}") + f": {seen.text} is over"
                )
        return tuple(self._said)


def _whom(key: Key) -> str:
    kind, rank = key
    return kind + ("" if rank is None else f" of rank {rank}")


WHOLE: Final = 0.05
"""Of a life: with so much that is not known, its first steps have left the view."""

KEEP: Final = 2**10
"""Records of each rank that the figures rest on: some 20 to 100 steps."""

PulseStatus = Literal["waiting", "running", "over"]


@dataclass(frozen=True)
class InFlight:
    """The operation that a rank has had in flight for longest."""

    kind: str
    what: str
    parameters: tuple[str, ...]
    step: int
    open_ms: float


@dataclass(frozen=True)
class RankPulse:
    """One rank. Times are medians over the steps in view; `late_ms` is its own time over the ranks' lower median.

    `account`: seconds of the parts of its life that are in view, where they are not 0.
    """

    rank: int
    host: str
    process: str
    closed: bool
    ended_well: bool
    last_step: int | None
    step_ms: float | None
    compute_ms: float | None
    data_wait_ms: float | None
    exposed_ms: float | None
    late_ms: float | None
    in_flight: int
    oldest: InFlight | None
    silent_ms: float | None
    account: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pulse:
    """One look. `waiting`: there is no run yet, `line` says why; all else is then empty.

    `at_s` is the time of the look (seconds since 1970). `step` is the newest step on any rank, `steps_per_s` its rate
    since the look before. `steps` are in view: the newest that every rank has. `exposed_ms` is communication that no
    late rank explains. `busbw_gbps` is the load on a link while buckets are on the wire, `reduced_gbps` gradients per
    time of step. `runs` counts the runs that were seen in this folder. `trial` says what a trial of
    cures has on; empty: there is none, or it is over. `changes` says what began and ended since the first look.
    """

    at_s: float
    folder: str
    status: PulseStatus
    line: str
    run_id: str = ""
    runs: int = 0
    world_size: int = 0
    step: int | None = None
    steps_per_s: float | None = None
    steps: int = 0
    step_ms: float | None = None
    exposed_ms: float | None = None
    exposed_fraction: float | None = None
    busbw_gbps: float | None = None
    reduced_gbps: float | None = None
    verdict: Verdict | None = None
    ranks: tuple[RankPulse, ...] = ()
    trial: str = ""
    changes: tuple[str, ...] = ()


class Watcher:
    """Looks at one folder again and again. `keep`: the figures rest on so many of each rank's newest records."""

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        self._folder = folder
        self._follower = RunFollower(folder, keep)
        self._runs: list[str] = []
        self._changes = Changes()
        self._before: tuple[str, float, int] | None = None

    def look(self) -> Pulse:
        """The run as it is now. Never fails because of what is in the folder."""
        intake = Intake()
        try:
            run = self._follower.look(intake.take)
        except TraceError as error:
            tried = read_trial(self._folder)
            return Pulse(
                time.time(),
                str(self._folder),
                "waiting",
                answer(tried) if tried is not None else error.message,
                runs=len(self._runs),
                # When it is over, the line says what followed from it.
                trial=status(tried) if tried is not None and tried.state == "running" else "",
            )
        if run.run_id not in self._runs:
            self._runs.append(run.run_id)
        return self._pulse(run, analyse(RunView(run, intake)))

    def _pulse(self, run: Run, report: RunReport) -> Pulse:
        steps = matrix(report.steps)
        wall = _known(steps.wall_ms)
        exposed = _known(median(exposed_ms(steps)))
        newest = max((rank.last_step for rank in report.ranks if rank.last_step is not None), default=None)
        over = all(rank.is_over for rank in report.ranks)
        amount = _bytes_per_step(report)
        at_s = time.time()
        return Pulse(
            at_s=at_s,
            folder=str(self._folder),
            status="over" if over else "running",
            line=report.verdict.line,
            run_id=run.run_id,
            runs=len(self._runs),
            world_size=run.world_size,
            step=newest,
            steps_per_s=self._rate(run.run_id, newest),
            steps=steps.steps,
            step_ms=wall,
            exposed_ms=exposed,
            exposed_fraction=exposed / wall if exposed is not None and wall else None,
            busbw_gbps=_bus_gbps(report),
            reduced_gbps=amount / wall / 1e6 if amount and wall else None,
            verdict=report.verdict,
            ranks=_ranks(run, report, steps),
            trial=status(report.tried)
            if report.tried is not None and (not over or report.tried.state != "running")
            else "",
            changes=self._changes.look(run.run_id, at_s, newest, report.verdict.findings),
        )

    def _rate(self, run_id: str, step: int | None) -> float | None:
        now, before = time.monotonic(), self._before
        self._before = None if step is None else (run_id, now, step)
        if before is None or step is None or before[0] != run_id or step < before[2] or now <= before[1]:
            return None
        return (step - before[2]) / (now - before[1])


def _ranks(run: Run, report: RunReport, steps: StepMatrix) -> tuple[RankPulse, ...]:
    known = ~np.isnan(steps.own).any(axis=1) if steps.own.size else np.zeros(0, np.bool_)
    late: dict[int, float] = {}
    if known.any() and len(steps.ranks) > 1:
        extra = np.maximum(0.0, np.median(extra_ms(steps.own[known]), axis=0))
        late = dict(zip(steps.ranks, extra.tolist(), strict=True))
    oldest = oldest_of(report.in_flight_operations)
    names = {bucket.bucket: bucket.parameters for bucket in report.buckets}
    accounts = {one.rank: account_in_view(one) for one in report.account}
    found = []
    for stats in report.ranks:
        same = {
            each.name: getattr(stats, each.name) for each in fields(RankPulse) if hasattr(stats, each.name)
        }
        same = {name: each.median if isinstance(each, Stat) else each for name, each in same.items()}
        held = oldest.get(stats.rank)
        found.append(
            RankPulse(
                **same,
                step_ms=stats.wall_ms.median,
                late_ms=late.get(stats.rank),
                oldest=InFlight(held.kind, held.what, names.get(held.what, ()), held.step, held.open_ms)
                if held
                else None,
                account=accounts.get(stats.rank, {}),
            )
        )
    return tuple(found)


def account_in_view(account: RankAccount) -> dict[str, float]:
    """The parts of a rank's life that are not 0, in seconds.

    Where its first steps have left the view, there is neither a part for these nor for what was before them.
    """
    is_whole = account.unknown_s < WHOLE * account.wall_s
    shown = PARTS if is_whole else [part for part in PARTS if part not in (*START_UP, "unknown_s")]
    return {part: account.part(part) for part in shown if account.part(part) > 0.0}


def _known(value: float) -> float | None:
    return value if value == value else None


def _bytes_per_step(report: RunReport) -> float:
    """Gradient bytes that one rank hands over in a step: the median."""
    amounts = report.steps.bytes[report.steps.judged & (report.steps.bytes > 0)]
    return float(np.median(amounts)) if len(amounts) else 0.0


def _bus_gbps(report: RunReport) -> float | None:
    """The load on a link while buckets travel, over all of them: bytes through time."""
    moved = took_ms = 0.0
    for bucket in report.buckets:
        wire = bucket.times.wire_ms.median
        if wire is not None and bucket.group_size > 1:
            moved += bucket.count * bucket.bytes * 2 * (bucket.group_size - 1) / bucket.group_size
            took_ms += bucket.count * wire
    return moved / took_ms / 1e6 if took_ms > 0 else None
