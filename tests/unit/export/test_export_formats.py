"""Each format of the table is documented and writes something, also of runs that do not fit into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bulk_writer import write_bulk
from support.pages import skip_without
from support.shown_run import write_shown

from pyddpdiag.cli import main
from pyddpdiag.export import frames
from pyddpdiag.export.chrome import COMMUNICATION
from pyddpdiag.export.format import FORMATS
from pyddpdiag.export.run import read_run
from pyddpdiag.export.tensorboard import Series, event_file

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def test_every_format_is_documented_and_writes(tmp_path: Path) -> None:
    write_shown(tmp_path)
    run = read_run(tmp_path)
    documented = PAGE.read_text(encoding="utf-8")
    for known in FORMATS:
        assert f"`--{known.name}`" in documented
        if known.name == "parquet":
            skip_without("pyarrow")
        outputs = known.outputs(run)
        assert outputs and all(output.content() for output in outputs)
        assert not any(output.path.is_absolute() for output in outputs)


def test_event_files_hold_steps_of_any_size(tmp_path: Path) -> None:
    skip_without("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    steps = np.array([0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
    values = np.append(np.linspace(0.0, 1e6, len(steps) - 1), np.nan)
    series = Series("rank/wall_ms", steps, 1.7e9 + np.arange(len(steps)) / 7, values).known()
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(event_file([series]))
    head, *found = EventFileLoader(str(path)).Load()
    assert head.file_version == "brain.Event:2"
    assert [event.step for event in found] == steps[:-1].tolist()
    assert [event.wall_time for event in found] == series.wall_s.tolist()
    read = [event.summary.value[0].tensor.float_val[0] for event in found]
    assert read == pytest.approx(values[:-1].tolist(), rel=1e-6)


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
