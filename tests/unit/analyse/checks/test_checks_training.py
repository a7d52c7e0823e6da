"""Mistakes in a training, and innocent trainings that look like them, from written traces."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.written_training import STEPS, Weights
from support.written_training import found as _found

from pyddpdiag.model.findings import Finding


def test_ranks_that_train_on_different_data_with_equal_weights_are_innocent(tmp_path: Path) -> None:
    assert _found(tmp_path) == []


def test_weights_that_differ_from_some_step_on(tmp_path: Path) -> None:
    settings = [{"optimizers": [{"module": 0, "optimizer": "SGD", "steps": 64, "passes": {"1": 64},
                 "settings": {"1": f"lr={rate}, momentum=0.9"}}]} for rate in (0.1, 0.1, 0.2)]  # fmt: skip
    found, note = _found(
        tmp_path,
        weights=lambda rank, step: (
            77 + step + (rank == 2 and step > 20),
            3.5 + 0.1 * (rank == 2 and step > 20),
        ),
        training=settings,
    )
    assert (found.kind, found.severity, found.confidence) == ("different_weights", "error", "certain")
    assert (found.rank, found.parameter, found.since_step, found.until_step) == (2, "body.weight", 21, None)
    assert found.evidence["last_equal_step"] == 13
    assert "lr=0.1 on rank 0, lr=0.1 on rank 1, lr=0.2 on rank 2" in found.message
    assert note.kind == "settings_differ" and "momentum" not in note.message


@pytest.mark.parametrize("since", [0, 21])
def test_what_one_rank_alone_did_before_its_weights_were_different(tmp_path: Path, since: int) -> None:
    """It loads them, after a step in which all were equal or before the first one."""

    def looks(
        rank: int, all_ranks: bool = False, times: int = 4
    ) -> list[tuple[int, tuple[str, int, str], str]]:
        begin = 1_000_000_000
        found = [
            (begin + step * 10_000_000 + 5_000_000, ("train.py", 50, "main"), "time.sleep")
            for step in range(STEPS)
        ]
        loading = begin + (18 * 10_000_000 + 6_000_000 if since else -500_000_000)
        loads = [
            (loading + number * 100_000, ("train.py", 33, "restore"), "torch.load") for number in range(times)
        ]
        return sorted(found + (loads if rank == 1 or all_ranks else []))

    def differ(folder: str, apart: float = 1.0, seen: bool = True, **options: Any) -> Finding:
        [found] = _found(
            tmp_path / folder,
            weights=lambda rank, step: (
                77 + step + rank * (step >= since),
                3.5 + apart * rank * (step >= since),
            ),
            looks=lambda rank: looks(rank, **options) if rank == 1 or seen else [],
        )
        return found

    found = differ("one")
    assert found.where == "train.py:33 in restore (torch.load)" and found.rank is None
    assert "In between, rank 1 alone was at train.py:33 in restore (torch.load)." in found.message
    assert found.evidence["where_samples"] == 4
    # What all ranks do explains nothing, nor does what was seen once or twice.
    assert differ("all", all_ranks=True).where is None
    assert differ("hardly", times=2).where is None
    # Nor is it known what a rank did that nobody looked at, or which line rounds otherwise.
    assert differ("not seen", seen=False).where is None
    assert differ("rounding", apart=1e-9).where is None


SEEN = {"after_module_seen_ns": 500_000_000}


@pytest.mark.parametrize(
    ("marks", "where"),
    [
        (
            [SEEN, {**SEEN, "after_module_line": "train.py:33", "after_module_line_ns": 400_000_000}],
            "train.py:33",
        ),
        ([SEEN, {**SEEN, "after_module_line": "train.py:33", "after_module_line_ns": 60_000_000}], None),
        ([{**SEEN, "after_module_line": "train.py:33", "after_module_line_ns": 400_000_000}] * 2, None),
        ([{**SEEN, "after_module_line": 5, "after_module_line_ns": "x"}] * 2, None),
        # Nobody looked at rank 0, which may have done the same.
        ([{}, {**SEEN, "after_module_line": "train.py:33", "after_module_line_ns": 400_000_000}], None),
    ],
)
def test_what_one_rank_alone_did_between_its_module_and_the_first_pass(
    tmp_path: Path, marks: list[dict[str, Any]], where: str | None
) -> None:
    [found] = _found(tmp_path, weights=lambda rank, step: (77 + step + rank, 3.5 + rank), start_up=marks)
    assert (found.kind, found.where) == ("different_weights", where)
    assert ("Before its first pass, rank 1 alone was at train.py:33." in found.message) == (where is not None)


def test_weights_that_differ_in_the_last_bits_are_a_note(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, weights=lambda rank, step: (77 + step + rank, 3.5))
    assert (found.kind, found.severity, found.confidence) == ("different_weights", "note", "low")


def test_weights_that_became_equal_again(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, weights=lambda rank, step: (77 + step + rank * (20 < step < 40), 3.5 + rank))
    assert (found.since_step, found.until_step, found.confidence) == (21, 37, "medium")


def test_weights_that_are_averaged_now_and_then_are_innocent(tmp_path: Path) -> None:
    assert (
        _found(tmp_path, weights=lambda rank, step: (77 + step + rank * (step % 16 == 5), 3.5 + rank)) == []
    )


def _marked(
    value: Callable[[int, int], str], passes: Sequence[int] = range(1, STEPS, 7)
) -> list[dict[str, Any]]:
    """The sidecars' entries of a parameter before steps."""
    return [
        {"marked": {"0": {"parameter": 1, "marks": {str(n): [value(rank, n), 3.5] for n in passes}}}}
        for rank in range(2)
    ]


def test_weights_that_differ_for_a_pass_only_are_innocent(tmp_path: Path) -> None:
    """As in SAM, which moves them by each rank's own gradient and back."""
    moved: Weights = lambda rank, step: (77 + step + rank, 3.5 + rank)  # noqa: E731
    assert _found(tmp_path / "back", weights=moved, training=_marked(lambda _, n: f"{n:x}")) == []
    (found,) = _found(tmp_path / "stay", weights=moved, training=_marked(lambda rank, n: f"{n + rank:x}"))
    assert found.kind == "different_weights"
    for after, findings in ((6, 0), (7, 1)):  # the pass with number 5 was compared
        training = _marked(lambda _, n: f"{n:x}", [after])
        assert len(_found(tmp_path / str(after), weights=moved, training=training)) == findings


def _unreduced(marks: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """The sidecar's entry, with a checksum for each time."""
    entry = {"module": 0, "all_of_it": False, "parameters": ["head"], "count": 1, "first_step": 9, "last_step": 60,
             "times": 7, "marks": {number: [[bits, 1.5]] for number, bits in marks.items()}, **changes}  # fmt: skip
    return {"unreduced": [entry]}


def test_parameters_that_no_bucket_reduces(tmp_path: Path) -> None:
    training = [_unreduced({"1": "a", "2": f"b{rank}", "3": f"c{rank}"}) for rank in range(2)]
    (found,) = _found(tmp_path, training=training)
    assert (found.kind, found.severity, found.confidence) == ("unreduced_parameters", "error", "certain")
    assert (found.parameter, found.since_step) == ("head", 9) and "in no bucket" in found.message


def test_parameters_of_no_recorded_module_are_a_warning(tmp_path: Path) -> None:
    training = [_unreduced({"2": f"b{rank}"}, module=None) for rank in range(2)]
    (found,) = _found(tmp_path, training=training)
    assert (found.severity, found.confidence) == ("warning", "medium")


def _alone(marks: Mapping[str, str], trail: str = "") -> dict[str, Any]:
    return _unreduced(marks, module=None, bytes=4096, where="train.py:31", trail=trail)


APART = [_alone({"1": "a", "2": f"b{rank}", "3": f"c{rank}"}) for rank in range(2)]


def test_ranks_that_train_alone(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=APART, buckets=False, exchanged=[("gloo:all_reduce", 4)] * 9)
    assert (found.kind, found.severity, found.where) == ("not_reduced", "error", "train.py:31")
    assert "1 parameter of 4.10 kB" in found.message and "exchanged 36 B" in found.message


@pytest.mark.parametrize(
    ("training", "exchanged"),
    [
        (APART, [("gloo:all_reduce", 2048)] * 2),
        (APART, [("gloo:send", 64)]),
        ([*APART[:1], {}], []),  # one trains, the other looks on
        ([_alone({"2": "b", "3": "c"})] * 2, []),
        ([_alone({"2": f"b{rank}", "3": "c", "4": f"d{rank}"}) for rank in range(2)], []),
        ([_alone({"2": f"b{rank}"}, f"{5:08x}{6 + rank:08x}{9:08x}") for rank in range(2)], []),
    ],
)
def test_ranks_that_share_a_model_without_buckets_are_innocent(
    tmp_path: Path, training: list[dict[str, Any]], exchanged: list[tuple[str, int]]
) -> None:
    assert _found(tmp_path, training=training, buckets=False, exchanged=exchanged) == []


def test_an_average_between_the_marks_is_innocent(tmp_path: Path) -> None:
    marks = [{"2": f"b{rank}", "9": f"c{rank}"} for rank in range(2)]
    for third, findings in ((0, 0), (1, 1)):
        training = [
            _unreduced(marks[rank], trail=f"{5:08x}{6 + rank:08x}{9 + third * rank:08x}") for rank in range(2)
        ]
        assert len(_found(tmp_path / str(findings), training=training)) == findings


def test_parameters_of_no_recorded_module_that_nobody_can_compare_are_innocent(tmp_path: Path) -> None:
    training = [_unreduced({}, module=None)] * 2
    assert _found(tmp_path, training=training) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"marks": {"2": [["a", float("nan")]], "3": [["b", 10**400]]}},
        {"marks": {"2": [["a", 1.5], ["b", 1.5]], "3": [["a", 1.5], ["c", 1.5]]}},  # of more than there are
        {"marks": {"2": "xy", "3": [{}], "4": None}},
        {"trail": 7},
        {"trail": ["a", None]},
    ],
)
def test_any_entry_of_a_sidecar_is_read(tmp_path: Path, entry: dict[str, Any]) -> None:
    hostile = {"in_no_sync": {"0": 5}, "fresh": {"x": [1], "0": "ab"}, "marked": {"0": [1], "1": None}}
    unreduced = _unreduced({})["unreduced"][0]
    training = [{"unreduced": [{**unreduced, **entry}], **hostile}] * 2
    training[1] = json.loads(json.dumps(training[1]).replace('"b"', '"d"'))
    assert all(one.kind == "unreduced_parameters" for one in _found(tmp_path, training=training))


@pytest.mark.parametrize(
    "marks",
    [
        [{"1": "a", "2": "b", "3": "c"}] * 2,  # the script averages them itself
        [{"2": "b0", "3": "c", "4": "d0"}, {"2": "b1", "3": "c", "4": "d1"}],  # now and then
    ],
)
def test_parameters_that_the_script_averages_are_innocent(
    tmp_path: Path, marks: list[dict[str, str]]
) -> None:
    assert _found(tmp_path, training=[_unreduced(one) for one in marks]) == []


def _steps(passes: Mapping[str, int], looks: tuple[int, int] = (0, 0)) -> list[dict[str, Any]]:
    entry = {"module": 0, "optimizer": "SGD", "steps": sum(passes.values()), "passes": passes, "settings": {}}
    return [{"optimizers": [entry], "in_no_sync": {"0": list(looks)}}] * 2


def test_accumulation_without_no_sync(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=_steps({"4": 15, "3": 1}))
    assert found.kind == "missing_no_sync" and found.evidence["passes_per_optimizer_step"] == 4
    assert "4 times for each step" in found.message and "backward only" not in found.message


@pytest.mark.parametrize("dropped", [11, 1])
def test_a_pass_whose_gradients_are_cleared_unused(tmp_path: Path, dropped: int) -> None:
    """As that of a generator, through its discriminator."""
    clearing = {"0": {"steps": 12, "kept": 0, "lost": 0, "dropped": dropped}}
    (found,) = _found(tmp_path, training=[{**one, "clearing": clearing} for one in _steps({"3": 32})])
    assert ("cleared before any optimizer uses them" in found.message) == (dropped > 6)
    assert ("ddp.module(x)" in found.advice) == (dropped > 6)


def test_no_sync_around_backward_only(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=_steps({"2": 32}, looks=(10, 5)))
    assert found.kind == "missing_no_sync" and "around backward only" in found.message


def test_passes_whose_gradients_do_not_accumulate_are_innocent(tmp_path: Path) -> None:
    for fresh, findings in ((32, 0), (16, 1)):
        training = [{**one, "fresh": {"0": [32, fresh]}} for one in _steps({"2": 32})]
        assert len(_found(tmp_path / str(fresh), training=training)) == findings


@pytest.mark.parametrize("passes", [{"1": 16}, {"1": 14, "2": 2}, {"0": 5, "1": 11}, {"2": 3}])
def test_steps_after_one_pass_are_innocent(tmp_path: Path, passes: dict[str, int]) -> None:
    """A gradient scaler leaves out steps now and then."""
    assert _found(tmp_path, training=_steps(passes)) == []


def _loader(**changes: Any) -> dict[str, Any]:
    entry = {"sampler": "DistributedSampler", "distributed": True, "shuffle": True, "length": 100, "batch_size": 10,
             "epochs": 3, "distinct": 1, **changes}  # fmt: skip
    return {"loaders": [entry]}


def test_a_sampler_without_set_epoch(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=[_loader()] * 2)
    assert (found.kind, found.severity, found.evidence["epochs"]) == ("epoch_not_set", "warning", 3)


@pytest.mark.parametrize(
    "changes", [{"shuffle": False}, {"epochs": 1}, {"distinct": 3}, {"distributed": False}, {"distinct": 0}]
)
def test_loaders_that_need_no_set_epoch(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert _found(tmp_path, training=[_loader(**changes)] * 2) == []


def test_epochs_and_batches_of_different_size_are_a_note(tmp_path: Path) -> None:
    (found,) = _found(tmp_path, training=[_loader(distinct=3), _loader(distinct=3, length=90, batch_size=9)])
    assert found.kind == "settings_differ"
    assert "samples of an epoch is 100 on rank 0, 90 on rank 1; batch size is 10" in found.message
