"""Comparing recorded runs: what changed, and what did not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from support.processor_use import NOTHING, Extra, write
from support.trace_writer import write_training

from pyddpdiag.bench.compare.comparison import Pair
from pyddpdiag.bench.compare.runs import compare_runs
from pyddpdiag.bench.compare.shown import charts, print_comparison, ratio_ticks, short_names
from pyddpdiag.bench.intervals import Estimate, difference_of_rounds
from pyddpdiag.cli import main


def written(folder: Path, seed: int = 0, **more: object) -> Path:
    write_training(folder, steps=40, jitter_ms=0.5, seed=seed, **more)  # type: ignore[arg-type]
    return folder


def test_two_runs_alike_have_no_difference(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a", 1), written(tmp_path / "b", 2)])
    assert {change.word for change in found.changes} == {"no difference"}
    assert not found.pairs and len({change.part for change in found.changes}) == len(found.changes) == 7
    assert not found.only
    assert all(
        change.difference_ms.low <= change.difference_ms.median <= change.difference_ms.high
        for change in found.changes
    )


def test_slower_computing_is_distinguished_from_slower_communication(tmp_path: Path) -> None:
    base = written(tmp_path / "base")
    slow = compare_runs([base, written(tmp_path / "slow", 3, compute_ms=30.0)])
    words = {change.part: change.word for change in slow.changes}
    assert words["the whole step"] == "more" and words["compute"] == "more"
    assert words["data"] == "no difference" and words["on the wire"] == "no difference"
    step = slow.changes[0]
    assert (step.part, step.word) == ("the whole step", "more")
    assert step.difference_ms.median == pytest.approx(10.0, abs=0.7)
    wire = compare_runs([base, written(tmp_path / "wire", 4, wire_ms=4.0)])
    words = {change.part: change.word for change in wire.changes}
    assert words["on the wire"] == "more" and words["compute"] == "no difference"
    buckets = [change for change in wire.changes if change.part.startswith("bucket")]
    assert [change.word for change in buckets] == ["more"] * 2
    assert buckets[0].other_ms / buckets[0].base_ms == pytest.approx(4.0)


def test_a_rank_that_is_late_today(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a"), written(tmp_path / "b", 5, late_ms={1: 10.0})])
    words = {change.part: change.word for change in found.changes}
    assert words["waiting for the last rank"] == "more" and words["the whole step"] == "more"


def test_it_says_which_run_changed_and_since_when(tmp_path: Path) -> None:
    write(tmp_path / "a", [NOTHING, NOTHING], steps=60)
    write(tmp_path / "b", [NOTHING, Extra(sleep=40, steps=range(30, 60))], steps=60)
    for order in (("a", "b"), ("b", "a")):
        only = [
            note
            for note in compare_runs([tmp_path / name for name in order]).notes
            if note.startswith("Only")
        ]
        assert len(only) == 1
        assert only[0].startswith("Only b: rank 1 is late from step 30 on")
        assert "(late_rank from step 30 on, 1.20 s in all; confidence: medium)" in only[0]
    assert not [
        note for note in compare_runs([tmp_path / "a", tmp_path / "a"]).notes if note.startswith("Only")
    ]


def test_faster_is_said_as_such_and_several_runs_can_be_given(tmp_path: Path) -> None:
    runs = [
        written(tmp_path / name, n, compute_ms=ms)
        for n, (name, ms) in enumerate([("a", 30.0), ("b", 20.0), ("c", 30.0)])
    ]
    found = compare_runs(runs)
    steps = {one.other: one.word for one in found.changes if one.part == "the whole step"}
    assert steps == {"b": "less", "c": "no difference"}


def test_too_few_steps_are_not_judged(tmp_path: Path) -> None:
    write_training(tmp_path / "a", steps=4)
    found = compare_runs([written(tmp_path / "b"), tmp_path / "a"])
    assert {change.word for change in found.changes} == {"cannot tell"}
    assert {one.why for one in found.changes} == {"too few rounds"}


def test_what_scatters_too_much_is_not_called_no_difference(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        write_training(tmp_path / name, steps=12, jitter_ms=60.0, seed=seed)
    found = compare_runs([tmp_path / "a", tmp_path / "b"])
    step = found.changes[0]
    assert step.difference_ms.low < 0 < step.difference_ms.high
    assert (step.word, step.why) == ("cannot tell", "wide interval")
    assert "could hide a difference of 20% or more" in " ".join(found.notes)


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
    assert "on the wire" in out.getvalue() and "Healthy" in out.getvalue()


def test_charts_of_runs(tmp_path: Path) -> None:
    found = compare_runs([written(tmp_path / "a"), written(tmp_path / "b", compute_ms=30.0)])
    made = {chart.name: chart for chart in charts(found)}
    assert list(made) == ["changes"]
    assert made["changes"].x.line_at == 0.0 and len(made["changes"].panels[0].y.labels) == 7


def test_folders_and_files_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = written(tmp_path / "a"), tmp_path / "a.json"
    file.write_text("{}", encoding="utf-8")
    for arguments in ([str(folder), str(file)], [str(file), str(folder)]):
        assert main(["compare", *arguments]) == 2
        assert "two folders" in capsys.readouterr().err
    assert main(["compare", str(folder)]) == 2
    assert "alone is compared with nothing" in capsys.readouterr().err
    assert main(["compare", str(folder), str(tmp_path)]) == 2
    assert "no traces" in capsys.readouterr().err


def pair(*settings: str, other: str = "b") -> Pair:
    case = " ".join(part for part in settings if part)
    estimate = Estimate(1.0, 0.9, 1.1)
    return Pair("step", case, "a", other, 1.0, 1.0, estimate, "no difference", settings=settings)


def test_names_leave_out_what_all_cases_share_and_never_tell_two_alike() -> None:
    shared = [pair("digits", "batch 32", hook, "25 MiB", "2 ranks") for hook in ("plain", "native")]
    common = "All are digits batch 32 25 MiB 2 ranks."
    assert short_names(shared) == (common, ["plain", "native"])
    assert short_names(shared[:1]) == ("", [shared[0].case])
    twice = [pair(*shared[0].settings, other=other) for other in "bc"]
    assert short_names(twice) == (f"All are {twice[0].case}.", ["b", "c"])
    assert short_names([pair("x", "one"), pair("x", "two", other="c")]) == (
        "All are x.",
        ["b: one", "c: two"],
    )
    # Parts, not words: "1 MiB" is in the names of both.
    sizes = [pair("mlp", "25 MiB", "first 1 MiB", "2 ranks"), pair("mlp", "1 MiB", "", "2 ranks")]
    assert short_names(sizes) == ("All are mlp 2 ranks.", ["25 MiB first 1 MiB", "1 MiB"])
    first = [pair("mlp", "25 MiB", "first 1 MiB", "2 ranks"), pair("mlp", "25 MiB", "", "2 ranks")]
    assert short_names(first) == ("All are mlp 2 ranks.", ["25 MiB first 1 MiB", "25 MiB"])
    models = (("cnn", "digits", "batch 32"), ("mlp", "", "batch 2"))
    every = [pair(*model, hook, "2 ranks") for model in models for hook in ("plain", "native")]
    assert short_names(every) == (
        "All are 2 ranks; cnn: digits batch 32; mlp: batch 2.",
        ["cnn plain", "cnn native", "mlp plain", "mlp native"],
    )


@pytest.mark.parametrize(("low", "high"), [(0.98, 1.02), (0.5, 2.0), (0.01, 40.0), (3.0, 4.0)])
def test_ratios_have_round_ticks_with_1_among_them(low: float, high: float) -> None:
    ticks = ratio_ticks(low, high)
    assert 1.0 in ticks and len(ticks) >= 3 and ticks == sorted(ticks)


def test_differences_of_medians_have_an_interval() -> None:
    found = difference_of_rounds([3.0, 3.1, 2.9, 3.0], [1.0, 1.1, 0.9, 1.0])
    assert found.median == pytest.approx(2.0) and 1.8 <= found.low <= 2.0 <= found.high <= 2.2
    with pytest.raises(ValueError, match="no rounds"):
        difference_of_rounds([], [1.0])
