"""A saved report is read back as what it was; anything else is refused with the place in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

import pyddpdiag
from pyddpdiag.errors import ReportFileError, UsageError
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import report_from_dict, report_to_dict, report_to_json


def _runs(folder: Path) -> list[Path]:
    """Folders of a healthy run, of one with something in flight, and of one without steps."""
    healthy, hurt, bare = folder / "healthy", folder / "hurt", folder / "bare"
    write_training(healthy)
    write_training(hurt)
    writer = RankWriter(0, 2)
    writer.error(writer.bucket(0, MS, 2 * MS, 3 * MS), "Connection reset by peer")
    writer.bucket(1, 4 * MS, 0, 0, state=IN_FLIGHT)
    writer.write(bare)
    return [healthy, hurt, bare]


def test_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    for folder in _runs(tmp_path):
        report = load_report(folder)
        saved = folder / "report.json"
        saved.write_text(report_to_json(report), encoding="utf-8")
        again = pyddpdiag.load_report(saved)
        assert report_to_dict(again) == report_to_dict(report)
        assert again.verdict == report.verdict
        assert again.ranks == report.ranks and again.buckets == report.buckets


def test_keys_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    write_training(tmp_path)
    raw = report_to_dict(load_report(tmp_path))
    expected = json.dumps(raw)
    raw["new"] = {"a": 1}
    raw["ranks"][0]["new"] = 1
    raw["verdict"]["new"] = None
    assert json.dumps(report_to_dict(report_from_dict(raw))) == expected


def _without(key: str) -> Any:
    def change(raw: dict[str, Any]) -> None:
        del raw[key]

    return change


def _with(*path: Any, value: Any) -> Any:
    def change(raw: dict[str, Any]) -> None:
        inner: Any = raw
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without("verdict"), "verdict is missing"),
        (_with("ranks", value={}), "ranks should be a list"),
        (_with("ranks", 0, "steps", value="many"), "ranks.steps is 'many'"),
        (_with("ranks", 0, "wall_ms", value=3), "ranks.wall_ms should hold an object"),
        (_with("steps", 0, "ranks", 0, "rank", value=None), "steps.ranks.rank is None"),
        (_with("buckets", 0, "last_arrivals", value={"one": 1}), "has the key 'one'"),
        (_with("verdict", "status", value="fine"), "verdict.status is 'fine'"),
        (_with("schema_version", value=99), "schema_version is 99"),
    ],
)
def test_another_file_is_refused_with_the_place(tmp_path: Path, change: Any, words: str) -> None:
    write_training(tmp_path)
    raw = report_to_dict(load_report(tmp_path))
    change(raw)
    file = tmp_path / "report.json"
    file.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ReportFileError) as caught:
        load_report(file)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ReportFileError):
        load_report(file)


def test_a_saved_report_is_not_narrowed(tmp_path: Path) -> None:
    write_training(tmp_path)
    file = tmp_path / "report.json"
    file.write_text(report_to_json(load_report(tmp_path)), encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be narrowed"):
        load_report(file, step=3)
