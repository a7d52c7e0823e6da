"""Why a rank computes for longer, as far as its batches and settings tell."""

from pathlib import Path

import pytest
from support.processor_use import NOTHING, Extra, write
from support.reported import findings


def _batches(*values: int) -> dict[str, object]:
    """A sidecar's batches of so many values, by their passes from 1 on."""
    return {"batch_values": {"0": {str(at): value for at, value in enumerate(values, 1)}}}


def test_a_late_rank_with_larger_batches_is_told_so(tmp_path: Path) -> None:
    small, large = _batches(*range(900, 912)), _batches(*range(2_700, 2_712))
    write(tmp_path, [NOTHING, Extra(cpu=40), NOTHING], training=[small, large, small])
    (found,) = findings(tmp_path)
    assert "Its batches hold 2,706 values, those of the others 906." in found.message
    assert "of about the same size" in found.advice and found.evidence["batches"] == 12


@pytest.mark.parametrize(
    ("mine", "cause"),
    [
        (_batches(*[900, 1000] * 6), "compute"),  # larger now and then
        (_batches(*[930] * 12), "compute"),
        (_batches(*[1_100] * 12), "compute"),  # by far too little for that
        (_batches(*[0] * 12), "compute"),
        ({}, "compute"),
        (_batches(*[2_700] * 12), "blocked"),  # which does not make it sleep
    ],
)
def test_batches_that_are_not_surely_larger_explain_nothing(
    tmp_path: Path, mine: dict[str, object], cause: str
) -> None:
    extra = Extra(cpu=40) if cause == "compute" else Extra(sleep=40)
    write(tmp_path, [NOTHING, extra], training=[_batches(*[900] * 12), mine])
    (found,) = findings(tmp_path)
    assert found.cause == cause and "batches hold" not in found.message


def test_a_setting_that_only_the_late_rank_has_is_named_first(tmp_path: Path) -> None:
    write(tmp_path, [NOTHING, Extra(cpu=40)], debugging=[{}, {"profiler": 5}])
    found = findings(tmp_path)[0]
    assert found.kind == "late_rank" and "Only there torch's profiler is on." in found.message
    assert found.advice.startswith("Profile a few steps")


@pytest.mark.parametrize(("workers", "named"), [(2, True), (0, False)])
def test_workers_that_take_the_cores_are_named(tmp_path: Path, workers: int, named: bool) -> None:
    loader = {
        "sampler": "RandomSampler",
        "distributed": False,
        "workers": workers,
        "epochs": 2,
        "length": 320,
    }
    training = [{"loaders": [loader]}] * 2
    write(tmp_path, [Extra(delay=200), Extra(delay=200)], cores=2, training=training)
    found = next(one for one in findings(tmp_path) if one.kind == "core_contention")
    assert ("the loaders' 4 workers take cores, too" in found.message) == named
    assert found.advice.startswith("Give the loaders fewer workers") == named


@pytest.mark.parametrize(("steps", "severity"), [(range(8, 32), "note"), (range(8, 72), "warning")])
def test_a_rank_that_was_late_once_and_cost_little_is_a_note(
    tmp_path: Path, steps: range, severity: str
) -> None:
    """12 ms of 45 in 24 of 240 steps are 3% of the run; in 64 steps, 7%."""
    write(tmp_path, [NOTHING, Extra(cpu=12, steps=steps)], steps=240)
    (found,) = [one for one in findings(tmp_path) if one.kind == "late_rank"]
    assert found.severity == severity


def test_ranks_that_are_late_by_turns_have_batches_of_different_size(tmp_path: Path) -> None:
    late = [Extra(cpu=25, steps=range(which, 40, 2)) for which in range(2)]
    sizes = [_batches(*[1_000, 2_000] * 6), _batches(*[2_000, 1_000] * 6)]
    write(tmp_path, late, training=sizes)
    (found,) = findings(tmp_path)
    assert (found.kind, found.confidence) == ("uneven_ranks", "medium")
    assert "batches hold 1,000 to 2,000 values" in found.message and "about the same size" in found.advice
    write(tmp_path / "even", late, training=[_batches(*[1_000, 2_000] * 6)] * 2)
    (found,) = findings(tmp_path / "even")
    assert found.kind == "uneven_ranks" and "batches hold" not in found.message
