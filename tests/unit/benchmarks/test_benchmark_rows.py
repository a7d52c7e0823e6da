"""The benchmarks: that they can be imported, and the rows of pytest-benchmark's table for a selection."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import statistics
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from support.commands import python

pytest.importorskip("pytest_benchmark", reason="the benchmarks need pytest-benchmark")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]

BENCHMARKS = """
import json
import time
from pathlib import Path

import pytest
from harness.row import ratios
from harness.rounds import interleave

LOG = Path(__file__).with_name("log.jsonl")
FAST, SLOW = 0.002, 0.004

def measure(what, names, rounds):
    def nap(seconds):
        begin = time.perf_counter()
        time.sleep(seconds)
        return time.perf_counter() - begin
    measured = interleave({n: lambda s=SLOW if n == "slow" else FAST: nap(s) for n in names}, rounds)
    with LOG.open("a") as log:
        log.write(json.dumps([what, measured]) + "\\n")
    return measured

@pytest.mark.parametrize("variant", ["base", "slow", "other"])
@pytest.mark.parametrize("size", [1, 2])
def test_naps(row, size, variant):
    needs = [] if variant == "base" else ["base"]
    measured = row.once("variant", lambda names: measure(size, names, row.rounds(7)), needs=lambda _: needs)
    row.report(f"naps {size}", measured[variant], ratio_to=ratios(measured, variant, needs), size=size)

@pytest.mark.parametrize("variant", ["one", "two"])
def test_broken(row, variant):
    def fail(names):
        measure("broken", [], 0)
        raise RuntimeError("the link is down")
    row.once("variant", fail)

@pytest.mark.parametrize("variant", ["one", "two"])
def test_left_out(row, variant):
    def leave_out(names):
        measure("left out", [], 0)
        pytest.skip("no such model here")
    row.once("variant", leave_out)
"""


class Run:
    """One run of pytest over BENCHMARKS: what was measured, by comparison, and what pytest-benchmark made of it."""

    def __init__(self, folder: Path, *options: str) -> None:
        benchmarks = folder / "benchmarks"
        benchmarks.mkdir(exist_ok=True)
        shutil.copy2(ROOT / "benchmarks" / "conftest.py", benchmarks)
        (benchmarks / "bench_sleeping.py").write_text(BENCHMARKS, encoding="utf-8")
        log, result = benchmarks / "log.jsonl", folder / "result.json"
        log.unlink(missing_ok=True)
        result.unlink(missing_ok=True)
        self.process = python(
            *("-m", "pytest", str(benchmarks)),
            *("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)),
            *("-p", "no:cacheprovider", f"--benchmark-json={result}"),
            *("--benchmark-storage", str(folder / "saved"), *options),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self.output = self.process.stdout + self.process.stderr
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        self.measured: list[tuple[Any, dict[str, list[float]]]] = [json.loads(line) for line in lines]
        # pytest-benchmark makes the file before anything runs.
        text = result.read_text(encoding="utf-8") if result.exists() else ""
        self.rows: dict[str, Any] = {b["name"]: b for b in json.loads(text)["benchmarks"]} if text else {}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All variants of both sizes."""
    run = Run(tmp_path_factory.mktemp("whole"), "-k", "naps", "--benchmark-time-unit=ms")
    assert run.process.returncode == 0, run.output
    assert [what for what, _ in run.measured] == [1, 2]
    return run


def test_each_row_has_the_statistics_of_its_own_rounds(whole: Run) -> None:
    assert len(whole.rows) == 6
    for size, rounds in whole.measured:
        for variant, seconds in rounds.items():
            row = whole.rows[f"test_naps[{size}-{variant}]"]
            assert row["stats"]["data"] == seconds
            assert row["stats"]["rounds"] == 7
            assert row["stats"]["median"] == statistics.median(seconds)
            assert row["stats"]["median"] > (0.004 if variant == "slow" else 0.002)
            assert row["group"] == f"naps {size}"
            assert row["options"]["timer"] == "replay_of_measured_rounds"


def test_the_json_holds_ratios_within_a_round_and_their_intervals(whole: Run) -> None:
    for size, rounds in whole.measured:
        ratio = whole.rows[f"test_naps[{size}-slow]"]["extra_info"]["ratio_to"]["base"]
        by_round = [a / b for a, b in zip(rounds["slow"], rounds["base"], strict=True)]
        assert ratio["median"] == pytest.approx(statistics.median(by_round))
        assert min(by_round) <= ratio["low"] <= ratio["median"] <= ratio["high"] <= max(by_round)
        assert whole.rows[f"test_naps[{size}-base]"]["extra_info"]["ratio_to"] == {}


def test_the_table_shows_the_measured_medians(whole: Run) -> None:
    for _, rounds in whole.measured:
        for seconds in rounds.values():
            assert f"{1e3 * statistics.median(seconds):,.4f}" in whole.output
    ratio = whole.rows["test_naps[2-slow]"]["extra_info"]["ratio_to"]["base"]
    assert f"/ base {ratio['median']:.4g} [{ratio['low']:.4g}, {ratio['high']:.4g}]" in whole.output


def test_only_what_is_selected_is_measured_with_its_baseline(tmp_path: Path) -> None:
    run = Run(tmp_path, "-k", "naps and 2-slow")
    assert run.process.returncode == 0, run.output
    [(size, rounds)] = run.measured
    assert size == 2 and sorted(rounds) == ["base", "slow"]
    # The baseline was not asked for, so it is no row.
    assert list(run.rows) == ["test_naps[2-slow]"]


def test_what_is_selected_without_a_baseline_is_measured_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, "-k", "naps and base", "--rounds", "3")
    assert [(size, list(rounds)) for size, rounds in run.measured] == [(1, ["base"]), (2, ["base"])]
    assert [len(rounds["base"]) for _, rounds in run.measured] == [3, 3]


def test_comparing_and_drawing_say_what_was_measured(tmp_path: Path) -> None:
    # Not importorskip: pygal puts a finder into sys.meta_path that has no find_spec, and later imports warn of it.
    if importlib.util.find_spec("pygal") is None:
        pytest.skip("pytest-benchmark draws with pygal")
    first = Run(tmp_path, "-k", "naps and 2-slow", "--benchmark-autosave")
    plot = tmp_path / "plot"
    options = ("--benchmark-compare", f"--benchmark-histogram={plot}", "--benchmark-time-unit=ms")
    second = Run(tmp_path, "-k", "naps and 2-slow", *options)
    assert second.process.returncode == 0, second.output
    [drawn] = tmp_path.glob("plot*.svg")
    picture = drawn.read_text(encoding="utf-8")
    for run, place in ((first, "(0001_"), (second, "(NOW)")):
        median = 1e3 * run.rows["test_naps[2-slow]"]["stats"]["median"]
        [line] = [
            line for line in second.output.splitlines() if line.startswith(f"test_naps[2-slow] {place}")
        ]
        assert f"{median:,.4f}" in line
        assert f"Median: {median:.4f}" in picture


def test_disabled_benchmarks_run_once_and_report_no_time(tmp_path: Path) -> None:
    run = Run(tmp_path, "-k", "naps and 1-", "--benchmark-disable")
    assert run.process.returncode == 0, run.output
    [(_, rounds)] = run.measured
    assert {variant: len(seconds) for variant, seconds in rounds.items()} == {
        "base": 1,
        "slow": 1,
        "other": 1,
    }
    assert run.rows == {} and "Median" not in run.output


def test_a_comparison_that_fails_or_is_left_out_is_tried_once_for_all_its_cases(tmp_path: Path) -> None:
    run = Run(tmp_path, "-k", "broken or left_out")
    assert [what for what, _ in run.measured] == ["broken", "left out"], run.output
    # Nothing was left to save, which is no error of the run.
    assert run.process.returncode == 1 and run.rows == {}
    assert "2 failed, 2 skipped" in run.output and "no such model here" in run.output
    assert run.output.count("E       RuntimeError: the link is down") == 2
    assert "not used at all" not in run.output


def test_a_count_of_rounds_that_cannot_be_right_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, "--rounds", "0")
    assert run.process.returncode == 4 and "--rounds" in run.output
    assert run.measured == []


FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
MODULES = [".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in sorted(FOLDER.rglob("*.py"))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("__init__", "conftest"))])
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_pytest_finds_the_benchmarks_when_none_is_named(pytestconfig: pytest.Config) -> None:
    files = [p.name for p in FOLDER.glob("*.py") if "def test_" in p.read_text(encoding="utf-8")]
    patterns = pytestconfig.getini("python_files")
    assert files and all(any(fnmatch(name, pattern) for pattern in patterns) for name in files)
