"""Each bound that decides: just below it and just above it the analysis says another thing, and a fifth moves that."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import pytest

from pyddpdiag.analyse import bounds, chance, standstill, windows, wire_fit
from pyddpdiag.analyse.checks.ends import _is_lost
from pyddpdiag.analyse.core_waits import Crowding, core_waits
from pyddpdiag.analyse.endings import _ahead
from pyddpdiag.analyse.episodes import ExtraTime, late_steps, waits_per_cpu
from pyddpdiag.analyse.exposure import exposure_of
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.late_ranks import LateRank
from pyddpdiag.analyse.lines import _if_seen
from pyddpdiag.analyse.meetings import Meetings, alone
from pyddpdiag.analyse.step_matrix import StepMatrix, are_long
from pyddpdiag.analyse.usage import UsageMatrix, growth
from pyddpdiag.analyse.wall_clock import other_wall_clocks
from pyddpdiag.analyse.weigh.verdict import _weight
from pyddpdiag.analyse.windows import by_window, stretches
from pyddpdiag.analyse.wire_fit import most_latency_ms
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.lines import Line
from pyddpdiag.model.memory import Memory
from pyddpdiag.model.rows import BucketStats
from pyddpdiag.model.stats import BucketTimes, Stat

GIB: Final = 2**30


def bucket(size: int, *, wire_ms: float) -> BucketStats:
    times = BucketTimes(wire_ms=Stat(wire_ms, wire_ms), total_ms=Stat(wire_ms, wire_ms))
    return BucketStats("7", 0, (), size, "float32", "float32", "0", 2, 20, 20, 0, 0, 20, False, 1.0, times)


def _steps(steps: int, own_ms: float, wall_ms: float, **extra: Float64) -> StepMatrix:
    """Two ranks with equal steps; `extra`: added to rank 1's own time."""
    own = np.full((steps, 2), own_ms)
    own[:, 1] += extra.get("own", np.zeros(steps))
    whole = np.full((steps, 2), wall_ms)
    none = np.zeros((steps, 2))
    return StepMatrix((0, 1), np.arange(steps), whole, none, none, own)


def _usage(steps: int, delay_ms: float) -> UsageMatrix:
    known = np.zeros((steps, 2))
    names = ("cpu", "process_cpu", "collector", "load", "major_faults", "device")
    return UsageMatrix(run_delay=np.full((steps, 2), delay_ms), **dict.fromkeys(names, known))


def _waits(delay_ms: float, wall_ms: float) -> bool:
    return bool(core_waits(_steps(20, 0.9 * wall_ms, wall_ms), _usage(20, delay_ms), (0, 1)))


def _event(lead_ms: float, wall_ms: float) -> bool:
    late = late_steps(_steps(20, 0.5 * wall_ms, wall_ms, own=lead_ms * (np.arange(20) == 7)), _usage(20, 0.0))
    return late is not None and bool(late.is_late.any())


def _late(sure_ms: float, **facts: Any) -> str:
    """How sure it is of a rank that is late by so much of 100 ms."""
    of = {
        "rank": 1,
        "span": None,
        "extra_ms": sure_ms,
        "often": 1.0,
        "steps": 400,
        "step_ms": 100.0,
        "since_step": 1,
        "until_step": None,
        "data_ms": 0.0,
        "extra": ExtraTime(cpu=1.0, core=0.0),
        "threads": None,
        "load": 0.2,
        "others_wait_ms": None,
        "cost_ms": sure_ms,
    }
    return LateRank(**(of | {"sure_ms": sure_ms} | facts)).confidence


def _alone(begin_ms: float = 0.0, between_ms: float = 0.0, step_ms: float = 20.0, waits: float = 1.0) -> bool:
    """Rank 1 alone: before the first step, or three times in 20 steps while rank 0 waits in a collective, for a part
    of that time."""
    busy = np.full((20, 2), step_ms)
    busy[0, 1] += begin_ms
    calls = np.zeros((20, 2))
    hit = np.isin(np.arange(20), (5, 11, 12) if between_ms else ())
    busy[hit, 1] += between_ms
    calls[hit, 0] = waits * between_ms
    none = np.zeros((20, 2))
    outside = np.full((20, 2), np.nan)
    found = Meetings(
        (0, 1),
        np.arange(20),
        busy,
        outside,
        calls,
        none,
        none,
        none,
        np.zeros(20, np.bool_),
        bool(begin_ms),
        1.0,
    )
    return alone(found, step_ms) is not None


def _stretch(steps: int, long: int, after: int = 0) -> Any:
    over = np.full(steps, -1.0)
    over[steps - after - long : steps - after] = 1.0
    return stretches(over)


def _readings(number: int) -> bool:
    """Whether so many readings of a memory that grows are enough."""
    at = tuple(range(0, number * 10**9, 10**9))
    own = tuple(GIB + each // 10 for each in at)
    memory = Memory(at, own, (0,) * number, (GIB,) * number, 4 * GIB)
    return growth(memory) is not None


def _signal(gap_ms: float) -> bool:
    """Whether a rank that ends so much earlier than the other was ahead of it."""
    ends = [SimpleNamespace(rank=rank, at_ms=gap_ms * rank, end=SimpleNamespace(error="")) for rank in (0, 1)]
    view = SimpleNamespace(clocks=[SimpleNamespace(uncertainty_ns=1)])
    return _ahead(cast(Any, view), cast(Any, ends))[0] == (0,)


def _other_clock(ahead_s: float) -> bool:
    headers = [
        SimpleNamespace(rank=rank, wall_ns=int(rank * ahead_s * 1e9), monotonic_ns=0) for rank in (0, 1)
    ]
    clocks = [SimpleNamespace(offset_ns=0, uncertainty_ns=1)] * 2
    view = SimpleNamespace(
        headers=headers, clocks=clocks, sidecars={rank: SimpleNamespace(host="b") for rank in (0, 1)}
    )
    return bool(list(other_wall_clocks(cast(Any, view))))


def _silent(behind_s: float) -> bool:
    """Whether a machine is lost whose notes are so far behind those of another one."""
    lost, other = (
        SimpleNamespace(ended=False, ranks=(each,), behind_s=behind_s, age_s=0.0) for each in (0, 1)
    )
    ranks = [SimpleNamespace(rank=rank, closed=False, ended=None, last_step=5) for rank in (0, 1)]
    return _is_lost(cast(Any, SimpleNamespace(nodes=[lost, other], ranks=ranks)), cast(Any, lost))


def _named(looks: int) -> bool:
    line = Line("train.py", 1, "main")
    times = SimpleNamespace(samples={line: looks}, call=lambda _: "", waits=lambda _: 0.0)
    return _if_seen(cast(Any, times), [line], 1.0) is not None


def _block(long: int) -> Float64:
    """A row of ones among zeros."""
    return np.r_[np.zeros(40), np.ones(long), np.zeros(40)]


def _spans(count: int) -> str:
    over = np.tile(np.r_[np.full(40, -1.0), np.full(40, 1.0)], count)
    found = stretches(np.r_[over, np.full(40, -1.0)])
    assert found is not None
    return found.words(np.arange(len(over) + 40))


def _finding(confidence: str, cost_s: float) -> Finding:
    return Finding(
        kind="late_rank",
        severity="warning",
        message="",
        confidence=cast(Any, confidence),
        cost_s=cost_s,
        evidence={},
        change_mind="",
        advice="",
    )


def _grows(by: float) -> bool:
    """Memory that grows by this share of what is free."""
    at = np.arange(64) * 10**9
    own = (GIB + by * GIB * at / at[-1]).astype(np.int64)
    memory = Memory(
        at_ns=tuple(at.tolist()),
        own=tuple(own.tolist()),
        workers=(0,) * 64,
        free=(GIB,) * 64,
        limit=4 * GIB,
        container=False,
    )
    return growth(memory) is not None


def _crowd(threads: int) -> bool:
    waits = core_waits(_steps(20, 90.0, 100.0), _usage(20, 30.0), (0, 1))
    return Crowding("one", (0, 1), threads, 10, waits, 6.0, None).is_sure


def _exposed(share: float) -> bool:
    walls = np.full(400, 100.0)
    return exposure_of(share * walls, walls, 100.0, can_judge=True).is_large


def _sizes(*of: tuple[int, float]) -> Any:
    return wire_fit.fit_wire([bucket(size, wire_ms=ms) for size, ms in of])


def _latency(buckets: int, latency_ms: float) -> float:
    """The latency of buckets of which the small ones wait, where none can be above 1 ms."""
    of = [bucket(1 + 10**6 * (index % 2), wire_ms=latency_ms) for index in range(buckets)]
    fit = wire_fit.fit_wire(of, most_latency_ms=1.0)
    return 0.0 if fit is None else round(fit.latency_ms, 1)


SCENES: Final[dict[str, tuple[Callable[[], Any], Any]]] = {
    "LEAST_STEPS": (lambda: [_steps(number, 9.0, 10.0).can_judge for number in (3, 4)], [False, True]),
    "MANY_STEPS": (lambda: [bounds.confidence(number) for number in (9, 11)], ["medium", "high"]),
    "TWICE": (lambda: [_stretch(80, 30, after).spans[0].lasting for after in (2, 3)], [True, False]),
    "SEVERAL": (lambda: ["stretches" in _spans(count) for count in (3, 4)], [False, True]),
    "MATTERS_SHARE": (lambda: [bounds.severity(cost, 100.0) for cost in (4.5, 5.5)], ["note", "warning"]),
    "HEALTHY_SHARE": (lambda: [_waits(each, 100.0) for each in (9.0, 11.0)], [False, True]),
    "QUIET_SHARE": (lambda: [_late(each) for each in (11.0, 13.0)], ["low", "high"]),
    "LARGE_SHARE": (
        lambda: [[_exposed(each), _late(100 * each, load=4.0)] for each in (0.23, 0.27)],
        [[False, "low"], [True, "high"]],
    ),
    "WORTH_A_WORD": (lambda: [_grows(each) for each in (0.0105, 0.0125)], [False, True]),
    "NEARLY_ALL": (
        lambda: [
            chance.period(np.cumsum([4] * 20 + [9] * odd, dtype=np.int64)) is not None for odd in (1, 4)
        ],
        [True, False],
    ),
    "CHANCE": (lambda: [bool(_stretch(steps, 14)) for steps in (150, 180)], [True, False]),
    "SURENESS": (
        lambda: [
            _weight(_finding("medium", 10.0), 1.0) < _weight(_finding("high", sure), 1.0)
            for sure in (7.5, 8.5)
        ],
        [True, False],
    ),
    "LEAST_MS": (lambda: [_waits(each, 5.0) for each in (0.9, 1.1)], [False, True]),
    "EVENT_MS": (lambda: [_event(each, 4.0) for each in (4.5, 5.5)], [False, True]),
    "LONG": (lambda: are_long(np.r_[np.full(9, 100.0), 275.0, 330.0])[-2:].tolist(), [False, True]),
    "STANDS_MS": (lambda: [_alone(between_ms=each) for each in (90.0, 110.0)], [False, True]),
    "SET_UP_MS": (lambda: [_alone(begin_ms=each) for each in (900.0, 1100.0)], [False, True]),
    "SHARED_TIMES": (
        lambda: [waits_per_cpu((cpu, 10 * cpu), (10.0, 10.0)) for cpu in (16.0, 18.0)],
        [1.0, 10.0],
    ),
    "BUSY_LOAD": (lambda: [_late(20.0, load=each) for each in (1.4, 1.6)], ["high", "low"]),
    "MANY_THREADS": (lambda: [_crowd(each) for each in (37, 43)], [False, True]),
    "FAULT_MS": (
        lambda: [
            LateRank.waits_for_pages.__get__(SimpleNamespace(cause="disk", major_faults=10.0, disk_ms=each))
            for each in (0.9, 1.1)
        ],
        [True, False],
    ),
    "WINDOW": (lambda: by_window(np.arange(13.0))[-1], 5.5),
    "NEAR": (lambda: [windows._running_median(_block(each)).sum() for each in (2, 3)], [0.0, 3.0]),
    "ASSUMED_MS_PER_BYTE": (lambda: _sizes(*[(1000, 5.0)] * 9).ms_per_byte, 1e-5),
    "SMALL_COUNT": (lambda: [_sizes(*[(1000, 5.0)] * each) is not None for each in (7, 8)], [False, True]),
    "SMALL_BYTES": (
        lambda: [_sizes(*[(each, 9.0)] * 9) is not None for each in (250_000, 280_000)],
        [True, False],
    ),
    "CROWDED_MS": (lambda: [_latency(8, each) for each in (18.0, 22.0)], [18.0, 20.0]),
    "ROUND_MS": (
        lambda: most_latency_ms(cast(Any, [SimpleNamespace(rank=rank, floor_rtt_ms=0.0) for rank in (0, 1)])),
        2 * 4 * 0.2,
    ),
    "SLOW_START": (
        lambda: most_latency_ms(cast(Any, [SimpleNamespace(rank=rank, floor_rtt_ms=0.8) for rank in (0, 1)])),
        2 * 4 * 1.0,
    ),
    "HALVED": (lambda: wire_fit.half_gain_ms(99.0, [bucket(10**6, wire_ms=10.0)], ()), 4.0),
    "ALL_LATENCY_BYTES": (
        lambda: [wire_fit.half_gain_ms(99.0, [bucket(each, wire_ms=10.0)], ()) for each in (65_000, 66_000)],
        [None, 4.0],
    ),
    "LATENCY_SHARE": (lambda: wire_fit.shared_gain_ms(99.0, [bucket(1000, wire_ms=9.0)]), 8.0),
    "BYTES_SHARE": (lambda: wire_fit.shared_gain_ms(99.0, [bucket(10**7, wire_ms=71.0)]), 61.0),
    "MOST": (lambda: [_alone(between_ms=300.0, waits=each) for each in (0.45, 0.55)], [False, True]),
    "BLOCKS": (lambda: [_readings(each) for each in (15, 17)], [False, True]),
    "LOST_S": (
        lambda: [[_other_clock(each), _silent(each)] for each in (9.0, 11.0)],
        [[False, False], [True, True]],
    ),
    "LEAST_SAMPLES": (lambda: [_named(each) for each in (4, 5)], [False, True]),
    "UNKNOWN_STEP_MS": (lambda: standstill.threshold_ms(float("nan")), 30000.0),
}


@pytest.mark.parametrize("name", SCENES)
def test_a_bound_decides_where_it_says(name: str) -> None:
    scene, said = SCENES[name]
    assert scene() == pytest.approx(said) if isinstance(said, float) else scene() == said


@pytest.mark.parametrize("times", [0.8, 1.2])
@pytest.mark.parametrize("name", SCENES)
def test_moved_by_a_fifth_it_decides_otherwise(
    monkeypatch: pytest.MonkeyPatch, name: str, times: float
) -> None:
    scene, said = SCENES[name]
    value = getattr(bounds, name)
    moved: Any
    if isinstance(value, dict):
        moved = {key: each * times for key, each in value.items()}
    elif isinstance(value, int) and value < 100:
        moved = value + (max(1, round(0.2 * value)) if times > 1 else -max(1, round(0.2 * value)))
    else:
        moved = value * times
    for module in [each for key, each in sys.modules.items() if key.startswith("pyddpdiag.analyse")]:
        if getattr(module, name, None) is value:
            monkeypatch.setattr(module, name, moved)
    found = scene()
    assert found != pytest.approx(said) if isinstance(said, float) else found != said


def test_there_are_no_more_bounds_than_anybody_can_keep_in_mind() -> None:
    """Sixty; what is derived from these is none."""
    own = Path(bounds.__file__).read_text(encoding="utf-8").partition("# Derived from these.")[0]
    assert len(re.findall(r"^[A-Z_0-9]+: Final", own, re.MULTILINE)) <= 60
