"""Optimizers, schedulers and averages of the script's own, right and wrong, from written traces."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.written_training import STEPS, found

Training = list[dict[str, Any]]


def _stepped(module: int | None = 0, **changes: Any) -> Training:
    entry = {"module": module, "optimizer": "SGD", "steps": STEPS, "passes": {"1": STEPS}, "settings": {"1": "lr=0.1"},
             "where": ["train.py:38"], "looks": 12, "idle": 0, **changes}  # fmt: skip
    return [{"optimizers": [entry]}] * 2


@pytest.mark.parametrize(
    ("training", "says"),
    [
        (_stepped(None), "it trains another model"),
        (_stepped(idle=12), "had no gradient in any of the steps"),
        (_stepped(zero_since=0), "learning rate was 0 all the time"),
        (_stepped(), "SGD stepped 64 times at train.py:38."),
    ],
)
def test_weights_that_never_change(tmp_path: Path, training: Training, says: str) -> None:
    (one,) = found(tmp_path, weights=lambda _, step: (77, 3.5), training=training)
    assert (one.kind, one.severity, one.confidence) == ("weights_unchanged", "error", "high")
    assert says in one.message and one.where == "train.py:38"


def test_weights_that_never_change_as_the_loss_does_not_depend_on_them(tmp_path: Path) -> None:
    """As in a public tutorial: cross entropy of a single output."""
    (one,) = found(tmp_path, weights=lambda _, step: (77, 3.5), gradient=lambda *_: 0.0, training=_stepped())
    assert "All their gradients were 0, in each of 4 steps that were looked at" in one.message
    assert "CrossEntropyLoss needs an output for each class" in one.advice


@pytest.mark.parametrize(
    ("weights", "training"),
    [
        (lambda _, step: (77, 3.5), [{}, {}]),  # a benchmark without an optimizer
        (lambda _, step: (77, 3.5), _stepped(steps=3)),
        (lambda _, step: (77 + (step > 60), 3.5), _stepped(None)),  # an optimizer that is none of torch's
    ],
)
def test_weights_that_change_or_should_not(
    tmp_path: Path, weights: Callable[[int, int], tuple[int, float]], training: Training
) -> None:
    assert found(tmp_path, weights=weights, training=training) == []


def test_a_schedule_that_steps_for_each_rank(tmp_path: Path) -> None:
    training = _stepped(zero_since=32, scheduler="LambdaLR", scheduler_rate=2.0)
    (one,) = found(tmp_path, training=training)
    assert (one.kind, one.severity, one.where) == ("schedule_ended", "error", "train.py:38")
    assert "0 after step 32 of 64 of SGD: 50% of them change nothing" in one.message
    assert "LambdaLR makes 2 steps for each of the optimizer's, one for each rank" in one.message


def test_a_schedule_that_was_made_too_short(tmp_path: Path) -> None:
    (one,) = found(tmp_path, training=_stepped(zero_since=32, scheduler="LambdaLR", scheduler_rate=1.0))
    assert (
        one.severity == "warning"
        and "makes" not in one.message
        and "optimizer steps of the whole" in one.advice
    )


@pytest.mark.parametrize("zero_since", [None, 62, 64])
def test_a_schedule_that_ends_with_the_run(tmp_path: Path, zero_since: int | None) -> None:
    assert found(tmp_path, training=_stepped(zero_since=zero_since)) == []


def test_a_schedule_that_ends_at_a_small_rate(tmp_path: Path) -> None:
    """By how far it was, not by the rate."""
    one_cycle = {"scheduler": "OneCycleLR", "scheduled": 64, "planned": 64, "planned_since": 32}
    (one,) = found(tmp_path / "twice", training=_stepped(scheduler_rate=2.0, **one_cycle))
    assert (one.kind, one.severity, one.where) == ("schedule_ended", "error", "train.py:38")
    assert "made for 64 steps, has ended after step 32 of 64 of SGD: 50% of them come after it" in one.message
    assert "OneCycleLR makes 2 steps for each of the optimizer's, one for each rank" in one.message
    # A cosine that goes on beyond its end, step by step; and one that is done with the run.
    for name, changes in (
        ("once", {"scheduler_rate": 1.0}),
        ("done", {"scheduler_rate": 2.0, "planned_since": 64}),
    ):
        assert found(tmp_path / name, training=_stepped(**{**one_cycle, **changes})) == []


@pytest.mark.parametrize(
    ("planned", "made", "kinds"), [(800, 399, 1), (800, 402, 1), (400, 399, 0), (800, 300, 0), (60, 29, 0)]
)
def test_a_schedule_for_the_steps_of_all_ranks(tmp_path: Path, planned: int, made: int, kinds: int) -> None:
    """Of which each of two makes half. Another part is another reason to stop; a short one may be by chance."""
    training = _stepped(scheduler="OneCycleLR", scheduler_rate=1.0, scheduled=made, planned=planned)
    for each in training:
        each["loaders"] = [{"sampler": "DistributedSampler", "distributed": True, "epochs": 3, "distinct": 3}]
    some = found(tmp_path, training=training)
    assert [one.kind for one in some] == ["schedule_ended"] * kinds
    for one in some:
        assert (
            f"made for 800 steps, as many as all 2 ranks make together, and each rank made {made + 1}"
            in one.message
        )
        assert (one.severity, one.confidence) == ("warning", "medium") and "batches of a rank" in one.advice


@pytest.mark.parametrize(
    ("kept", "lost", "says"),
    [
        (12, 0, "Call optimizer.zero_grad() in each step"),
        (0, 11, "only after optimizer.step()"),
        (6, 0, ""),
        (1, 6, ""),
    ],
)
def test_gradients_that_are_cleared_at_the_wrong_moment(
    tmp_path: Path, kept: int, lost: int, says: str
) -> None:
    training = [
        {**each, "clearing": {"0": {"steps": 12, "kept": kept, "lost": lost, "dropped": 0}}}
        for each in _stepped()
    ]
    some = found(tmp_path, training=training)
    assert [one.kind for one in some] == ["gradients_cleared"] * bool(says)
    for one in some:
        assert (one.severity, one.where) == ("warning", "train.py:38") and says in one.advice
        assert f"in {max(kept, lost)} of the 12 steps that were looked at" in one.message


@pytest.mark.parametrize(
    ("sampler", "picked", "kinds"),
    [
        ({}, (7, 8), ["different_splits"]),
        ({}, (7, 7), []),
        ({}, (None, None), []),
        ({"distributed": False, "replicas": None}, (7, 8), []),  # each rank's own data, which nobody divides
        ({"replicas": 1}, (7, 8), []),
    ],
)
def test_ranks_that_split_the_data_each_in_its_way(
    tmp_path: Path, sampler: Mapping[str, Any], picked: tuple[int | None, ...], kinds: list[str]
) -> None:
    loader = {"sampler": "DistributedSampler", "distributed": True, "replicas": 2, "shuffle": False, "length": 50,
              "batch_size": 8, "epochs": 1, "distinct": 1, **sampler}  # fmt: skip
    training = [{"loaders": [{**loader, "rank": rank, "picked": each}]} for rank, each in enumerate(picked)]
    some = found(tmp_path, training=training)
    assert [one.kind for one in some] == kinds
    assert all("random_split(data, lengths, generator=" in one.advice for one in some)


def test_a_part_of_the_module_that_another_optimizer_trains(tmp_path: Path) -> None:
    frozen, head = _stepped(zero_since=32), _stepped()
    both = [{"optimizers": [*frozen[rank]["optimizers"], *head[rank]["optimizers"]]} for rank in range(2)]
    assert found(tmp_path, training=both) == []


def test_weights_that_differ_by_a_state_that_one_rank_loaded(tmp_path: Path) -> None:
    training = [
        {**_stepped(settings={"1": f"lr=0.1, state={state}", "2": "lr=0.1"})[0]}
        for state in ("of step 100", "none")
    ]
    one, note = found(tmp_path, weights=lambda rank, step: (77 + step + rank, 3.5 + rank), training=training)
    assert (
        one.kind == "different_weights" and "state=of step 100 on rank 0, state=none on rank 1" in one.message
    )
    assert (
        one.advice.startswith("Load the optimizer's state on every rank") and note.kind == "settings_differ"
    )


def test_an_optimizer_of_something_else_on_one_rank_is_no_reason_for_weights_that_differ(
    tmp_path: Path,
) -> None:
    """As of a model that rank 0 trains first, and whose checkpoint it alone then loads."""
    training = [_stepped(settings={"1": f"lr=0.1, state={state}"})[0] for state in ("loaded", "none")]
    training[0]["optimizers"] += _stepped(None, steps=20)[0]["optimizers"]
    one, note = found(tmp_path, weights=lambda rank, step: (77 + step + rank, 3.5 + rank), training=training)
    assert one.kind == "different_weights" and note.kind == "settings_differ"
    assert (
        "state=loaded on rank 0, state=none on rank 1" in one.message
        and "numbers of steps" not in one.message
    )
    assert "where rank 0 calls it, too. Load checkpoints and change weights before Distributed" in one.advice


def _again(**changes: Any) -> dict[str, Any]:
    entry = {
        "looks": 11,
        "times": 11,
        "calls": 26,
        "bytes": 1200,
        "op": "SUM",
        "where": "train.py:35",
        **changes,
    }
    return {"averaged_again": {"0": entry}}


def test_gradients_that_are_averaged_by_hand_as_well(tmp_path: Path) -> None:
    (one,) = found(tmp_path, training=[_again()] * 2)
    assert (one.kind, one.severity, one.where) == ("averaged_twice", "warning", "train.py:35")
    assert (
        "26 all-reduces of 1.20 kB a step" in one.message and "has averaged them in backward" in one.message
    )
    assert "Unless the script divides the sums" in one.message


@pytest.mark.parametrize("again", [{"times": 1}, {"times": "x"}, {"op": None}])
def test_a_single_comparison_is_none(tmp_path: Path, again: Mapping[str, Any]) -> None:
    assert found(tmp_path, training=[_again(**again)] * 2) == []


def test_passes_that_nobody_reduced_after_one_that_was(tmp_path: Path) -> None:
    training = [
        {"unreduced": [{"module": 0, "all_of_it": True, "reduced_before": True, "parameters": ["head"], "count": 1,
                        "first_step": 9, "last_step": 60, "times": 7,
                        "marks": {"2": [[f"b{rank}", 1.5]], "3": [[f"c{rank}", 1.5]]}}]}
        for rank in range(2)
    ]  # fmt: skip
    (one,) = found(tmp_path, training=training)
    assert one.kind == "unreduced_parameters" and "came after the one that was averaged" in one.message
    assert one.advice.startswith("Leave only the last pass before optimizer.step() outside")
