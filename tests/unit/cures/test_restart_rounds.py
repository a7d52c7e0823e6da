"""When a trial by starts ends, and what it then says, on steps that a test makes up: nothing is started here."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pyddpdiag.cures.options import Cures
from pyddpdiag.integrations import restart_trial
from pyddpdiag.integrations.restart_choices import Setting
from pyddpdiag.integrations.restart_trial import Asked, RestartTrial
from pyddpdiag.integrations.short_start import Measured
from pyddpdiag.model.paired import LOOKS
from pyddpdiag.model.tried import Tried


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the rounds of a trial whose settings' steps, of today's, are given; each start's vary by `spread`."""

    def run(steps: Mapping[str, float], spread: float, seed: int) -> Tried:
        # Another seed than that of the order of starts.
        draw = random.Random(f"steps {seed}")
        times = {"is": 1.0, **steps}

        def started(asked: Sequence[str], folder: Path, *_: object) -> Measured:
            # "...-as-it-is" is today's.
            name = folder.name.rpartition("-")[2]
            return Measured(folder, step_s=0.1 * times[name] * math.exp(draw.gauss(0, spread)), steps=40)

        monkeypatch.setattr(restart_trial, "run_shortly", started)
        monkeypatch.setattr(RestartTrial, "_write", lambda _: None)
        asked = Asked(["train.py"], None, Cures(), (), tmp_path, 1e9, seed)
        going = RestartTrial(asked, lambda _: None)
        going._until_s = math.inf
        going._rows = [restart_trial._Row(Setting(name, Cures(shared_memory="auto"))) for name in steps]
        going._rounds()
        return going.tried()

    return run


@pytest.mark.parametrize(("settings", "spread"), [(1, 0.05), (3, 0.01), (5, 0.15)])
def test_what_is_worth_nothing_is_called_faster_in_5_of_100_trials_at_most(
    trial, settings: int, spread: float
) -> None:
    names = {f"c{number}": 1.0 for number in range(settings)}
    named = sum(bool(trial(names, spread, seed).best) for seed in range(200))
    # At 5%, 20 of 200 or more would come in 1 of 500 series; with 95% intervals at every look there were 16 to 24.
    assert named <= 10


def test_what_saves_is_found(trial) -> None:
    found = [trial({"a": 0.8, "b": 1.0, "c": 1.0}, 0.05, seed) for seed in range(40)]
    assert sum(each.best == "a" for each in found) >= 38
    assert sum(each.best == "a" for each in (trial({"a": 0.5}, 0.05, seed) for seed in range(40))) == 40


def test_a_trial_ends_at_a_look_only(trial) -> None:
    for seed in range(20):
        tried = trial({"a": 0.7, "b": 0.95}, 0.02, seed)
        assert tried.today.rounds in LOOKS and tried.state in ("decided", "time_over")
