"""The benchmarks with real training steps: that their figures are those measured, of what was selected, anywhere."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import python

from pyddpdiag.bench.results import read

pytest.importorskip("pytest_benchmark", reason="the benchmarks need pytest-benchmark")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are not beside these tests"
    ),
]
# Between a step of a tiny network on a fast machine and one on a machine that does much else.
REAL_STEP_S = (1e-4, 10.0)

# Writes down what the benchmarks' ways into the ranks are asked to measure, and what they return.
SPY = """
import json
from pathlib import Path

import harness.ranks
import pyddpdiag.bench.engine.sweep as sweep

LOG = Path(__file__).with_suffix(".jsonl")

def note(*what):
    with LOG.open("a") as log:
        log.write(json.dumps(what) + "\\n")

def spied_run(job, world_size, *arguments, _run=harness.ranks.run):
    measured = _run(job, world_size, *arguments)
    note("ranks", measured)
    return measured

def spied_sweep(settings, writer, _run=sweep.run_sweep):
    outcome = _run(settings, writer)
    note("sweep", {entry.name: list(entry.round_s) for entry in outcome.entries})
    return outcome

harness.ranks.run = spied_run
sweep.run_sweep = spied_sweep
"""


def run(cwd: Path, *options: str, paths: list[str] | None = None, flags: tuple[str, ...] = ()) -> Any:
    return python(
        *(*flags, "-m", "pytest", "-p", "no:cacheprovider", *options),
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths or [path for path in sys.path if path])},
        timeout_s=280,
    )


def measure(folder: Path, *options: str) -> tuple[list[Any], dict[str, Any], float]:
    """What the ranks were asked for and returned, the rows of the JSON, and the seconds that all of it took."""
    (folder / "spy.py").write_text(SPY, encoding="utf-8")
    result = folder / "result.json"
    paths = [str(folder), *(path for path in sys.path if path), str(ROOT / "benchmarks")]
    begin = time.monotonic()
    done = run(ROOT, "-p", "spy", f"--benchmark-json={result}", *options, paths=paths)
    took = time.monotonic() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "spy.jsonl").read_text(encoding="utf-8").splitlines()
    rows = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
    return [json.loads(line) for line in lines], {row["name"]: row for row in rows}, took


def test_a_row_is_the_measured_training_steps_of_the_one_that_was_selected(tmp_path: Path) -> None:
    name = "test_tiny_buckets[idle-native]"
    spied, rows, took = measure(tmp_path, f"benchmarks/bench_hook_overhead.py::{name}", "--rounds", "5")
    [[how, measured]] = spied
    # The builtin hook is what the ratio is to.
    assert how == "ranks" and sorted(measured) == ["builtin", "native"]
    assert list(rows) == [name]
    stats = rows[name]["stats"]
    assert stats["data"] == measured["native"] and len(stats["data"]) == 5
    assert stats["median"] == statistics.median(measured["native"])
    assert REAL_STEP_S[0] < stats["median"] < REAL_STEP_S[1]
    # Real time: each round had so many steps.
    assert stats["total"] * rows[name]["extra_info"]["steps_per_round"] < took
    by_round = [a / b for a, b in zip(measured["native"], measured["builtin"], strict=True)]
    ratio = rows[name]["extra_info"]["ratio_to"]["builtin"]
    assert ratio["median"] == pytest.approx(statistics.median(by_round))


def test_a_sweep_measures_the_selected_bucket_size_and_its_baseline(tmp_path: Path) -> None:
    spied, rows, _ = measure(
        tmp_path,
        "benchmarks/bench_ddp_step.py",
        "-k",
        "test_case and digits-cnn-plain-0.25MiB",
        "--rounds",
        "3",
    )
    [[how, measured]] = spied
    [name] = rows
    [base] = [case for case in measured if "plain-default-2ranks" in case]
    [selected] = set(measured) - {base}
    assert how == "sweep" and "digits-cnn-plain-0.25MiB-2ranks" in selected and "0.25MiB" in name
    assert rows[name]["stats"]["data"] == measured[selected]
    assert rows[name]["stats"]["median"] == statistics.median(measured[selected])
    assert REAL_STEP_S[0] < rows[name]["stats"]["median"] < REAL_STEP_S[1]
    assert rows[name]["group"] == "step of digits-cnn"
    assert list(rows[name]["extra_info"]["ratio_to"]) == [base]
    # `pyddpdiag compare` finds the same rounds in the file.
    [entry] = read(tmp_path / "result.json").entries
    assert list(entry.round_s) == measured[selected]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone: the package's source without the native module, the benchmarks, and what they need."""
    folder = tmp_path / "clone"
    ignore = shutil.ignore_patterns("__pycache__", "_native*.so", "_native*.pyd", "_build.py")
    for name in ("pyddpdiag", "benchmarks", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    return folder


def borrowed() -> list[str]:
    """Where the dependencies are, as plain folders: the interpreter is started so that no editable install acts."""
    return [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]


SELECTED = ("benchmarks", "-k", "tiny_buckets and idle-native", "--rounds", "2")


def test_the_benchmarks_of_a_clone_measure_the_wheel_that_is_installed_beside_it(
    clone: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(ROOT / "pyddpdiag", site / "pyddpdiag", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("_native", "_build"):
        spec = importlib.util.find_spec(f"pyddpdiag.{name}")
        assert spec is not None and spec.origin is not None
        if Path(spec.origin).parent != ROOT / "pyddpdiag":
            shutil.copy2(spec.origin, site / "pyddpdiag")
    done = run(clone, *SELECTED, paths=[str(site), *borrowed()], flags=("-S",))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout and "test_tiny_buckets[idle-native]" in done.stdout


def test_without_any_native_module_one_line_says_what_to_type(clone: Path) -> None:
    done = run(clone, *SELECTED, paths=borrowed(), flags=("-S",))
    assert done.returncode == 4, done.stdout + done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith("ERROR: pyddpdiag is not installed") and "python3 dev.py bench" in line
