"""What a report makes of gradient records."""

from pathlib import Path

import numpy as np
from support.trace_writer import RankWriter

from pyddpdiag.analyse.summary import analyse
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.trace.layout import Flag
from pyddpdiag.trace.run import open_run

GRADIENT = 7


def _findings(
    folder: Path, *ranks: dict[str, int], steps: int = 6, at: int = 3, every: int = 1
) -> list[Finding]:
    """Findings about a run whose ranks' gradient records differ from healthy ones in step `at` on.

    Every so many steps are watched.
    """
    for number, changes in enumerate(ranks):
        writer = RankWriter(number, len(ranks))
        for step in range(steps):
            start = 1_000_000_000 + step * 100_000_000
            writer.bucket(step, start, start + 1_000, start + 5_000_000)
            if step % every:
                continue
            values = {"non_finite": 0, "first": -1, "parameter": -1, "checksum": 77 + step}
            if step >= at:
                values.update(changes)
            bits = int(np.float64(2.5).view(np.int64))
            writer.add(
                GRADIENT,
                times=(
                    *(bits, bits, values["non_finite"], values["first"], values["parameter"]),
                    *(values["checksum"], 1000),
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
    report = analyse(RunView(open_run(folder)))
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


def test_steps_that_were_left_out_are_a_remark(tmp_path: Path) -> None:
    """What an optimizer steps with spoils the weights, and they all later gradients: here these are finite."""
    for folder, ends in ((tmp_path / "left", 6), (tmp_path / "spoiled", 3)):
        for rank in range(2):
            writer = RankWriter(rank, 2)
            for step in range(6):
                start = 1_000_000_000 + step * 100_000_000
                bad = step in (0, 2) or (step >= ends and rank == 1)
                writer.bucket(
                    step, start, start + 1_000, start + 5_000_000, flags=4 if bad else 4 | Flag.FINITE
                )
                if bad:
                    writer.add(
                        GRADIENT, times=(0, 0, 4, 1, -1, 0, 1000), step=step, sequence=step, reference=7
                    )
            writer.write(folder)
    (left,) = analyse(RunView(open_run(tmp_path / "left"))).verdict.findings
    assert (left.kind, left.severity, left.since_step, left.until_step) == (
        "non_finite_gradient",
        "note",
        0,
        2,
    )
    assert "into step 0 and 1 more, which the script left out" in left.message
    (spoiled,) = analyse(RunView(open_run(tmp_path / "spoiled"))).verdict.findings
    assert spoiled.severity == "error"


def test_nan_on_all_ranks_blames_none(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {"non_finite": 1}, {"non_finite": 1})
    assert finding.rank is None and "ranks 0, 1" in finding.message.replace(" and ", ", ")


def test_nan_that_all_ranks_have_when_it_is_first_seen_blames_none_and_says_since_when(
    tmp_path: Path,
) -> None:
    """Step 16 is the first that is watched after step 0: the weights have spread it by then."""
    bad = {"non_finite": 4, "first": 1, "parameter": 0}
    (finding,) = _findings(tmp_path, bad, bad, steps=20, at=5, every=16)
    assert (finding.rank, finding.since_step, finding.evidence["last_finite_step"]) == (None, 16, 0)
    assert "which rank had them first is unknown (in step 0 none had any" in finding.message
    assert "put gradients" not in finding.message and "statistics_interval=1" in finding.advice


def test_nan_is_one_ranks_own_if_another_is_still_finite(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"non_finite": 4}, {}, steps=20, at=16, every=16)
    assert (finding.rank, finding.since_step, finding.evidence["ranks_finite"]) == (1, 16, 2)


def test_nan_from_the_first_step_on_or_on_the_only_rank_is_their_own(tmp_path: Path) -> None:
    bad = {"non_finite": 4}
    (finding,) = _findings(tmp_path, bad, bad, steps=20, at=0, every=1)
    assert finding.message.startswith("ranks 0, 1 put gradients that are not finite into step 0")
    (finding,) = _findings(tmp_path / "one", bad, steps=20, at=5, every=16)
    assert finding.rank == 0


def test_different_sums_name_the_minority(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"checksum": 5}, {})
    assert finding.kind == "different_sums" and finding.rank == 1
    assert finding.evidence["all_reduces"] == 3 and finding.evidence["step"] == 3


def test_two_ranks_that_differ_have_no_majority(tmp_path: Path) -> None:
    (finding,) = _findings(tmp_path, {}, {"checksum": 5})
    assert finding.rank is None


def test_sums_that_were_not_taken_are_not_compared(tmp_path: Path) -> None:
    assert _findings(tmp_path, {"checksum": 0}, {}) == []


def test_buckets_seen_to_be_finite_tell_who_made_a_nan(tmp_path: Path) -> None:
    """No pass is watched: the hooks saw the values go by, and noted those of rank 1 in step 3."""
    for rank in range(3):
        writer = RankWriter(rank, 3)
        for step in range(6):
            start = 1_000_000_000 + step * 100_000_000
            bad = step > 3 or (step == 3 and rank == 1)
            flags = 4 if bad else 4 | Flag.FINITE
            writer.bucket(step, start, start + 1_000, start + 5_000_000, flags=flags)
            if bad:
                writer.add(GRADIENT, times=(0, 0, 4, 1, -1, 0, 1000), step=step, sequence=step, reference=7)
        writer.write(tmp_path)
    (finding,) = analyse(RunView(open_run(tmp_path))).verdict.findings
    assert (finding.kind, finding.rank, finding.since_step) == ("non_finite_gradient", 1, 3)
    assert (finding.evidence["ranks_finite"], finding.evidence["last_finite_step"]) == (2, 2)
