"""Each millisecond of the judged steps is charged once, and findings take their time from the charges."""

from pathlib import Path

import numpy as np
import pytest
from support.processor_use import Extra, write
from support.random_run import random_run
from support.trace_writer import MS, RankWriter, write_training

from pyddpdiag.analyse.charges import Charges, charges
from pyddpdiag.analyse.cube import before_steps
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.weigh.explain import Explained
from pyddpdiag.model.cube import CHARGED, NEEDED, PARTS
from pyddpdiag.model.findings import Cause, Finding
from pyddpdiag.pipeline import load_report
from pyddpdiag.trace.run import open_run


def per_step(found: Charges, rank: int | None, *parts: str) -> float:
    """What a step is charged with, on average, in ms; of all ranks alike, or of one."""
    who = 0 if rank is None else 1 + found.ranks.index(rank)
    places = [CHARGED.index(part) for part in parts or NEEDED]
    return float(found.ms[:, places, who].sum(axis=1).mean())


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_charges_add_up_to_the_steps_and_what_lies_before_them(
    tmp_path: Path, seed: int, marked: bool
) -> None:
    random_run(tmp_path, seed, marked=marked)
    view = RunView(open_run(tmp_path))
    before = before_steps(view.cube, [view._by_rank[rank].life for rank in view.cube.ranks])
    whole = np.sum([*(view.cube.ms[part] for part in PARTS), *before.values()], axis=0)
    rows = np.isin(view.cube.step, view.steps.step[view.steps.judged])
    rows &= view.cube.step <= view.judged.step[-1]
    found = view.charges
    assert found.ms.sum(dtype=np.float64) == pytest.approx(np.nan_to_num(whole[rows]).mean(axis=1).sum())
    assert (found.ms >= -1e-4).all() and len(found.step) == len(view.judged.step)


def test_pieces_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_run(tmp_path, 1, marked=True)
    whole = RunView(open_run(tmp_path)).charges.ms
    monkeypatch.setattr("pyddpdiag.analyse.charges.CHUNK", 1)
    assert np.array_equal(RunView(open_run(tmp_path)).charges.ms, whole)


def test_what_the_others_wait_for_is_charged_to_the_rank_that_they_wait_for(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=4, steps=20, late_ms={0: 15.0, 3: 9.0})
    found = RunView(open_run(tmp_path)).charges
    assert per_step(found, 0) == pytest.approx(15.0)
    # While rank 0 is late by more, rank 3 costs nobody anything.
    assert [per_step(found, rank) for rank in (1, 2, 3)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("extra", "part"), [(Extra(cpu=20), "compute"), (Extra(sleep=20), "blocked"), (Extra(delay=20), "core")]
)
def test_it_is_charged_for_what_it_does_more(tmp_path: Path, extra: Extra, part: str) -> None:
    write(tmp_path, [Extra(), extra])
    found = RunView(open_run(tmp_path)).charges
    assert per_step(found, 1, part) == pytest.approx(20.0, abs=1.0)
    assert per_step(found, 1) == pytest.approx(20.0, abs=1.0)


def test_what_moves_between_the_ranks_is_charged_to_nobody(tmp_path: Path) -> None:
    write_training(tmp_path, steps=20, wire_ms=14.0)
    view = RunView(open_run(tmp_path))
    assert per_step(view.charges, None, "communication") == pytest.approx(view.exposure.typical_ms, abs=0.1)


def two_meetings(folder: Path) -> None:
    """Rank 1 comes 30 ms late to a barrier before the step, and rank 0 20 ms late to the bucket."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(24):
            now = (1 + step) * 200 * MS
            writer.step(step, now, now, now + 120 * MS)
            writer.collective("gloo:barrier", now + (30 if rank else 1) * MS, now + 31 * MS, step=step)
            computed = now + (80 if rank == 0 else 60) * MS
            writer.backward(step, now + 31 * MS, computed, now + 90 * MS)
            writer.bucket(step, computed, now + 81 * MS, now + 90 * MS)
        writer.write(folder)


def test_who_is_late_for_one_meeting_and_who_for_the_other_are_both_charged(tmp_path: Path) -> None:
    """With what the ranks wait on average: in all, rank 0 needs less than rank 1, and so that is what all need."""
    two_meetings(tmp_path)
    found = RunView(open_run(tmp_path)).charges
    mine = {rank: per_step(found, rank) for rank in (0, 1)}
    assert mine == {0: pytest.approx(10.0), 1: pytest.approx(19.0)}


def test_a_rank_alone_is_not_late_whatever_holds_it_up(tmp_path: Path) -> None:
    write(tmp_path, [Extra(delay=20)])
    found = RunView(open_run(tmp_path)).charges
    assert per_step(found, None, "core") == pytest.approx(20.0, abs=1.0)
    # A finding that names the rank takes it all the same.
    contention = Finding("core_contention", "warning", "x", "high", rank=0, cost_ms=20.0)
    (left,) = Explained(found).by([contention])
    assert left.cost_ms == pytest.approx(20.0, abs=1.0)


def explained(folder: Path, cause: Cause | None = None, until: int | None = None) -> list[tuple[str, float]]:
    """What a finding of 10 ms per step about rank 1 takes, by part."""
    write(folder, [Extra(), Extra(cpu=20, delay=20)])
    view = RunView(open_run(folder))
    late = Finding("late_rank", "warning", "x", "high", rank=1, cost_ms=10.0, cause=cause, since_step=4)
    late = Finding(**{**vars(late), "until_step": until})
    taking = Explained(view.charges)
    taking.by([late])
    return [(each.part, each.explained_s) for each in taking.charged() if each.explained_by == ("late_rank",)]


def test_a_finding_takes_first_what_it_names(tmp_path: Path) -> None:
    ((part, seconds),) = explained(tmp_path / "core", "core")
    assert (part, seconds) == ("core", pytest.approx(0.01 * 39, rel=0.05))
    assert {part for part, _ in explained(tmp_path / "any")} == {"core", "compute"}


def test_a_finding_about_some_steps_takes_no_more_than_these_have(tmp_path: Path) -> None:
    assert dict(explained(tmp_path, "core", until=7)) == {
        "core": pytest.approx(4 * 0.02, rel=0.05),
        "compute": pytest.approx(4 * 0.02, rel=0.05),
    }


def test_the_report_shows_who_is_charged_with_what_and_what_explains_it(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=24, late_ms={1: 30.0}, wire_ms=2.0)
    verdict = load_report(tmp_path).verdict
    assert sum(each.share for each in verdict.charges) == pytest.approx(1.0, abs=0.01 * len(CHARGED))
    ((late),) = [each for each in verdict.charges if each.rank == 1]
    assert late.explained_by == ("late_rank",)
    assert late.explained_s == pytest.approx(late.seconds, rel=0.01)
    costs = {each.kind: each.cost_s for each in verdict.findings}
    assert costs["late_rank"] == pytest.approx(late.explained_s)


def test_charges_of_steps_that_nobody_knows_are_none(tmp_path: Path) -> None:
    RankWriter(0, 2).write(tmp_path)
    view = RunView(open_run(tmp_path))
    assert len(charges(view.cube, {}, view.judged, view.steps.step).step) == 0
    assert load_report(tmp_path).verdict.charges == ()
