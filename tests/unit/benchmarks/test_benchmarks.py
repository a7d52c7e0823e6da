"""The benchmarks are no part of a test run; they must be importable all the same when someone starts them."""

from __future__ import annotations

import importlib
from fnmatch import fnmatch
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
MODULES = [".".join(p.relative_to(FOLDER).with_suffix("").parts) for p in sorted(FOLDER.rglob("*.py"))]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("__init__", "conftest"))])
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)


def test_pytest_finds_the_benchmarks_when_none_is_named(pytestconfig: pytest.Config) -> None:
    files = [p.name for p in FOLDER.glob("*.py") if "def test_" in p.read_text(encoding="utf-8")]
    patterns = pytestconfig.getini("python_files")
    assert files and all(any(fnmatch(name, pattern) for pattern in patterns) for name in files)
