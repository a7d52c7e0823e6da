"""For whom ranks wait for a core: other programs, or their own threads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.processor_use import NOTHING, Extra, write

from pyddpdiag.analyse.core_waits import by_other_programs
from pyddpdiag.analyse.step_matrix import StepMatrix
from pyddpdiag.analyse.usage import UsageMatrix
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.pipeline import load_report


def _foreign(ranks: int, *, cores: int, wall: float, cpu: float, waits: float, beside: float) -> float:
    """By what each of these equal ranks waits for other programs in each step; ms."""
    full, none = np.ones((8, ranks)), np.zeros((8, ranks))
    names = ("collector", "load", "major_faults", "device")
    usage = UsageMatrix(
        cpu=cpu * full,
        run_delay=waits * full,
        process_cpu=(cpu + beside) * full,
        **dict.fromkeys(names, none),
    )
    steps = StepMatrix(tuple(range(ranks)), np.arange(8), wall * full, none, none, none)
    sidecars = {rank: replace(Sidecar(), host="one", cores=tuple(range(cores))) for rank in range(ranks)}
    return float(by_other_programs(steps, usage, sidecars).mean())


@pytest.mark.parametrize(
    ("ranks", "cores", "cpu", "waits", "beside", "foreign"),
    [
        # Each of two ranks on two cores loses to their other threads what these compute.
        (2, 2, 44.0, 4.0, 4.0, 0.0),
        (2, 2, 30.0, 20.0, 4.0, 16.0),
        # Other programs have at most what the ranks leave: 2 * 50 - 2 * 44 ms, for two.
        (2, 2, 44.0, 20.0, 0.0, 6.0),
        # There is a core for each thread of theirs.
        (2, 8, 44.0, 4.0, 4.0, 4.0),
        # Three ranks on two cores, which they fill.
        (3, 2, 33.0, 16.0, 0.0, 1 / 3),
        (3, 2, 20.0, 16.0, 2.0, 34 / 3),
        # Whose the cores are is not known.
        (2, 0, 44.0, 4.0, 4.0, 4.0),
        (2, 2, 44.0, 4.0, float("nan"), 4.0),
    ],
)
def test_waits_belong_to_who_computes_meanwhile(
    ranks: int, cores: int, cpu: float, waits: float, beside: float, foreign: float
) -> None:
    found = _foreign(ranks, cores=cores, wall=50.0, cpu=cpu, waits=waits, beside=beside)
    assert found == pytest.approx(foreign)


def test_what_the_ranks_own_threads_take_is_no_open_question(tmp_path: Path) -> None:
    """Two ranks on two cores wait in nearly half of their steps, while Gloo's threads compute."""
    often = Extra(delay=7, steps=range(0, 36, 2))
    write(tmp_path, [often] * 2, cores=2)
    assert load_report(tmp_path).verdict.status == "healthy"
    # Where nobody knows which cores they have, it may be another program.
    write(tmp_path / "unknown", [often] * 2)
    assert "waiting for processor cores" in load_report(tmp_path / "unknown").verdict.line


def test_a_healthy_run_says_what_its_own_threads_cost(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=3.5)] * 2, cores=2)
    assert "the ranks wait for cores for 3.50 ms" in load_report(tmp_path).verdict.line
    write(tmp_path / "none", [NOTHING] * 2, cores=2)
    assert "wait for cores" not in load_report(tmp_path / "none").verdict.line


@pytest.mark.parametrize(
    ("ranks", "says"), [(2, "other threads of the ranks"), (4, "fewer cores than ranks")]
)
def test_ranks_that_take_the_cores_from_each_other_are_not_sent_to_look_for_other_programs(
    tmp_path: Path, ranks: int, says: str
) -> None:
    write(tmp_path, [Extra(delay=12)] * ranks, cores=2)
    found = next(one for one in load_report(tmp_path).verdict.findings if one.kind == "core_contention")
    assert says in found.message and "Other programs" not in found.advice
    write(tmp_path / "foreign", [Extra(delay=40)] * 2, cores=8)
    found = next(
        one for one in load_report(tmp_path / "foreign").verdict.findings if one.kind == "core_contention"
    )
    assert says not in found.message and "Other programs" in found.advice
