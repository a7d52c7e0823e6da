"""Ranks that save into the same file, and innocent ones that look like them, from written traces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.reported import findings
from support.trace_writer import write_training

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report

MS = 10**6


def saved(*spans_ms: tuple[int, int], **change: Any) -> dict[str, Any]:
    """So many saves of one file."""
    return {
        "file": "5c1e0a9b7f3d2468",
        "name": "last.pt",
        "where": "train.py:63",
        "times": len(spans_ms),
        "spans_ns": [[begin * MS, end * MS] for begin, end in spans_ms],
        **change,
    }


def look(folder: Path, *ranks: Sequence[Mapping[str, Any]], **training: Any) -> list[Finding]:
    for writer, seen in zip(write_training(folder, world_size=len(ranks), **training), ranks, strict=True):
        writer.sidecar["training"] = {"saves": list(seen)}
        writer.write(folder)
    return findings(folder, "same_checkpoint")


def test_ranks_that_save_into_one_file_at_once_are_named_with_the_line(tmp_path: Path) -> None:
    mine, theirs = saved((2100, 2140), (2500, 2540)), saved((2110, 2150), (2600, 2640))
    (found,) = look(tmp_path, [mine], [theirs], [])
    seen = (found.severity, found.confidence, found.rank, found.where)
    assert seen == ("warning", "high", None, "train.py:63")
    assert found.message == (
        "ranks 0, 1 save into the same file last.pt at train.py:63, 2 of 4 times while another rank did: the file may "
        "hold a mixture of what they wrote, and not load."
    )
    assert "get_rank() == 0" in found.advice
    report = load_report(tmp_path)
    assert report.verdict.findings[0] == found and report.verdict.status == "findings"


def test_one_after_the_other_is_a_note(tmp_path: Path) -> None:
    files = [saved((2100, 2140)), saved((2100, 2140), file="77", name="best.pt")]
    (found,) = look(tmp_path, files, [saved((2140, 2180)), saved((2150, 2180), file="77", name="best.pt")])
    assert found.severity == "note"
    assert (
        "2 times in all, one after the other: the last one replaces what the others wrote; and into 1"
        in found.message
    )
    assert load_report(tmp_path).verdict.status == "healthy"


@pytest.mark.parametrize(
    "theirs",
    [
        [],
        [saved((2100, 2140), file="77")],  # a folder of each rank
        [saved((2100, 2140), file="")],  # damaged
    ],
)
def test_ranks_with_a_file_of_their_own_are_innocent(tmp_path: Path, theirs: list[dict[str, Any]]) -> None:
    assert look(tmp_path, [saved((2100, 2140))], theirs) == []


def test_ranks_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    at_once = [saved((2100, 2140))]
    assert look(tmp_path, at_once, at_once, clocks={1: ("another clock", 0, 0)}) == []
