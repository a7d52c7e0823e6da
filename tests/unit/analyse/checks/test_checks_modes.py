"""Modules that are trained in evaluation mode, and innocent ones, from written traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.reported import findings
from support.trace_writer import write_training

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

TRAINED = {"since_step": None, "before": 17, "dropouts": 0, "norms": 0}


def mode(**change: Any) -> dict[str, Any]:
    """A module that came to evaluation mode at step 34."""
    seen = {"module": 0, "looks": 17, "before": 8, "since_step": 34, "dropouts": 12, "norms": 0}
    return {**seen, **change}


def look(folder: Path, *ranks: Any) -> list[Finding]:
    for writer, one in zip(write_training(folder, world_size=len(ranks)), ranks, strict=True):
        writer.sidecar["training"] = {"modes": one if isinstance(one, list) else [] if one is None else [one]}
        writer.write(folder)
    return findings(folder, "left_in_eval")


def test_a_module_that_nobody_brought_back_is_found_with_its_first_step(tmp_path: Path) -> None:
    (found,) = look(tmp_path, mode(), mode(norms=1))
    assert (found.severity, found.confidence, found.rank) == ("warning", "high", None)
    assert (found.since_step, found.cost_ms) == (34, None)
    assert found.message == (
        "ranks 0, 1 train in evaluation mode since step 34 at the latest: 12 dropout layers drop nothing, and 1 "
        "normalisation layer uses its running statistics and no longer the batch's."
    )
    assert found.advice.startswith("model.train() at the start of each epoch")
    assert load_report(tmp_path).verdict.findings[0] == found


def test_one_rank_that_was_left_is_named(tmp_path: Path) -> None:
    (found,) = look(tmp_path, mode(**TRAINED), mode(), mode(**TRAINED))
    assert (found.severity, found.rank) == ("warning", 1)
    assert found.message.startswith("rank 1 trains in evaluation mode since step 34 at the latest")
    # One that never was in training mode, beside others that are, is no matter of taste.
    (found,) = look(tmp_path / "never", mode(**TRAINED), mode(before=0, since_step=0))
    assert (found.severity, found.confidence, found.rank) == ("warning", "high", 1)
    # Of a rank whose optimizer nobody saw, nothing is known.
    (found,) = look(tmp_path / "unknown", mode(before=0, since_step=0), None)
    assert (found.severity, found.rank) == ("note", None)


def test_each_module_is_compared_with_itself_on_other_ranks(tmp_path: Path) -> None:
    """Beside one that is trained, another one keeps its statistics on all ranks: that may be meant."""
    never = [mode(module=0, **TRAINED), mode(module=1, before=0, since_step=0)]
    (found,) = look(tmp_path, never, never)
    assert (found.severity, found.confidence, found.rank) == ("note", "medium", None)


def test_a_module_that_never_was_in_training_mode_may_be_meant_so(tmp_path: Path) -> None:
    never = mode(before=0, since_step=0, dropouts=1)
    (found,) = look(tmp_path, never, never)
    assert (found.severity, found.confidence) == ("note", "medium")
    assert "from the first step on: 1 dropout layer drops nothing" in found.message
    assert "from_pretrained" in found.advice


@pytest.mark.parametrize(
    "change",
    [
        *[TRAINED, {"dropouts": 0}, {"looks": 10}, {"looks": -1}, {"since_step": "34"}],
        *[{"since_step": None}, {"norms": None}],
    ],
    ids=["training", "no such layer", "may be chance", "no looks", "no step", "since no step", "no number"],
)
def test_no_finding(tmp_path: Path, change: dict[str, Any]) -> None:
    assert look(tmp_path, mode(**change), mode(**change)) == []
