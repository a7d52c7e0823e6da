"""What a sweep has measured so far, and its result file; nothing is lost if the sweep ends early."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from pyddpdiag.bench.engine.plan import (
    USUAL_ROUNDS,
    Built,
    Elsewhere,
    Gathered,
    LeftOut,
    Measured,
    News,
    Remaining,
    SweepPlan,
    Traced,
)
from pyddpdiag.bench.machine import cpu_name, link_speed, load_before, machine_info, torch_version
from pyddpdiag.bench.results import Entry, launches_of, read, save
from pyddpdiag.errors import ResultError, ResultExistsError, ResultWriteError, TraceError, UsageError
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.stats import Stat
from pyddpdiag.pipeline import load_report
from pyddpdiag.ranks import interfaces


def bucket_seconds_per_step(report: RunReport) -> dict[str, float | None]:
    """`arrival_s`, `queue_s` and `wire_s`: seconds per step, sums over its buckets; backward hides part of them.

    Each bucket counts by its median and by how many of the judged steps it was in. A part is None where it is not known
    of every bucket: the sum of those that are known would look like a faster run. Buckets that only the first steps
    had are left out, as they are of all medians.
    """
    steps = len(set(report.steps.step[report.steps.judged].tolist()))
    buckets = [bucket for bucket in report.buckets if not bucket.first_steps_only and bucket.judged]
    found: dict[str, float | None] = {}
    for name in ("arrival", "queue", "wire"):
        medians = [(getattr(bucket.times, f"{name}_ms").median, bucket.judged) for bucket in buckets]
        known = bool(medians) and steps > 0 and all(median is not None for median, _ in medians)
        found[f"{name}_s"] = (
            sum(1e-3 * median * judged / steps for median, judged in medians) if known else None
        )
    return found


@dataclass
class Collected:
    """Collects rank 0's reports.

    Attributes:
        plan: of the sweep.
        rounds: seconds of each round, by case.
        left_out: why a case was not measured, by case.
        gathered: who the ranks are.
        load_before: of the machine, None where it is not known; see `machine.load_before`.
        launch, began, start_s: the current launch, when its ranks were started (seconds since 1970), and how long
            the start took.
    """

    plan: SweepPlan
    rounds: dict[int, list[float]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    gathered: Gathered = field(default_factory=lambda: Gathered((), (), ""))
    load_before: float | None = field(default_factory=load_before)
    launch: int = 0
    began: float = 0.0
    start_s: float = 0.0
    _others: dict[int, float] = field(default_factory=dict)
    _launches: dict[int, list[int]] = field(default_factory=dict)
    _built: dict[int, Built] = field(default_factory=dict)
    _steps: dict[int, int] = field(default_factory=dict)
    _sources: dict[int, tuple[int, str]] = field(default_factory=dict)
    _splits: dict[int, Mapping[str, float | None]] = field(default_factory=dict)

    def take(self, news: News) -> None:
        """Keeps what rank 0 reported."""
        if isinstance(news, Measured):
            self.rounds.setdefault(news.case, []).append(news.seconds)
            self._steps[news.case] = news.steps
            counts = self._launches.setdefault(news.case, [])
            counts.extend([0] * (self.launch + 1 - len(counts)))
            counts[-1] += 1
            self.left_out.pop(news.case, None)
        elif isinstance(news, Built):
            self._built[news.case] = news
        elif isinstance(news, Traced):
            self._sources[news.case] = (self.launch, news.source)
        elif isinstance(news, LeftOut):
            if news.case not in self.rounds:  # an earlier launch may have had time for this case
                self.left_out[news.case] = news.reason
        elif isinstance(news, Elsewhere):
            self._others[self.launch] = news.share
        elif isinstance(news, Gathered):
            self.gathered = news
            self.start_s = time.time() - self.began

    def begin_launch(self, launch: int) -> None:
        """Begins a launch: another set of processes measures what follows."""
        self.launch, self.began = launch, time.time()

    def split(self, traces: Path) -> None:
        """Analyses the traces, one folder per launch. Call it when the ranks are gone: it would slow them down."""
        for case, (launch, _) in self._sources.items():
            self._splits[case] = split_of(traces / str(launch) / str(case))

    def interface(self, case: int) -> str:
        """Rank 0's GLOO_SOCKET_IFNAME in a case; "" where it was unset."""
        return self.plan.interface(case, self.gathered.default_interface)

    def label(self, case: int) -> str:
        """The name of a case in the result file."""
        return self.plan.label(case, self.gathered.default_interface)

    def entries(self, before: Sequence[Entry] = ()) -> list[Entry]:
        """One entry per case that has rounds; those in `before` (an earlier part of the same sweep) come first."""
        earlier = {entry.name: entry for entry in before}
        machine = {"system": machine_info()["system"], "cpu": cpu_name(), "torch": torch_version()}
        for case in sorted(self.rounds):
            entry = self._entry(case, machine)
            old = earlier.get(entry.name)
            earlier[entry.name] = entry if old is None else _joined(old, entry)
        return list(earlier.values())

    def _entry(self, index: int, machine: Mapping[str, Any]) -> Entry:
        case, rounds = self.plan.cases[index], self.rounds[index]
        interface = self.interface(index)
        info: dict[str, Any] = {**machine, **case.info(), "interface": interface}
        info["interface_mbps"] = link_speed(interface)
        info["interfaces_by_rank"] = [
            ",".join(names[place] for place in case.picks) if case.picks else interface
            for names in self.gathered.names[: case.world_size]
        ]
        info["load_before"] = None if self.load_before is None else round(self.load_before, 2)
        info["cores"] = psutil.cpu_count() or 1
        info["hosts"] = len(set(self.gathered.hosts[: case.world_size]))
        info["sittings"] = [count for count in self._launches[index] if count]
        shares = [self._others.get(place) for place, count in enumerate(self._launches[index]) if count]
        info["others_share"] = [None if share is None else round(share, 3) for share in shares]
        info["steps_per_round"] = self._steps[index]
        built = self._built.get(index)
        if case.kind == "step" and built is not None:
            info.update(parameters=built.parameters, batch_size=built.batch_size, dataset=built.dataset)
            split = self._splits.get(index)
            info["split"] = None if not split else dict(split)
            info["split_from"] = self._sources.get(index, (0, ""))[1]
        if case.kind == "allreduce":
            algbw = case.bytes / float(np.median(rounds)) / 1e9
            info.update(algbw_gbps=algbw, busbw_gbps=algbw * 2 * (case.world_size - 1) / case.world_size)
        group = f"{case.kind} {case.model}".strip()
        params: dict[str, Any] = {
            k: info[k] for k in ("world_size", "hook", "bucket_cap_mb", "bytes", "interface") if k in info
        }
        return Entry(self.label(index), group, params, info, tuple(rounds))


def _joined(old: Entry, new: Entry) -> Entry:
    info = {**new.extra_info}
    info["sittings"] = [*launches_of(old), *launches_of(new)]
    info["others_share"] = [*old.extra_info.get("others_share", []), *info["others_share"]]
    if info.get("split") is None:
        info["split"], info["split_from"] = old.extra_info.get("split"), old.extra_info.get("split_from", "")
    return Entry(new.name, new.group, new.params, info, (*old.round_s, *new.round_s))


def split_of(folder: Path) -> dict[str, float | None]:
    """Seconds per step by part; None if the trace does not tell (docs/benchmarks.md).

    `compute_s`, `data_wait_s` and `exposed_s` are medians over steps, averaged over the ranks, and add up to about
    the step. The parts of the buckets: see `bucket_time`.
    """
    try:
        report = load_report(folder)
    except TraceError:
        return {}
    return {
        "compute_s": _mean([rank.compute_ms for rank in report.ranks]),
        "data_wait_s": _mean([rank.data_wait_ms for rank in report.ranks]),
        "exposed_s": _mean([rank.exposed_ms for rank in report.ranks]),
        **bucket_seconds_per_step(report),
    }


def _mean(stats: Sequence[Stat]) -> float | None:
    known = [stat.median for stat in stats if stat.median is not None]
    return 1e-3 * sum(known) / len(known) if known else None


SAVE_EVERY_S: Final = 5.0


@dataclass
class ResultWriter:
    """Keeps the results of a sweep in a file.

    Attributes:
        path: the file.
        force: replace a file that is there.
        resume: continue the sweep in an existing file.
        before: what the file already holds of this sweep.
    """

    path: Path
    force: bool = False
    resume: bool = False
    before: list[Entry] = field(default_factory=list)
    _saved_at: float = 0.0

    def open(self, plan: SweepPlan) -> Remaining:
        """What is left to do of the plan.

        Nothing has been started yet when this raises.

        Raises:
            ResultExistsError: there is a file already, and it is neither to be replaced nor resumed.
            ResultWriteError: its folder cannot be made or written.
            ResultError: the file to resume cannot be read.
            UsageError: the file to resume is of another sweep.
        """
        if self.resume and self.path.exists():
            return self._left(plan)
        if self.path.exists() and not self.force:
            raise ResultExistsError(
                f"'{self.path}' exists already.",
                hint="give another --output, --force to replace it, or --resume to go on with it.",
            )
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ResultWriteError(
                f"cannot write to '{folder}': {error.strerror or error}.", hint="give another --output."
            ) from error
        return whole(plan)

    def keep(self, collected: Collected, complete: bool) -> Path | None:
        """Writes what there is.

        `complete`: nothing more will follow. Otherwise a failed write is left to the next call.

        Returns:
            The file, or None if nothing was written.

        Raises:
            ResultWriteError: the file cannot be written; the hint names another one that holds the results.
        """
        entries = collected.entries(self.before)
        if not entries:
            return None
        left_out = {collected.label(case): why for case, why in collected.left_out.items()}
        sweep = {"complete": complete, "left_out": left_out, "rounds": collected.plan.rounds}
        self._saved_at = time.monotonic()
        try:
            return save(self.path, entries, force=True, sweep=sweep)
        except ResultWriteError as error:
            if not complete:
                return None  # there will be another try
            other = Path(tempfile.mkdtemp(prefix="pyddpdiag-bench-")) / self.path.name
            save(other, entries, sweep=sweep)
            raise ResultWriteError(error.message, hint=f"what was measured is in '{other}'.") from error

    def keep_now_and_then(self, collected: Collected) -> None:
        """`keep`, at most every few seconds.

        Raises:
            ResultWriteError: as `keep`.
        """
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.keep(collected, complete=False)

    def _left(self, plan: SweepPlan) -> Remaining:
        found = read(self.path)
        here = machine_info()
        for key in ("node", "torch"):
            if found.machine.get(key) != here[key]:
                raise ResultError(
                    f"'{self.path}' was begun with another {'machine' if key == 'node' else key} "
                    f"({found.machine.get(key)!r}, here {here[key]!r}); rounds of both don't mix.",
                    hint="start a new sweep with another --output.",
                )
        self.before = list(found.entries)
        default, _ = interfaces.choose((), local=True)
        labels = [plan.label(case, default) for case in range(len(plan.cases))]
        done = {entry.name: len(entry.round_s) for entry in self.before}
        had = [done.get(label, 0) for label in labels]
        # Where only the budget limits the rounds, a case is done once it has the usual number.
        wanted = plan.rounds or USUAL_ROUNDS
        left = tuple(case for case, rounds in enumerate(had) if rounds < wanted)
        if not left:
            raise UsageError(
                f"the sweep in '{self.path}' is complete.",
                hint="--force measures it again; --rounds adds rounds.",
            )
        counts = {entry.name: len(launches_of(entry)) for entry in self.before}
        launched = min(counts.get(labels[case], 0) for case in left)
        rounds = None if plan.rounds is None else plan.rounds - min(had[case] for case in left)
        return Remaining(left, rounds, max(1, plan.launches - launched))


def whole(plan: SweepPlan) -> Remaining:
    """The whole plan."""
    return Remaining(tuple(range(len(plan.cases))), plan.rounds, plan.launches)
