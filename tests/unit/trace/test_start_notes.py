"""Notes of ranks without a trace: written in one process, read in another, and never trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from support.commands import python

import pyddpdiag
from pyddpdiag.model.attempts import attempt_folder
from pyddpdiag.start.note import StartNote, StartNoteFile, place_of
from pyddpdiag.trace.starts import forget_ended, read_starts

S = 10**9


def written(folder: Path, rank: int = 1) -> StartNoteFile:
    file = StartNoteFile(place_of(folder, rank, {}), rank, 2)
    file.note("data.py:5", "", 10 * S, 60 * S, at_once=True)
    return file


def test_what_is_written_is_read_until_the_rank_has_a_trace(tmp_path: Path) -> None:
    file = written(tmp_path)
    (found,) = read_starts(tmp_path)
    assert (found.rank, found.world_size, found.pid, found.process) == (1, 2, os.getpid(), "running")
    assert (found.where, found.waits_in, found.error) == ("data.py:5", "", "") and found.for_s >= 50
    file.fails("KeyError: 'x', at data.py:7")
    assert read_starts(tmp_path)[0].error == "KeyError: 'x', at data.py:7"
    (tmp_path / "rank_1.ddptrace").touch()
    assert read_starts(tmp_path) == ()
    file.remove()
    file.note("data.py:9", "", 0, 1, at_once=True)
    assert not list(tmp_path.glob("*.start"))


def test_who_takes_the_rank_over_keeps_its_note(tmp_path: Path) -> None:
    outer = written(tmp_path)
    inner = StartNoteFile(place_of(tmp_path, 1, {}), 1, 2)
    inner.note("train.py:3", "", 1, 2, at_once=True)
    outer.note("launch.py:4", "", 1, 2, at_once=True)
    outer.remove()
    assert [found.where for found in read_starts(tmp_path)] == ["train.py:3"]


def test_an_earlier_runs_note_goes_with_its_process(tmp_path: Path) -> None:
    written(tmp_path, 0)
    written(tmp_path)
    raw = json.loads((tmp_path / "rank_1.start").read_text(encoding="utf-8"))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / "rank_1.start").write_text(json.dumps({**raw, "pid": ended.pid}), encoding="utf-8")
    assert [found.process for found in read_starts(tmp_path)] == ["running", "dead"]
    forget_ended(tmp_path)
    assert [found.rank for found in read_starts(tmp_path)] == [0]


@pytest.mark.parametrize(
    "change",
    [
        *[{"rank": 0}, {"rank": -1}, {"rank": 2}, {"pid": "x"}, {"host": 7}, {"since_ns": 70 * S}],
        *[{"world_size": True}, None],
    ],
)
def test_what_no_rank_writes_is_no_note(tmp_path: Path, change: dict[str, object] | None) -> None:
    written(tmp_path)
    path = tmp_path / "rank_1.start"
    raw = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps([] if change is None else raw | change), encoding="utf-8")
    assert read_starts(tmp_path) == ()


def test_odd_values_do_no_harm(tmp_path: Path) -> None:
    note = StartNote(1, 2, "\x1b[2J", 1, "", 1e300, float("nan"), "\x1b]0;x", "y" * 5000)
    (tmp_path / "rank_1.start").write_text(json.dumps(asdict(note)), encoding="utf-8")
    (tmp_path / "rank_0.start").write_text("[" * 8000, encoding="utf-8")
    (found,) = read_starts(tmp_path)
    assert found.host.isprintable() and found.where.isprintable() and len(found.waits_in) <= 300


def test_it_lies_where_the_trace_will() -> None:
    folder = Path("run")
    for restarts in ("", "0", "3", "x"):
        number = int(restarts) if restarts.isdigit() else 0
        place = place_of(folder, 7, {"TORCHELASTIC_RESTART_COUNT": restarts})
        assert place == attempt_folder(folder, number) / "rank_7.start"


def test_python_starts_with_next_to_nothing_of_ours(tmp_path: Path) -> None:
    """In every rank, and before the script: what it does not load must not be loaded."""
    startup = Path(pyddpdiag.__file__).parent / "integrations" / "startup"
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    run = {"PYDDPDIAG_RUN_FOLDER": str(tmp_path / "run"), "PYDDPDIAG_RUN_LINES": "1"}
    path = os.pathsep.join([str(startup), *filter(None, sys.path)])
    program = (
        "import sys, time, pathlib\n"
        f"note = pathlib.Path({str(tmp_path / 'run' / 'rank_0.start')!r})\n"
        "while not note.exists(): time.sleep(0.01)\n"
        "print(sorted({'torch', 'numpy', 'psutil', 'rich'} & set(sys.modules)))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != "PYDDPDIAG_RUN_RANK"}
    done = python(script, timeout_s=240, env={**environ, **rank, **run, "PYTHONPATH": path})
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert not list((tmp_path / "run").iterdir())
