"""A recorded run's step with other numbers of ranks, another link, other bucket layouts, and without the straggler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import SMALL_BYTES
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.view import RunView
from pyddpdiag.plan.recorded import CannotTell, Recorded, recorded
from pyddpdiag.plan.ring import Contention, Path, Ring, Sharing, fit, on_path, replay
from pyddpdiag.plan.settings import MOST_RANKS, Limit, Link, Plan, Row, Scaling, ScalingPoint
from pyddpdiag.trace.rows import Int64

DRAWS: Final = 64
"""So often the steps are drawn again, and the link fitted to them."""

MOST_STEPS: Final = 1000
"""More steps, evenly chosen, tell no more."""

MISSED: Final = 0.1
"""A replay that misses the run's own step by more knows too little of it."""

LEFT_OUT: Final = 0.06
"""Of a planned step, what the model missed at most in 9 of 10 measured cases (docs/plan.md): its interval has that."""

HALF_PATHS: Final = ("bf16", "fp16")

_ONE_SIZE: Final = "the buckets are of about one size, which do not tell latency and bandwidth apart"


@dataclass(frozen=True, eq=False)
class _Draw:
    """Some steps, drawn with replacement, and what was fitted to them."""

    steps: Int64
    ring: Ring | None
    sharing: Sharing


def plan(
    view: RunView,
    folder: str,
    ranks: Sequence[int] = (),
    caps_mb: Sequence[tuple[float, ...]] = (),
    link: Link = Link(),  # noqa: B008
    paths: Sequence[Path] = (),
) -> Plan:
    """The answers for each number of ranks with each bucket layout and path.

    Args:
        view: of a run whose records are still there.
        ranks: none: as many as recorded.
        caps_mb: a size of all buckets, or one of each, in MiB; the recorded layout is planned beside them.
        link: what replaces the recorded one.
        paths: of the buckets; Gloo's all-reduce is planned beside them.
    """
    try:
        run = _thinned(recorded(view))
        return _Planner(run, link).plan(folder, ranks, caps_mb, paths)
    except CannotTell as reason:
        return Plan(folder, cannot_tell=str(reason))


class _Planner:
    def __init__(self, run: Recorded, link: Link) -> None:
        self._run, self._link = run, link
        self._random = np.random.default_rng(0)
        every = np.arange(len(run.step))
        self._all = self._draw(every)
        self._handed = run.alone(self._all.sharing)
        self._draws = [self._draw(self._random.choice(every, len(every))) for _ in range(DRAWS)]
        self._missed = 0.0
        # All rows are told of the run's median step, the one that its report shows.
        usual = float(np.median(run.step))
        self._pace = run.step_ms / usual if np.isfinite(run.step_ms) else 1.0

    def _draw(self, steps: Int64) -> _Draw:
        run = self._run
        known = run.core_wait[steps][np.isfinite(run.core_wait[steps])]
        contention = Contention(
            float(np.median(known)) if len(known) else np.nan,
            float(np.median(run.busy[steps, :, -1])),
            run.most_round_ms,
        )
        during, after = (np.median(part[steps], axis=0) for part in (run.during, run.after))
        return _Draw(steps, *fit(run.sizes, during, after, run.ranks, contention))

    def plan(
        self, folder: str, ranks: Sequence[int], caps_mb: Sequence[tuple[float, ...]], paths: Sequence[Path]
    ) -> Plan:
        measured, own = self._measured(), self._replayed()
        assert measured.step_ms is not None and own.step_ms is not None
        self._missed = own.step_ms / measured.step_ms - 1
        if abs(self._missed) > MISSED:
            raise CannotTell(
                f"a replay of the run's own schedule gives {own.step_ms:.4g} ms for its step of "
                f"{measured.step_ms:.4g} ms: what its steps wait for is not in this model."
            )
        rows = [measured, own]
        every: list[Path] = ["gloo", *paths]
        rows += [
            self._row(count, cap, path)
            for count in ranks or (self._run.ranks,)
            for cap in ((), *caps_mb)
            for path in every
            if (count, cap, path) != (self._run.ranks, (), "gloo") or self._link.is_given
        ]
        rows.append(self._without_straggler())
        ring = self._all.ring
        return Plan(
            folder,
            tuple(rows),
            steps=len(self._run.step),
            missed_fraction=self._missed,
            round_ms=None if ring is None else ring.round_ms,
            bandwidth_gbit=8e-6 / ring.ms_per_byte if ring is not None and ring.ms_per_byte > 0 else None,
            wire_pace=None if ring is None else self._all.sharing.wire,
            compute_pace=None if ring is None else self._all.sharing.compute,
            scaling=self._scaling(),
        )

    def _scaling(self) -> Scaling | None:
        try:
            self._needs_link(self._run.ranks + 1)
        except CannotTell:
            return None
        return scaling(self._step_ms)

    def _step_ms(self, ranks: int, without: frozenset[Limit]) -> float:
        if ranks == 1:
            return self._pace * _alone_ms(self._handed)
        alike = 1 if "slowest rank" in without else ranks
        handed = self._latest(self._some(self._handed, alike), alike)
        ring = self._over(self._all.ring, self._link)
        ring = Ring(
            0.0 if "latency" in without else ring.round_ms,
            0.0 if "bandwidth" in without else ring.ms_per_byte,
        )
        each = ring.work_ms(self._run.sizes, ranks)
        ended = replay(handed, np.broadcast_to(each, handed.shape), self._all.sharing)[1]
        return self._pace * float(np.median(ended))

    def _measured(self) -> Row:
        run = self._run
        medians = [self._pace * float(np.median(run.step[draw.steps])) for draw in self._draws]
        low, high = np.percentile(medians, [2.5, 97.5])
        waits = run.step - run.handed[:, :, -1].max(axis=1)
        return Row(
            "recorded",
            "as recorded",
            run.ranks,
            buckets=len(run.sizes),
            step_ms=self._pace * float(np.median(run.step)),
            low_ms=float(low),
            high_ms=float(high),
            exposed_ms=self._pace * float(np.median(waits)),
        )

    def _replayed(self) -> Row:
        run = self._run
        row = Row("replayed", "the same, replayed", run.ranks, buckets=len(run.sizes))
        return self._told(row, self._handed, run.sizes, None)

    def _row(self, ranks: int, caps: tuple[float, ...], path: Path) -> Row:
        sizes = ", ".join(f"{cap:g}" for cap in caps)
        layout = f"buckets of {sizes} MiB" if caps else "recorded buckets"
        how = "" if path == "gloo" else f" in {path}"
        one, several = (caps[0] if len(caps) == 1 else None), (caps if len(caps) > 1 else ())
        setting = f"{ranks} {'rank' if ranks == 1 else 'ranks'}, {layout}{how}"
        row = Row("planned", setting, ranks, one, several, path)
        try:
            self._needs_link(ranks)
            self._needs_path(path, ranks)
            handed, bytes_ = self._layout(caps)
            row = replace(row, buckets=len(bytes_))
            return self._told(row, self._some(handed, ranks), bytes_, self._link)
        except CannotTell as reason:
            return replace(row, cannot_tell=str(reason))

    def _without_straggler(self) -> Row:
        run = self._run
        own = np.median(self._handed[:, :, -1], axis=0)
        order = np.argsort(own, kind="stable")
        slowest, middle = int(order[-1]), int(order[(run.ranks - 1) // 2])
        row = Row(
            "planned",
            f"rank {run.numbers[slowest]} as fast as {run.numbers[middle]}",
            run.ranks,
            straggler=False,
            buckets=len(run.sizes),
        )
        try:
            if self._link.is_given:
                self._needs_link(run.ranks)
        except CannotTell as reason:
            return replace(row, cannot_tell=str(reason))
        # Its own scatter stays: what slows down all ranks of a step at once is not its fault.
        handed = self._handed.copy()
        handed[:, slowest] = np.maximum(handed[:, slowest] - (own[slowest] - own[middle]), 0.0)
        return self._told(row, handed, run.sizes, self._link if self._link.is_given else None)

    def _needs_link(self, ranks: int) -> None:
        run, link = self._run, self._link
        whole = link.ms_per_byte is not None and link.latency_ms is not None
        if run.on_one_machine and ranks != run.ranks and link.ms_per_byte is None:
            raise CannotTell(
                "the ranks shared one machine, and more of them would share its cores: give --bandwidth of a network "
                "between machines of their own"
            )
        if not whole and any(draw.ring is None for draw in (self._all, *self._draws)):
            raise CannotTell(_ONE_SIZE)

    def _needs_path(self, path: Path, ranks: int) -> None:
        run = self._run
        if path in HALF_PATHS and run.sixteen_bits:
            raise CannotTell("gradients travel in 16 bits already")
        if path == "shared memory" and (not run.on_one_machine or ranks != run.ranks or self._link.is_given):
            raise CannotTell(
                "ranks share memory on one machine only, and this is planned for as many as were recorded"
            )

    def _layout(self, caps: tuple[float, ...]) -> tuple[Float64, Float64]:
        """When each rank hands over each bucket of a layout, and their bytes."""
        run = self._run
        if not caps:
            return self._handed, run.sizes
        buckets = run.layout.layout(*caps) if run.layout is not None else None
        if buckets is None:
            raise CannotTell(
                "the sizes of the parameters are not known, differ in type, or were not sent as they are"
            )
        if any(each.name not in run.ready for bucket in buckets for each in bucket):
            raise CannotTell("the run has no times of single parameters: record it with recorder.attach(ddp)")
        sharing = self._all.sharing
        before = np.array([max(run.ready_alone(each.name, sharing) for each in bucket) for bucket in buckets])
        # DDP hands them over in their order; the last one when the rank handed over its last.
        before = np.maximum.accumulate(before)
        before[-1] = 0.0
        sizes = np.array([float(sum(each.bytes for each in bucket)) for bucket in buckets])
        return np.maximum(self._handed[:, :, -1, None] + before, 0.0), sizes

    def _some(self, handed: Float64, ranks: int) -> Float64:
        """Of more ranks than that, so many of each step, by chance."""
        steps, known, _ = handed.shape
        if ranks >= known:
            return handed
        some = np.argsort(self._random.random((steps, known)), axis=1)[:, :ranks]
        return np.asarray(np.take_along_axis(handed, some[:, :, None], axis=1))

    def _latest(self, handed: Float64, ranks: int) -> Float64:
        """When so many ranks, those of `handed` or more, have handed each bucket over: [steps, buckets].

        Further ranks are like these, in other steps of theirs: each draws its own good and bad steps. What delays all
        ranks of a step alike stays in that step.
        """
        steps, known, _ = handed.shape
        alike = handed[:, :, -1].min(axis=1)
        alike = (alike - np.median(alike))[:, None]
        latest = handed.max(axis=1)
        for place in range(known, ranks):
            drawn = self._random.permutation(steps)
            np.maximum(latest, handed[drawn, place % known] - alike[drawn] + alike, out=latest)
        return np.asarray(latest)

    def _told(self, row: Row, by_rank: Float64, sizes: Float64, link: Link | None) -> Row:
        """The row with its numbers.

        Args:
            by_rank: when each rank hands each bucket over; further ranks are like these: [steps, ranks, buckets].
            sizes: of the buckets, in bytes.
            link: None: buckets take what they took, where no ring can be fitted.
        """
        handed = self._latest(by_rank, row.ranks)
        steps, exposed = self._replay(self._all, handed, sizes, row.ranks, link, row.path)
        middle = float(np.median(steps))
        medians = [
            float(np.median(self._replay(draw, handed, sizes, row.ranks, link, row.path)[0]))
            for draw in self._draws
        ]
        low, high = np.percentile([*medians], [2.5, 97.5])
        # By what the replay misses of the run itself, it may miss of this; and by what it missed elsewhere.
        off = max(abs(self._missed), LEFT_OUT if row.kind == "planned" else 0.0) * middle
        return replace(
            row,
            step_ms=middle,
            low_ms=max(0.0, min(float(low), middle) - off),
            high_ms=max(float(high), middle) + off,
            exposed_ms=float(np.median(exposed)),
            efficiency=self._pace * _alone_ms(by_rank) / middle,
        )

    def _replay(
        self, draw: _Draw, handed: Float64, sizes: Float64, ranks: int, link: Link | None, path: Path = "gloo"
    ) -> tuple[Float64, Float64]:
        ready = handed[draw.steps]
        if draw.ring is None and (link is None or not link.is_given):
            taken = np.median((self._run.during + self._run.after)[draw.steps], axis=0)
            # In buckets of one size, only that separates latency from bytes.
            latency = np.where(sizes <= SMALL_BYTES, taken, 0.0)
            each = on_path(path, sizes, latency, taken - latency)
        else:
            each = on_path(path, sizes, *self._over(draw.ring, link or Link()).parts_ms(sizes, ranks))
        # Readiness is that of all steps' sharing.
        sharing = replace(draw.sharing, compute=self._all.sharing.compute)
        handed_over, ended = replay(ready, np.broadcast_to(each, ready.shape), sharing)
        return self._pace * ended, self._pace * (ended - handed_over)

    def _over(self, ring: Ring | None, link: Link) -> Ring:
        """The recorded ring over another link."""
        latency = (
            link.latency_ms if link.latency_ms is not None else ring.round_ms if ring is not None else 0.0
        )
        per_byte = link.ms_per_byte
        if ring is not None and (per_byte is None or self._run.on_one_machine):
            # What one machine's own memory and cores take, a network between machines does not save.
            per_byte = max(ring.ms_per_byte, per_byte or 0.0)
        return Ring(latency, per_byte or 0.0)


def _alone_ms(handed: Float64) -> float:
    """The step of one of these ranks alone: [steps, ranks, buckets]. No more than what all of them take together, since
    no rank's median exceeds that of the last rank of each step."""
    return float(np.median(handed[:, :, -1]))


def _thinned(run: Recorded) -> Recorded:
    some = np.unique(np.linspace(0, len(run.step) - 1, MOST_STEPS).astype(np.int64))
    if len(run.step) <= MOST_STEPS:
        return run
    by_step = ("handed", "busy", "step", "during", "after", "core_wait")
    return replace(run, **{name: getattr(run, name)[some] for name in by_step})


WORTHWHILE: Final = 1.5
"""Beyond the end of scaling, twice the ranks never give so many times the throughput."""

StepMs = Callable[[int, frozenset[Limit]], float]
"""The step in ms of so many ranks, without what these take."""


def scaling(step_ms: StepMs) -> Scaling:
    """All numbers of ranks that are a power of two.

    Throughput counts samples: a rank has the same batch, however many there are. It is relative to a rank alone.
    """
    alone = step_ms(1, frozenset())
    points = [ScalingPoint(1, alone, 1.0)]
    # The first doubling may gain less than later ones: a rank alone sends nothing.
    ends_at = 1
    while points[-1].ranks < MOST_RANKS:
        ranks = 2 * points[-1].ranks
        step = step_ms(ranks, frozenset())
        points.append(ScalingPoint(ranks, step, ranks * alone / step))
        if points[-1].throughput >= WORTHWHILE * points[-2].throughput:
            ends_at = ranks
    if ends_at == MOST_RANKS:
        return Scaling(alone, tuple(points))
    beyond = next(point for point in points if point.ranks == 2 * ends_at)
    saved: dict[Limit, float] = {
        each: beyond.step_ms - step_ms(beyond.ranks, frozenset({each}))
        for each in ("latency", "bandwidth", "slowest rank")
    }
    limit = max(saved, key=lambda each: saved[each])
    return Scaling(alone, tuple(points), ends_at, limit, saved[limit])
