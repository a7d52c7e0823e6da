"""What a report makes of gradient records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support.trace_writer import RankWriter

from pyddpdiag.analyse.summary import analyse
from pyddpdiag.model import Finding
from pyddpdiag.trace.run import open_run

GRADIENT = 7


def _findings(folder: Path, *ranks: dict[str, int], steps: int = 6, at: int = 3) -> list[Finding]:
    """Findings about a run whose ranks' gradient records differ from healthy ones in step `at` on."""
    for number, changes in enumerate(ranks):
        writer = RankWriter(number, len(ranks))
        for step in range(steps):
            start = 1_000_000_000 + step * 100_000_000
            writer.bucket(step, start, start + 1_000, start + 5_000_000)
            values = {"non_finite": 0, "first": -1, "parameter": -1, "checksum": 77 + step}
            if step >= at:
                values.update(changes)
            bits = int(np.float64(2.5).view(np.int64))
            writer.add(
                GRADIENT,
                times=(
                    bits,
                    bits,
                    values["non_finite"],
                    values["first"],
                    values["parameter"],
                    values["checksum"],
                    1000,
                ),
                step=step,
                sequence=step,
                group=writer.records[-1]["group"],
                reference=7,
                dtype=1,
            )
        writer.sidecar["modules"] = [
            {"index": 0, "name": "Net", "group": "0", "bucket_cap_mb": 25.0,
             "parameters": [{"name": "body.weight", "shape": [2], "dtype": "float32"}]}
        ]  # fmt: skip
        writer.write(folder)
    report = analyse(open_run(folder))
    return [f for f in report.verdict.findings if f.kind in ("non_finite_gradient", "different_sums")]


def test_healthy_gradients_are_no_finding(tmp_path: Path) -> None:
    assert _findings(tmp_path, {}, {}, {}) == []


def test_nan_names_rank_step_and_parameter(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"non_finite": 4, "first": 1, "parameter": 0, "checksum": 1})
    assert (finding.rank, finding.parameter) == (1, "body.weight")
    assert finding.message.startswith(
        "rank 1 put gradients that are not finite into step 3 (rank 1: 4 values"
    )
    assert finding.severity == "error"


def test_nan_on_all_ranks_blames_none(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {"non_finite": 1}, {"non_finite": 1})
    assert finding.rank is None and "ranks 0, 1" in finding.message.replace(" and ", ", ")


def test_different_sums_name_the_minority(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"checksum": 5}, {})
    assert finding.kind == "different_sums" and finding.rank == 1
    assert finding.evidence["all_reduces"] == 3 and finding.evidence["step"] == 3


def test_two_ranks_that_differ_have_no_majority(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"checksum": 5})
    assert finding.rank is None


def test_sums_that_were_not_taken_are_not_compared(tmp_path: Path) -> None:
    assert _findings(tmp_path, {"checksum": 0}, {}) == []
