"""Comparing recorded runs: what changed, and what did not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.trace_writer import write_training

from pyddpdiag.bench.compare.charts import charts, ratio_ticks, short_names
from pyddpdiag.bench.compare.comparison import Pair
from pyddpdiag.bench.compare.runs import compare_runs
from pyddpdiag.bench.compare.text import print_comparison
from pyddpdiag.bench.intervals import Estimate, difference_of_rounds
from pyddpdiag.cli import main


def written(folder: Path, seed: int = 0, **more: object) -> Path:
    write_training(folder, steps=40, jitter_ms=0.5, seed=seed, **more)  # type: ignore[arg-type]
    return folder


def test_two_runs_alike_have_no_difference(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a", 1), written(tmp_path / "b", 2)])
    assert {change.word for change in found.changes} == {"no difference"}
    assert {pair.word for pair in found.pairs} == {"no difference"} and len(found.pairs) == 3
    assert not found.only
    assert all(
        change.difference_ms.low <= change.difference_ms.median <= change.difference_ms.high
        for change in found.changes
    )


def test_slower_computing_is_told_from_slower_communication(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    slow = compare_runs([base, written(tmp_path / "slow", 3, compute_ms=30.0)])
    words = {change.part: change.word for change in slow.changes}
    assert words["the whole step"] == "more" and words["computes"] == "more"
    assert words["waits for data"] == "no difference" and words["waits for communication"] == "no difference"
    assert slow.pairs[0].word == "slower" and slow.pairs[0].ratio.median == pytest.approx(
        32.5 / 22.5, rel=0.03
    )
    wire = compare_runs([base, written(tmp_path / "wire", 4, wire_ms=4.0)])
    words = {change.part: change.word for change in wire.changes}
    assert words["waits for communication"] == "more" and words["computes"] == "no difference"
    buckets = [pair for pair in wire.pairs if pair.case.startswith("bucket")]
    assert [pair.word for pair in buckets] == ["slower"] * 2
    assert buckets[0].ratio.median == pytest.approx(4.0)


def test_a_rank_that_is_late_today(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a"), written(tmp_path / "b", 5, late_ms={1: 10.0})])
    words = {change.part: change.word for change in found.changes}
    assert words["waits for the last rank"] == "more" and words["the whole step"] == "more"


def test_faster_is_said_as_such_and_several_runs_can_be_given(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / name, n, compute_ms=ms)
        for n, (name, ms) in enumerate([("a", 30.0), ("b", 20.0), ("c", 30.0)])
    ]
    found = compare_runs(runs)
    steps = {pair.other: pair.word for pair in found.pairs if pair.case.startswith("step")}
    assert steps == {"b": "faster", "c": "no difference"}


def test_too_few_steps_are_not_judged(tmp_path: Path) -> None:
    write_training(tmp_path / "a", steps=4)
    found = compare_runs([written(tmp_path / "b"), tmp_path / "a"])
    assert {change.word for change in found.changes} == {"cannot tell"}
    assert {pair.word for pair in found.pairs} == {"cannot tell"}


def test_what_differs_between_the_runs_is_said(tmp_path: Path) -> None:
    found = compare_runs(
        [written(tmp_path / "x" / "t"), written(tmp_path / "y" / "t", world_size=3, buckets=3)]
    )
    assert [series.label for series in found.series] == ["x", "y"]
    assert any("2 ranks" in note and "3" in note for note in found.notes)
    assert any("one run each" in note for note in found.notes)
    assert found.only == {"y, not x": ("bucket " + found.only["y, not x"][0][7:],)}
    out = io.StringIO()
    print_comparison(found, out)
    assert "waits for communication" in out.getvalue() and "Healthy" in out.getvalue()


def test_charts_of_runs(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a"), written(tmp_path / "b", compute_ms=30.0)])
    made = {chart.name: chart for chart in charts(found)}
    assert list(made) == ["changes", "ratios"]
    assert made["ratios"].x.logarithmic and 1.0 in made["ratios"].x.ticks
    assert made["changes"].x.line_at == 0.0 and len(made["changes"].panels[0].y.labels) == 5


def test_folders_and_files_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = written(tmp_path / "a"), tmp_path / "a.json"
    file.write_text("{}", encoding="utf-8")
    for arguments in ([str(folder), str(file)], [str(folder)]):
        assert main(["compare", *arguments]) == 2
        assert "two folders" in capsys.readouterr().err
    assert main(["compare", str(folder), str(tmp_path)]) == 2
    assert "no traces" in capsys.readouterr().err


def pair(case: str, other: str = "b") -> Pair:
    return Pair("step", case, "a", other, 1.0, 1.0, Estimate(1.0, 0.9, 1.1), "no difference")


def test_labels_leave_out_what_all_cases_share() -> None:
    cases = ["digits batch 32 plain 25 MiB 2 ranks", "digits batch 32 native 25 MiB 2 ranks"]
    assert short_names([pair(case) for case in cases]) == (
        "digits batch 32 25 MiB 2 ranks",
        ["plain", "native"],
    )
    assert short_names([pair(cases[0])]) == ("", [cases[0]])
    assert short_names([pair(cases[0], "b"), pair(cases[0], "c")]) == (cases[0], ["b", "c"])
    assert short_names([pair("x one"), pair("x two", "c")]) == ("x", ["b: one", "c: two"])


@pytest.mark.parametrize(("low", "high"), [(0.98, 1.02), (0.5, 2.0), (0.01, 40.0), (3.0, 4.0)])
def test_ratios_have_round_ticks_with_1_among_them(low: float, high: float) -> None:
    ticks = ratio_ticks(low, high)
    assert 1.0 in ticks and len(ticks) >= 3 and ticks == sorted(ticks)


def test_differences_of_medians_have_an_interval() -> None:
    found = difference_of_rounds([3.0, 3.1, 2.9, 3.0], [1.0, 1.1, 0.9, 1.0])
    assert found.median == pytest.approx(2.0) and 1.8 <= found.low <= 2.0 <= found.high <= 2.2
    with pytest.raises(ValueError, match="no rounds"):
        difference_of_rounds([], [1.0])
