"""Lines that take time in each step and belong to no part of it, and what looks like them, from written traces."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.looks import At
from support.trace_writer import MS, RankWriter

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.text import print_text

STEPS, LOOK_MS = 120, 50
MAIN, LOOP = ("train.py", 60, "<module>"), ("train.py", 30, "main")
FORWARD, BACKWARD, STEP = (("train.py", number, "main") for number in (31, 32, 33))
CALL, AVERAGE = ("train.py", 34, "main"), ("train.py", 9, "update_ema")
ENGINE = "torch.autograd.graph._engine_run_backward"
LAYER, CHECK = ("net.py", 12, "Net.forward"), ("net.py", 14, "Net.check")

Extra = Callable[[int, int], float]


def write(
    folder: Path,
    extra_ms: Extra,
    *,
    ranks: int = 2,
    lines: Sequence[At] = (CALL, AVERAGE),
    call: str = "torch._tensor.mul_",
    part: str = "after",
    steps: int = STEPS,
    looks: Callable[[int], bool] = lambda _: True,
    places: Sequence[str] = ("train.py:33",),
    waits: bool = False,
    forward_ms: Callable[[int], float] = lambda _: 8.0,
) -> list[Finding]:
    """Ranks with steps of 42 ms and `extra_ms` of a rank and step at `lines`: before forward, in it, after backward, or
    of the 20 ms that backward takes.

    `looks`: whether a step can be looked at; `places`: where the optimizer steps; `waits`: those that do not have the
    extra time wait for the others in a collective; `forward_ms`: of a rank's forward pass.
    """
    writers = [RankWriter(rank, ranks, capacity=4096) for rank in range(ranks)]
    now, due = 10**9, [10**9 + 7 * MS * (1 + rank) for rank in range(ranks)]
    for step in range(steps):
        extra = [int(extra_ms(rank, step) * MS) for rank in range(ranks)]
        longest = max(extra)
        for rank, writer in enumerate(writers):
            mine = extra[rank]
            # What lies before backward makes the others wait in its all-reduce.
            forward = int(forward_ms(rank) * MS)
            ready = [
                int(forward_ms(each) * MS) + (extra[each] if part in ("before", "forward") else 0)
                for each in range(ranks)
            ]
            met = now + 22 * MS + max(ready)
            spans: list[tuple[int, Sequence[At], str]] = [(2 * MS, (LOOP,), "queue.get")]
            if part == "before":
                spans.append((mine, lines, call))
            begin = now + sum(length for length, *_ in spans)
            if part == "forward":
                spans.append((mine, lines, call))
            spans += [
                (forward, (FORWARD, LAYER), "torch.nn.modules.linear.Linear.forward"),
                (mine if part == "backward" else 0, (BACKWARD, *lines), call),
                (20 * MS - (mine if part == "backward" else 0), (BACKWARD,), ENGINE),
                (met - now - ready[rank] - 18 * MS, (BACKWARD,), ENGINE),
                (8 * MS, (STEP,), "torch._ops.OpOverloadPacket.__call__"),
            ]
            if part == "after":
                spans.append((mine, lines, call))
            spans.append((longest - mine if part == "after" else 0, (CALL,), "torch.distributed.barrier"))
            backward = begin + (mine if part == "forward" else 0) + forward
            over = met + 12 * MS + (longest if part == "after" else 0)
            writer.step(step, now, now + 2 * MS, over)
            writer.add(
                3, times=(backward, backward, backward + 20 * MS, met + 4 * MS, begin, backward), step=step
            )
            writer.bucket(step, backward + 19 * MS, met, met + 4 * MS, step=step)
            if waits:
                writer.collective("gloo:barrier", over - (longest - mine), over, step=step)
            end = now
            for length, at, what in spans:
                end += length
                while due[rank] < end:
                    if looks(step):
                        writer.look(due[rank], (MAIN, *at), what)
                    due[rank] += LOOK_MS * MS
        now = over
    for writer in writers:
        stepped = {"module": 0, "optimizer": "Lion", "steps": steps, "passes": {}, "settings": {}}
        writer.sidecar["training"] = {"optimizers": [{**stepped, "where": list(places)}]}
        writer.write(folder)
    return list(load_report(folder).verdict.findings)


def shown(folder: Path) -> str:
    stream = io.StringIO()
    print_text(load_report(folder), stream)
    return stream.getvalue()


def hot(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.kind == "hot_line"]


@pytest.mark.parametrize("part", ["before", "after"])
def test_a_line_of_all_ranks(tmp_path: Path, part: str) -> None:
    (found,) = write(tmp_path, lambda *_: 14.0, part=part)
    assert (found.kind, found.severity, found.rank) == ("hot_line", "warning", None)
    assert found.where == "train.py:9 in update_ema" and found.evidence["called_at"] == "train.py:34 in main"
    assert found.evidence["share"] == pytest.approx(14 / 56, abs=0.05)
    assert found.cost_ms == pytest.approx(14.0, rel=0.25)
    assert found.since_step is None and "on all ranks" in found.message
    # What is done for many tensors at once already is not to become so.
    assert "_foreach_" in found.advice
    for call in ("torch._foreach_norm", "time.sleep"):
        (found,) = write(tmp_path, lambda *_: 14.0, part=part, call=call)
        assert "(torch._foreach_*)" not in found.advice and "less often" in found.advice
    # It is marked where it is, though backward takes longer.
    marked = [line for line in shown(tmp_path).splitlines() if "update_ema" in line and "◀" in line]
    assert len(marked) == 1 and ("other lines" if part == "before" else "optimizer and after") in marked[0]


HOOK = ("train.py", 12, "clip")


@pytest.mark.parametrize("ms, severity", [(14.0, "warning"), (6.0, "note")])
def test_what_the_script_does_within_backward(tmp_path: Path, ms: float, severity: str) -> None:
    (found,) = hot(write(tmp_path, lambda *_: ms, part="backward", lines=(HOOK,), call="torch.sort"))
    # Less than the rest of backward may be an autograd function that the model needs.
    assert (found.severity, found.rank, found.where) == (severity, None, "train.py:12 in clip")
    assert "code of the script in backward" in found.message


def test_a_forward_pass_that_backward_makes_again_is_none(tmp_path: Path) -> None:
    assert not hot(write(tmp_path, lambda *_: 14.0, part="backward", lines=(FORWARD, LAYER)))


@pytest.mark.parametrize("ms, is_found", [(50.0, True), (14.0, False)])
def test_an_optimizer_that_takes_longer_than_both_passes(tmp_path: Path, ms: float, is_found: bool) -> None:
    found = hot(write(tmp_path, lambda *_: ms, lines=(STEP,), call="torch.optim.adam._single_tensor_adam"))
    assert [(one.severity, one.where) for one in found] == [("warning", "train.py:33 in main")] * is_found
    assert all("fused=True" in one.advice for one in found)


def test_since_when(tmp_path: Path) -> None:
    (found,) = write(tmp_path, lambda _, step: 9.0 * (step >= 60))
    assert found.since_step is not None and 60 <= found.since_step <= 70
    assert found.evidence["share"] == pytest.approx(9 / 51, abs=0.07)


def test_a_line_of_one_rank_costs_what_the_others_wait_and_no_more(tmp_path: Path) -> None:
    findings = write(tmp_path, lambda rank, _: 14.0 * (rank == 1), call="time.sleep", part="before")
    named = [one for one in findings if one.where == "train.py:9 in update_ema"]
    assert [one.rank for one in named] == [1]
    assert sum(one.cost_ms or 0.0 for one in findings) == pytest.approx(14.0, rel=0.1)


def test_one_rank_for_which_nobody_waits_is_a_note(tmp_path: Path) -> None:
    """Each rank has as much to do, at lines of its own."""
    findings = write(
        tmp_path,
        lambda rank, _: 10.0 * (rank == 0),
        part="before",
        forward_ms=lambda rank: 8.0 + 10.0 * (rank == 1),
    )
    assert [(one.kind, one.severity, one.rank) for one in findings] == [("hot_line", "note", 0)]
    assert findings[0].cost_ms == pytest.approx(0.0, abs=0.1)
    assert load_report(tmp_path).verdict.status == "healthy"


def test_a_line_in_forward_that_one_rank_has(tmp_path: Path) -> None:
    findings = write(
        tmp_path, lambda rank, _: 14.0 * (rank == 1), lines=(FORWARD, LAYER, CHECK), part="forward", ranks=3
    )
    assert [one.where for one in findings if one.where] == ["net.py:14 in Net.check"]
    assert [one.rank for one in findings if one.where] == [1]


def test_a_line_in_forward_that_all_ranks_have_is_the_models(tmp_path: Path) -> None:
    assert not write(tmp_path, lambda *_: 14.0, lines=(FORWARD, LAYER, CHECK), part="forward")


INNOCENT: dict[str, dict[str, object]] = {
    "few looks": {"looks": lambda step: step % 15 == 0},
    "a first step": {"extra_ms": lambda _, step: 3000.0 * (step == 0)},
    "two long steps": {"extra_ms": lambda _, step: 900.0 * (step in (40, 80))},
    "torch's optimizer that the script calls": {"lines": (STEP,), "call": "capture_end"},
    "torch's optimizer": {"call": "torch.optim.adamw._single_tensor_adamw", "places": ()},
    "the model once more": {"lines": (CALL, LAYER), "call": "torch.relu"},
    "an evaluation": {"call": "torch.nn.modules.conv.Conv2d.forward"},
    "a loss": {"call": "torch.nn.functional.cross_entropy"},
    "a sum over ranks": {"call": "torch.distributed.distributed_c10d.all_gather_object"},
    "a little": {"extra_ms": lambda *_: 1.5},
}


@pytest.mark.parametrize("what", INNOCENT)
def test_what_only_looks_like_it(tmp_path: Path, what: str) -> None:
    given = {"extra_ms": lambda *_: 14.0, **INNOCENT[what]}
    assert not hot(write(tmp_path, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("extra_ms", [10.0, 60.0])
def test_an_optimizer_of_the_script_is_named(tmp_path: Path, extra_ms: float) -> None:
    """A warning where it takes longer than backward, which is 20 ms and waits 4 for its bucket."""
    (found,) = write(tmp_path, lambda *_: extra_ms, lines=(STEP, ("lion.py", 9, "Lion.step")))
    assert (found.kind, found.where) == ("hot_line", "lion.py:9 in Lion.step")
    assert "that is in the script's own optimizer" in found.message
    assert found.severity == ("warning" if extra_ms > 20 else "note")


def test_a_rank_that_waits_in_a_collective_has_no_such_line(tmp_path: Path) -> None:
    findings = write(tmp_path, lambda rank, _: 14.0 * (rank == 1), waits=True)
    assert {one.rank for one in findings if one.where} <= {1}


@pytest.mark.parametrize(
    "call",
    ["torch.optim.swa_utils.AveragedModel.update_parameters", "torch.nn.parameter.Parameter.__deepcopy__"],
)
def test_averages_and_copies_of_weights_are_no_training(tmp_path: Path, call: str) -> None:
    assert hot(write(tmp_path, lambda *_: 14.0, lines=(CALL,), call=call))


def test_what_a_line_calls_decides_the_advice(tmp_path: Path) -> None:
    (found,) = write(tmp_path, lambda _, __: 10.0, call="torch._dynamo.convert_frame.compile_frame")
    assert "mark_dynamic" in found.advice and "foreach" not in found.advice
