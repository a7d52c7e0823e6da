"""Exports of runs with more records than fit into memory, and tables that are written in pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bulk_writer import write_bulk

from pyddpdiag.cli import main
from pyddpdiag.export import frames
from pyddpdiag.export.chrome import COMMUNICATION


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


def test_of_a_long_run_what_fits_into_memory_is_exported_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps = tmp_path / "run", 1500
    write_bulk(run, ranks=2, records=steps * 2 * 12)

    def exported(*options: str) -> tuple[int, str]:
        target = tmp_path / "-".join(options)
        assert main(["export", str(run), *options, "--output-dir", str(target)]) == 0
        rows = (
            (target / "occurrences.csv").read_text(encoding="utf-8").splitlines()
            if "--csv" in options
            else []
        )
        return len(rows) - 1, capsys.readouterr().err

    assert exported("--csv") == exported("--csv", "--memory", "0") == (10 * steps, "")
    rows, said = exported("--csv", "--memory", "0.002")
    assert 0 < rows < 10 * steps and "only the newest" in said and "`--memory" in said
    monkeypatch.setattr("pyddpdiag.plan.read._MEMORY_GB", 0.002)
    main(["plan", str(run)])
    assert capsys.readouterr().err.startswith("only the newest ")
    # A time line shows the steps that were asked for, however old.
    exported("--chrome", "--steps", "3-4", "--memory", "0.002")
    shown = events(tmp_path / "--chrome---steps-3-4---memory-0.002" / "chrome" / "rank_1.json")
    names = [event["name"] for event in shown]
    assert names.count("ProfilerStep#3") == names.count("ProfilerStep#4") == 1
    assert names.count(COMMUNICATION) == 20


def test_a_table_is_written_in_pieces_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"number": list(range(10)), "known": [None, 0.5] * 5}
    whole = "".join(frames.as_csv(columns))
    assert whole.splitlines()[:3] == ["number,known", "0,", "1,0.5"] and len(whole.splitlines()) == 11
    monkeypatch.setattr(frames, "BLOCK", 3)
    pieces = list(frames.as_csv(columns))
    assert "".join(pieces) == whole and len(pieces) == 5
