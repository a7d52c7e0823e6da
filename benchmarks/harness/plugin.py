"""The pytest plugin of the benchmarks: the fixture `row`, no time limit, and ratios under pytest-benchmark's table."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pytest_benchmark.logger import PytestBenchmarkWarning

from harness.comparisons import Comparisons
from harness.row import Ratios, Replay, Row

_COMPARISONS = pytest.StashKey[Comparisons]()
_SUMMARY = pytest.StashKey[list[Ratios]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_COMPARISONS] = Comparisons()
    config.stash[_SUMMARY] = []
    # Nothing to save, or another machine's file to compare with, is to be said, and must not end the run as warnings
    # here do. By warnings itself: pytest-benchmark warns where pytest's later filters do not reach.
    warnings.filterwarnings("default", category=PytestBenchmarkWarning)
    # Or each case of a comparison that fails is reported twice.
    config.addinivalue_line("filterwarnings", "ignore:Benchmark fixture was not used at all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "row" in getattr(item, "fixturenames", ()):
            # The first case measures its whole comparison; sweeps have time limits of their own.
            item.add_marker(pytest.mark.timeout(0))


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Replay:
    """The timer of this test's `benchmark`, which reads the marker when it is made: so this comes before it."""
    clock = Replay()
    request.applymarker(pytest.mark.benchmark(timer=clock))
    return clock


@pytest.fixture
def row(request: pytest.FixtureRequest, replay: Replay, benchmark: Any) -> Row:
    """This case's row in the table."""
    stash = request.config.stash
    return Row(request.node, benchmark, replay, stash[_COMPARISONS], stash[_SUMMARY])


# After pytest-benchmark's table.
@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = [row for row in config.stash[_SUMMARY] if row.ratios]
    if not rows:
        return
    terminalreporter.section("ratios of times within a round, with 95% intervals")
    for group in dict.fromkeys(row.group for row in rows):
        terminalreporter.write_line(group)
        for row in rows:
            if row.group == group:
                terminalreporter.write_line(f"  {row.name}: {', '.join(row.ratios)}")
