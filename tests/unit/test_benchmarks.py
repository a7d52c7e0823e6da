"""The benchmarks are no part of a test run; they must be importable all the same when someone starts them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = [".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in sorted(FOLDER.rglob("*.py"))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__init__")])
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)
