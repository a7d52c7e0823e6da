"""A run in a notebook."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.commands import python
from support.pages import skip_without
from support.shown_run import write_shown

import pyddpdiag
from pyddpdiag.errors import TraceError, UsageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shown(tmp_path_factory.mktemp("loaded") / "run")


def test_it_shows_itself_without_a_script(folder: Path) -> None:
    run = pyddpdiag.load(folder)
    assert run.verdict.status == "findings" and run.verdict.line in repr(run)
    text = run._repr_html_()
    assert "rank 1 is late" in text and "<script" not in text
    assert "the others wait for it. " in text and ".. " not in text


def test_it_escapes_what_comes_from_elsewhere(tmp_path: Path) -> None:
    """An exception may say anything; a folder may not, on Windows."""
    folder = write_shown(tmp_path)
    for path in folder.glob("rank_*.json"):
        sidecar = json.loads(path.read_text(encoding="utf-8"))
        sidecar["end"] = {"error": "<img src=x>", "at_ns": 9_000_000_000}
        path.write_text(json.dumps(sidecar), encoding="utf-8")
    text = pyddpdiag.load(folder)._repr_html_()
    assert "<img" not in text and "&lt;img src=x&gt;" in text


def test_its_picture_needs_no_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "plotly"):
        monkeypatch.setitem(sys.modules, name, None)
    text = pyddpdiag.load(folder)._repr_html_()
    assert "<svg" in text and ">rank 1</text>" in text


def test_data_frames(folder: Path) -> None:
    skip_without("pandas")
    run = pyddpdiag.load(folder)
    assert len(run.steps) == 24 * 3 and run.steps.exposed_ms.sum() == pytest.approx(
        run.report.steps.exposed_ms.sum()
    )
    assert list(run.buckets.bucket) == [bucket.bucket for bucket in run.report.buckets]
    assert len(run.occurrences) == 24 * 3 and len(run.ranks) == 3 and len(run.links) > 0
    assert "late_rank" in set(run.findings.kind)
    assert run.steps is run.steps


def test_without_pandas_the_error_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'pyddpdiag\[frames\]'"):
        _ = pyddpdiag.load(folder).steps


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no traces"):
        pyddpdiag.load(tmp_path)


def test_it_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['pyddpdiag._native'] = None\n"
        f"import pyddpdiag; pyddpdiag.load({str(folder)!r})._repr_html_()"
    )
    done = python("-c", code, timeout_s=120)
    assert done.returncode == 0, done.stderr
