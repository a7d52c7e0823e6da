"""Finds the package to measure, and loads the benchmarks' own plugin."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.installed import prefer_installed

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("benchmark").addoption(
        "--rounds",
        type=_count,
        metavar="N",
        help="Rounds of each case. Default: as many as the figures in docs/performance.md were measured with.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not prefer_installed(ROOT):
        raise pytest.UsageError(
            "pyddpdiag is not installed in this environment, and the source tree has no native module. "
            "Type: python3 dev.py bench (it builds the package; pytest's arguments may follow)"
        )
    # Not before: it imports the package.
    config.pluginmanager.import_plugin("harness.plugin")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("at least 1 round")
    return value
