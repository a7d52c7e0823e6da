"""What a script or DDP does in every step beside reducing gradients: values to log, buffers, a search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.reported import findings
from support.trace_writer import GROUP, MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

STEPS = 30
ARMED = {"find_unused_parameters": 1, "broadcast_buffers": 1, "buffers": 180, "buffer_bytes": 31_000}


def write(
    folder: Path,
    calls: Sequence[tuple[str, float, int]] = (),
    *,
    at: float = 19,
    late: float = 0,
    every: int = 1,
    ddp: dict[str, int] | None = None,
    used: Sequence[dict[str, Any]] = ({}, {}),
    by: str = "",
    callers: Sequence[tuple[str, str, int]] = (),
) -> dict[str, Finding]:
    """Steps of 22 ms: forward from 2 to 8, backward to 18; each of `calls` (name, ms, bytes) begins at `at`.

    Rank 1 comes `late` ms later to them: what the other one waits for it is no cost of theirs. `callers`: of
    all_gather, line, package and calls.
    """
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(STEPS):
            now = 10**9 + 22 * step * MS
            writer.step(step, now, now + MS, now + 22 * MS)
            passes = (now + 8 * MS, now + 9 * MS, now + 15 * MS, now + 18 * MS, now + 2 * MS, now + 8 * MS)
            writer.add(3, times=passes, step=step)
            writer.bucket(step, now + 14 * MS, now + 15 * MS, now + 17 * MS)
            for name, took, size in calls if step % every == 0 else ():
                begin = now + int((at + rank * late) * MS)
                end = now + int((at + late + took) * MS)
                writer.collective(name, begin, end, step=step, bytes=size, dtype=1)
        module = {"index": 0, "name": "Net", "group": f"{GROUP:016x}", "ddp": ddp or {}, **used[rank]}
        writer.sidecar["modules"] = [{**module, "parameters": [{"name": f"layer{i}"} for i in range(5)]}]
        writer.sidecar["recorded_by"] = by
        names = ("group", "operation", "where", "package", "calls", "bytes")
        called = [dict(zip(names, ("0", "all_gather", *one, 8), strict=True)) for one in callers]
        writer.sidecar["training"] = {"callers": called}
        writer.write(folder)
    return {found.kind: found for found in load_report(folder).verdict.findings}


def test_a_loss_that_is_averaged_in_every_step_is_named(tmp_path: Path) -> None:
    found = write(tmp_path, [("gloo:all_reduce", 2.0, 4)], late=0.5)["collective_per_step"]
    assert (found.severity, found.confidence, found.rank) == ("warning", "medium", None)
    assert found.cost_ms == pytest.approx(2.0)
    assert found.evidence["saved_ms"] == pytest.approx(1.96)
    assert found.evidence["calls_per_step"] == 1.0
    assert "dist.all_reduce(total)" in found.advice


TRAINER = ("transformers/trainer.py:1881 in Trainer._run_epoch", "transformers", STEPS)


def test_what_a_framework_s_loop_calls_is_no_value_to_log(tmp_path: Path) -> None:
    found = write(tmp_path, [("gloo:all_gather", 2.0, 8)], callers=[TRAINER])["collective_per_step"]
    assert found.where == TRAINER[0] and TRAINER[0] in found.message
    assert found.message.startswith("the Trainer of transformers calls gloo:all_gather of 8 B in every step")
    assert found.cost_ms == pytest.approx(2.0) and found.evidence["saved_ms"] == 0.0
    assert "leave it there" in found.advice and "dist.all_reduce" not in found.advice


def test_the_script_s_calls_beside_a_framework_s_have_their_own_share(tmp_path: Path) -> None:
    calls = [("gloo:all_gather", 2.0, 8), ("gloo:all_gather", 2.0, 8)]
    write(tmp_path, calls, callers=[TRAINER, ("train.py:30 in compute", "", STEPS)])
    own, theirs = sorted(
        (one for one in load_report(tmp_path).verdict.findings if one.kind == "collective_per_step"),
        key=lambda one: "package" in one.evidence,
    )
    assert (own.where, theirs.where) == ("train.py:30 in compute", TRAINER[0])
    assert own.evidence["calls_per_step"] == theirs.evidence["calls_per_step"] == 1.0
    assert own.cost_ms == theirs.cost_ms == pytest.approx(2.0)
    assert "dist.all_reduce(total)" in own.advice


def test_what_ranks_that_are_late_by_turns_wait_at_it_is_a_cost_of_it(tmp_path: Path) -> None:
    """One comes 8 ms late to the call, the other one then computes 8 ms more: without it, they would be in time."""
    for rank in range(2):
        writer = RankWriter(rank, 2)
        for step in range(STEPS):
            now = 10**9 + 28 * step * MS
            first = rank == step % 2
            ready = now + (17 if first else 25) * MS
            writer.step(step, now, now, now + 28 * MS)
            begins = now + (10 if first else 2) * MS
            writer.collective("gloo:all_reduce", begins, now + 11 * MS, step=step, bytes=4, dtype=1)
            passes = (ready - 4 * MS, ready - 3 * MS, ready, now + 27 * MS, now + 11 * MS, ready - 4 * MS)
            writer.add(3, times=passes, step=step)
            writer.bucket(step, ready, now + 25 * MS, now + 27 * MS)
        writer.write(tmp_path)
    [found] = findings(tmp_path, "collective_per_step")
    assert found.cost_ms == pytest.approx(9.0, abs=0.3) and found.evidence["call_ms"] == pytest.approx(1.0)
    assert "of which ranks that are late by turns wait for each other there" in found.message
    assert found.severity == "warning"


def test_one_that_costs_little_is_a_note_and_the_run_is_healthy(tmp_path: Path) -> None:
    assert write(tmp_path, [("gloo:all_reduce", 0.2, 4)])["collective_per_step"].severity == "note"
    assert load_report(tmp_path).verdict.status == "healthy"


@pytest.mark.parametrize(
    ("name", "size", "at", "every"),
    [
        ("gloo:all_reduce", 400_000, 19, 1),  # a batch's outputs
        ("gloo:all_gather", 260, 4, 1),  # SyncBatchNorm in forward
        ("gloo:all_reduce", 260, 12, 1),  # and in backward
        ("gloo:all_reduce", 4, 19, 10),  # a value that is logged now and then
        ("gloo:send", 4, 19, 1),
    ],
    ids=["large", "in forward", "in backward", "now and then", "between two ranks"],
)
def test_other_calls_serve_no_logging(tmp_path: Path, name: str, size: int, at: float, every: int) -> None:
    assert "collective_per_step" not in write(tmp_path, [(name, 2.0, size)], at=at, every=every)


def test_buffers_that_are_sent_before_each_pass_are_named_with_their_cost(tmp_path: Path) -> None:
    calls = [("gloo:broadcast", 3.0, 30_720), ("gloo:broadcast", 3.0, 280)]
    found = write(tmp_path, calls, at=2.5, late=-1.5, ddp=ARMED, by="lightning")
    one = found["buffer_broadcast"]
    assert (one.severity, one.confidence) == ("warning", "high")
    # From when both have come; both calls go on at the same time here.
    assert one.cost_ms == pytest.approx(2 * 1.5)
    assert one.advice.startswith("Trainer(strategy=DDPStrategy(broadcast_buffers=False))")
    assert "other_collectives" not in found


@pytest.mark.parametrize("ddp", [{}, {**ARMED, "broadcast_buffers": 0}, {**ARMED, "buffer_bytes": 77}])
def test_a_broadcast_of_the_scripts_own_is_not_that_of_buffers(tmp_path: Path, ddp: dict[str, int]) -> None:
    assert "buffer_broadcast" not in write(tmp_path, [("gloo:broadcast", 3.0, 31_000)], at=2.5, ddp=ddp)


def used(unused: int = 0, changed: int = 0, passes: int = 120) -> dict[str, Any]:
    return {
        "used": {
            "passes": passes,
            "passes_with_unused": passes if unused else 0,
            "most_unused": unused,
            "passes_changed": changed,
        },
        "never_used": list(range(unused)),
    }


def test_a_search_that_never_finds_an_unused_parameter_is_needless(tmp_path: Path) -> None:
    """The second all-reduce of the pass is DDP's own, of a number for each of the 5 parameters."""
    found = write(tmp_path, [("gloo:all_reduce", 1.5, 20)], at=16, ddp=ARMED, used=(used(), used()))
    one = found["needless_unused_search"]
    assert (one.severity, one.confidence, one.evidence["passes"]) == ("warning", "high", 120)
    assert one.cost_ms == pytest.approx(1.5)
    assert "every parameter had a gradient in each of 120 passes" in one.message
    assert one.advice.startswith("DistributedDataParallel(model, find_unused_parameters=False)")
    assert "collective_per_step" not in found


def test_a_search_that_finds_the_same_parameters_each_time_needs_to_be_done_once(tmp_path: Path) -> None:
    one = write(tmp_path, ddp=ARMED, used=(used(2), used(2)))["needless_unused_search"]
    assert (one.severity, one.evidence["unused"], one.evidence["search_ms"]) == ("note", 2, None)
    assert "the same 2 parameters (layer0, layer1) had no gradient" in one.message
    assert "static_graph=True" in one.advice


@pytest.mark.parametrize(
    ("ranks", "ddp"),
    [
        ((used(2, changed=30), used(2, changed=30)), ARMED),
        ((used(), used(1)), ARMED),
        ((used(passes=5), used(passes=5)), ARMED),
        ((used(), used()), {**ARMED, "find_unused_parameters": 0}),
        ((used(2), used(2)), {**ARMED, "static_graph": 1}),
        (({}, {}), ARMED),
    ],
    ids=["changes", "one rank's own", "too few", "off", "static already", "not seen"],
)
def test_a_search_that_may_be_needed_is_no_finding(
    tmp_path: Path, ranks: Sequence[dict[str, Any]], ddp: dict[str, int]
) -> None:
    assert "needless_unused_search" not in write(tmp_path, ddp=ddp, used=ranks)
