"""The signs of life of a run's machines: written by a real one, read whatever else lies there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.integrations import node_beat
from pyddpdiag.integrations.node_beat import NodeBeat
from pyddpdiag.model.node import note_name
from pyddpdiag.system.clock import clock_identity, monotonic_ns
from pyddpdiag.trace.notes import read_node, read_nodes

NODE = "00112233aabbccdd"


def write_note(folder: Path, node: str = NODE, **fields: object) -> Path:
    note = {"host": "one", "clock": "c", "pid": 7, "at_ns": 5, "at_s": 1.7e9, "exit_code": None, "signal": ""}
    path = folder / note_name(node)
    path.write_text(json.dumps({**note, **fields}), encoding="utf-8")
    return path


def test_a_sign_of_life_is_renewed_and_its_last_one_says_how_the_command_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_beat, "BEAT_S", 0.01)
    folder = tmp_path / "run"
    before = monotonic_ns()
    beat = NodeBeat(folder)
    beat.start()
    assert not folder.exists()  # the ranks make it
    folder.mkdir()
    seen: set[int] = set()
    limit = time.monotonic() + 120
    while len(seen) < 3 and time.monotonic() < limit:
        seen.update(note.at_ns for note in read_nodes(folder).notes)
        time.sleep(0.005)
    assert len(seen) >= 3 and min(seen) > before
    beat.end(3, "SIGTERM", {"1": -9})
    [note] = read_nodes(folder).notes
    assert (note.node, note.exit_code, note.signal, note.clock) == (beat.node, 3, "SIGTERM", clock_identity())
    assert note.codes == {"1": -9}
    assert note.at_ns >= max(seen) and [path.name for path in folder.iterdir()] == [note_name(beat.node)]


def test_without_traces_nothing_is_left_behind(tmp_path: Path) -> None:
    beat = NodeBeat(tmp_path / "run")
    beat.start()
    beat.end(0)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "text",
    [
        *("", '{"host": "on', "[]", "null", "{}", "[" * 5000),
        *(
            json.dumps(
                {"host": "h", "clock": "c", "pid": 7, "at_ns": 5, "at_s": 1.0, "exit_code": None, **wrong}
            )
            for wrong in (
                *[{"host": 3}, {"at_ns": 0}, {"at_ns": 2**61}, {"at_ns": 1.5}, {"at_s": "now"}],
                *[{"at_s": 1e12}, {"pid": None}, {"exit_code": "0"}, {"codes": 3}],
                *[{"codes": {"1": "9"}}, {"signal": 9}],
            )
        ),
    ],
)
def test_what_is_no_note_is_left_out(tmp_path: Path, text: str) -> None:
    write_note(tmp_path)
    (tmp_path / note_name("f" * 16)).write_text(text, encoding="utf-8")
    assert [note.node for note in read_nodes(tmp_path).notes] == [NODE]


def test_names_from_elsewhere_are_cleaned(tmp_path: Path) -> None:
    note = read_node(write_note(tmp_path, host="a\x1b[2Jb" * 100, signal="SIG\nTERM"))
    assert note is not None
    assert "\x1b" not in note.host and "\n" not in note.signal and len(note.host) <= 255
    assert read_node(tmp_path / "node_x.json") is None


def test_collecting_brings_notes_along_and_keeps_the_newest(tmp_path: Path) -> None:
    one, two, into = (tmp_path / name for name in ("one", "two", "into"))
    write_training(one)
    two.mkdir()
    for rank_file in one.glob("rank_1.*"):
        rank_file.replace(two / rank_file.name)
    write_note(one, at_ns=10)
    write_note(two, at_ns=20, exit_code=0)  # a later copy of the same
    write_note(two, "f" * 16)
    assert main(["collect", str(two), str(one), "--into", str(into)]) == 0
    found = {note.node: note for note in read_nodes(into).notes}
    assert set(found) == {NODE, "f" * 16} and found[NODE].exit_code == 0
