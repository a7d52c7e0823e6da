"""No trial and no exact cure changes a training: trainings drawn by seeds, gradients and weights bit by bit.

The long form is `python3 dev.py unchanged`; PYDDPDIAG_SCENARIOS is how many trainings it draws for each number of
ranks, PYDDPDIAG_SEED the first seed.
"""

import os
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from support.ranks import run_ranks
from support.scenario import Scenario, draw
from support.scenario_training import Training, Watch, hurry
from support.trial_job import noted, short_blocks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.model.tried import TODAY, Tried

LONG = int(os.environ.get("PYDDPDIAG_SCENARIOS", "0"))
FIRST = int(os.environ.get("PYDDPDIAG_SEED", "1"))
NUMBERS = {2: LONG or 4, 3: LONG or 1, 4: LONG or 1}
TOGETHER = 8
"""Trainings of one start of the ranks."""

FROZEN = "a body that is frozen for most of the trial"
JUDGE = "a judge that is frozen while the other trains"
HELD = "gradients that the script holds"
JOINED = "join() with a rank without batches"
NAMED = {
    FROZEN: Scenario(1, 2, 24, unused=True, frozen=(2, 16), cures=("buckets", "views")),
    "frozen when the trial begins": Scenario(
        2, 2, 24, unused=True, frozen=(0, 14), cures=("buckets",), blocks=6
    ),
    JUDGE: Scenario(3, 2, 24, adversarial=True, cures=("views", "shared-memory")),
    "a judge that is frozen first": Scenario(4, 2, 24, adversarial=True, frozen_first=True, cures=("views",)),
    JOINED: Scenario(5, 2, 20, joined=10, without=1, cures=("buckets", "views")),
    HELD: Scenario(6, 2, 20, held=True, clearing="zero", cures=("views", "buckets")),
    "passes without an end": Scenario(7, 2, 20, looks=(5, 6, 7), evaluations=(9, 12), cures=("buckets",)),
    "an error in a backward pass": Scenario(8, 2, 20, faults=((12, "backward"),), cures=("buckets", "views")),
    "compiled, and within join()": Scenario(10, 2, 10, compiled=True, joined=5, cures=("buckets",)),
    "another type in the middle": Scenario(9, 2, 20, cast=12, cures=("buckets", "shared-memory")),
}


def _watched(
    folder: Path, trial: pyddpdiag.Trial | None, opened: list[pyddpdiag.Recorder], **path: Any
) -> Watch:
    def watch(_: DistributedDataParallel, given: Any) -> None:
        recorder = pyddpdiag.Recorder(folder, capacity_mb=1, lines=False, sample_connections=False)
        recorder.attach(given, trial=trial, **path)
        opened.append(recorder)

    return watch


def _recorded(scenario: Scenario, rank: int, folder: Path, **path: Any) -> list[str]:
    trial, opened = path.pop("trial", None), []
    options = path.pop("options", {})
    watch = _watched(folder, trial, opened, **path)
    seen = Training(scenario, rank, watch, **options).run()
    for recorder in opened:
        recorder.close()
    return seen


def _builtin(ddp: DistributedDataParallel, _: Any) -> None:
    hooks: Any = dist
    ddp._register_builtin_comm_hook(hooks.BuiltinCommHookType.ALLREDUCE)


CURES: dict[str, dict[str, Any]] = {
    "shared memory": {"shared_memory": "require"},
    "views": {"options": {"gradient_as_bucket_view": True}},
    "buckets": {"options": {"bucket_cap_mb": 0.001}},
}


def _all_ways(
    rank: int, ranks: int, scenarios: list[Scenario], folder: str, cured: int
) -> list[tuple[Any, ...]]:
    """Of each scenario: what was seen in the training as it is, what under a trial, the trial, and what with cures.

    `cured`: so many of the scenarios are trained with cures too, and with torch's builtin hook.
    """
    found = []
    short_blocks()
    for number, scenario in enumerate(scenarios):
        place = Path(folder, f"{scenario.seed}")
        plain = Training(scenario, rank).run()
        cures = {}
        if number < cured:
            cures["hook"] = Training(scenario, rank, _builtin).run()
            for name, how in CURES.items():
                if not (name == "views" and scenario.held):
                    cures[name] = _recorded(scenario, rank, place / name, **how)
        hurry(scenario)
        trial = pyddpdiag.Trial(scenario.cures, minutes=60)
        tried = _recorded(scenario, rank, place / "tried", trial=trial)
        found.append((tried, noted(place / "tried" / f"rank_{rank}.ddptrace"), plain, cures))
    return found


def _check(scenario: Scenario, answers: list[tuple[Any, ...]]) -> list[Tried]:
    for rank, (tried, _, plain, cures) in enumerate(answers):
        pairs = zip(plain, tried, strict=False)
        first = next((f"{one} | {other}" for one, other in pairs if one != other), "")
        assert tried == plain, f"rank {rank}: {first}\n{scenario}"
        # docs/cures.md says which bits each cure has at which number of ranks.
        if cures:
            assert cures["shared memory"] == (cures["hook"] if scenario.ranks == 3 else plain), scenario
        if scenario.ranks == 2:
            assert all(seen == plain for seen in cures.values()), scenario
    return [trial for _, trial, *_ in answers]


@pytest.mark.parametrize("ranks", NUMBERS)
def test_no_trial_and_no_exact_cure_changes_a_training(tmp_path: Path, ranks: int) -> None:
    seeds = range(FIRST, FIRST + NUMBERS[ranks])
    for first in range(0, len(seeds), TOGETHER):
        scenarios = [draw(seed, ranks, compiles=bool(LONG)) for seed in seeds[first : first + TOGETHER]]
        folder = tmp_path / f"{first}"
        folder.mkdir()
        print(*scenarios, sep="\n")
        cured = len(scenarios) if LONG else 1
        answers = run_ranks(_all_ways, ranks, folder, scenarios, str(folder), cured, timeout_s=380)
        for scenario, *each in zip(scenarios, *answers, strict=True):
            _check(scenario, each)


def test_no_trial_changes_what_once_was_changed(tmp_path: Path) -> None:
    scenarios = list(NAMED.values())
    answers = run_ranks(_all_ways, 2, tmp_path, scenarios, str(tmp_path), 0, timeout_s=380)
    trials = {}
    for (name, scenario), *each in zip(NAMED.items(), *answers, strict=True):
        trials[name], other = _check(scenario, each)
        assert other == trials[name], "the ranks decide alike"
    for name in (
        "a body that is frozen for most of the trial",
        "a judge that is frozen while the other trains",
    ):
        assert all(cure.blocks and not cure.left for cure in trials[name].cures), name
    held = {cure.name: cure for cure in trials[HELD].cures}
    assert "the script holds the gradient" in held["views"].left
    joined = trials[JOINED]
    assert (joined.state, joined.now, joined.kept) == ("failed", TODAY, TODAY) and "join()" in joined.why
