"""Each millisecond of a step is filed under one part, whatever the records say of it."""

from pathlib import Path

import numpy as np
import pytest
from support.random_run import random_run
from support.trace_writer import MS, RankWriter

from pyddpdiag.analyse.cube import cube
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.cube import PARTS
from pyddpdiag.trace.run import open_run


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_parts_of_a_step_are_its_wall_time(tmp_path: Path, seed: int, marked: bool) -> None:
    random_run(tmp_path, seed, marked=marked)
    view = RunView(open_run(tmp_path))
    found, steps = view.cube, view.judged
    assert set(found.ms) == set(PARTS) and found.ranks == steps.ranks
    whole = np.sum(list(found.ms.values()), axis=0)[np.isin(found.step, steps.step)]
    known = np.isfinite(steps.wall)
    assert known.sum() > 50
    assert whole[known] == pytest.approx(steps.wall[known], rel=0.01)
    assert all((values[np.isfinite(values)] >= 0).all() for values in found.ms.values())
    for one in view.account:
        assert sum(one.part(part) for part in vars(one) if part.endswith("_s") and part != "wall_s") == (
            pytest.approx(one.wall_s, rel=0.01)
        )


def test_what_a_rank_computes_after_a_pass_is_no_sleep_of_that_step(tmp_path: Path) -> None:
    """A reading of the processor is taken at the end of a pass: an evaluation after it is in the next step's."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    now, cpu = 10**9, 0
    for step in range(12):
        more = 300 * MS * (step in (5, 9))
        cpu += (300 * MS * (step in (6, 10))) + 34 * MS
        for writer in writers:
            writer.step(step, now, now + MS, now + 40 * MS + more)
            writer.backward(step, now + MS, now + 26 * MS, now + 31 * MS)
            writer.bucket(step, now + 25 * MS, now + 26 * MS, now + 31 * MS, step=step)
            writer.usage(step, now + 31 * MS, cpu, 0)
        now += 40 * MS + more
    for writer in writers:
        writer.write(tmp_path)
    view = RunView(open_run(tmp_path))
    after, asleep = (view.cube.ms[name][:, 0] for name in ("compute", "blocked"))
    known = dict(zip(view.cube.step.tolist(), zip(after.tolist(), asleep.tolist(), strict=True), strict=True))
    assert known[5][0] == pytest.approx(334, abs=2) and known[6][0] == pytest.approx(34, abs=2)
    assert max(asleep) < 2


def test_no_ranks_have_no_steps() -> None:
    found = cube([], [])
    assert not len(found.step) and not found.split


def test_a_step_that_one_rank_lacks(tmp_path: Path) -> None:
    """What the other waited for is not known; its own parts are."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for step in range(8):
        for writer in writers:
            if writer.rank and step == 5:
                continue
            begin = 10**9 + 40 * MS * step
            writer.step(step, begin, begin + MS, begin + 40 * MS)
            writer.backward(step, begin + 5 * MS, begin + 30 * MS, begin + 35 * MS)
            writer.bucket(step, begin + 29 * MS, begin + 30 * MS, begin + 35 * MS, step=step)
    for writer in writers:
        writer.write(tmp_path)
    found = RunView(open_run(tmp_path)).cube
    row = found.step.tolist().index(5)
    assert np.isnan([values[row, 1] for values in found.ms.values()]).all()
    assert found.ms["late"][row, 0] == 0.0
    assert sum(values[row, 0] for values in found.ms.values()) == pytest.approx(40.0)
