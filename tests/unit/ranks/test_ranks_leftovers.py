"""Rendezvous files and introductions of other programs: one clear error each, soon, and nothing of theirs is shown.

Needs no torch: the store is a dictionary.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyddpdiag.errors import RendezvousError
from pyddpdiag.ranks import meeting, stale
from pyddpdiag.ranks.meeting import KEY, MARK, MAX_BYTES, Hello, introduce, meet
from pyddpdiag.ranks.rendezvous import FileTarget, Place
from pyddpdiag.ranks.stale import FileState, await_usable, judge, read_hellos
from pyddpdiag.system import processes
from pyddpdiag.system.regular_file import NotAFileError, RegularFile

PLACE = Place(0, 2, 2, FileTarget("unused"))
MINE = introduce(PLACE, {"--seed": "0", "--lr": "0.1"}, None)
ESCAPE = "\x1b]0;owned\x07\x1b[2J"
# Far below the timeout that is given, and far above what it takes.
SOON_S = 30.0


class DictStore:
    """A store for ranks in threads of one process."""

    def __init__(self, **values: bytes) -> None:
        self.values = values
        self._lock = threading.Lock()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._lock:
            if self.values.get(key, b"").decode("latin-1") == expected:
                self.values[key] = desired.encode()
            return self.values[key]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_LINGER_S", 0.0)
    monkeypatch.setattr(stale, "_RETRY_FOR_S", 0.1)


def hello(rank: int, **changes: object) -> Hello:
    return replace(MINE, rank=rank, **changes)


def refusal(path: Path) -> RendezvousError:
    """The error that a file is refused with, at once whatever the timeout."""
    begin = time.monotonic()
    with pytest.raises(RendezvousError) as caught:
        await_usable(path, PLACE, 300)
    assert time.monotonic() - begin < SOON_S
    return caught.value


def meeting_error(at_rank_1: bytes) -> RendezvousError:
    """The error of rank 0 when this stands at the place of rank 1."""
    begin = time.monotonic()
    with pytest.raises(RendezvousError) as caught:
        meet(DictStore(**{f"{KEY}1": at_rank_1}), MINE, 300, "the file")
    assert time.monotonic() - begin < SOON_S
    return caught.value


def test_ranks_meet_over_this_store() -> None:
    store, both = DictStore(), [hello(0), hello(1)]
    other = threading.Thread(target=meet, args=(store, both[1], 30, "the file"))
    other.start()
    assert meet(store, both[0], 30, "the file") == both
    other.join()


# Files


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes in the file system")
def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "not a file" in refusal(path).message


def link(path: Path, target: Path) -> Path:
    try:
        path.symlink_to(target)
    except OSError:
        pytest.skip("this user may not make links here")
    return path


@pytest.mark.parametrize("target", ["empty", "missing"])
def test_a_link_is_not_usable_whatever_it_leads_to(target: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "link" in refusal(link(tmp_path / "link", tmp_path / target)).message
    assert (tmp_path / "empty").read_bytes() == b""


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_link_to_a_device_without_an_end_costs_no_memory(tmp_path: Path) -> None:
    assert "link" in refusal(link(tmp_path / "link", Path("/dev/zero"))).message
    assert "not a file" in refusal(Path("/dev/zero")).message


def test_a_file_with_a_second_name_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "somebodys").touch()
    try:
        (tmp_path / "store").hardlink_to(tmp_path / "somebodys")
    except OSError:
        pytest.skip("this file system has no hard links")
    assert "another name" in refusal(tmp_path / "store").message


def test_a_pipe_that_takes_the_place_of_a_file_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked by name may be something else when it is opened."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes in the file system")
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    status = file.lstat()
    monkeypatch.setattr(Path, "lstat", lambda self: status)
    with pytest.raises(NotAFileError, match="not a file"):
        RegularFile(pipe, links=False)
    if hasattr(os, "O_NOFOLLOW"):
        with pytest.raises(OSError):
            RegularFile(link(tmp_path / "link", file), links=False)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(MARK.encode() * 700_000, id="nested"),
        pytest.param((MARK + '1, "problem": "').encode() * 400_000, id="open strings"),
        pytest.param((MARK + "[" * 60_000).encode() * 200, id="deep"),
        pytest.param(hello(1, pid=2**31, started=0.0).to_json().encode() * 10_000, id="very many"),
        pytest.param(bytes(20_000_000), id="zeros"),
    ],
)
def test_a_file_made_to_keep_us_busy_is_refused_soon(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    assert "not written by pyddpdiag" in refusal(path).message
    assert path.stat().st_size == len(content)


def test_many_ranks_of_an_earlier_run_are_no_attack() -> None:
    dead = [replace(hello(0), rank=rank, world_size=3000, pid=2**31, started=0.0) for rank in range(3000)]
    content = b"\0\xff".join(one.to_json().encode() for one in dead)
    assert read_hellos(content) == dead
    begin = time.monotonic()
    assert judge(content, PLACE, 30, time.time())[0] is FileState.STALE
    assert time.monotonic() - begin < SOON_S


def test_a_torn_introduction_hides_no_other() -> None:
    torn = hello(1).to_json()[:100].encode()
    assert read_hellos(torn + b"\0" + hello(0).to_json().encode()) == [hello(0)]


# Introductions


def changed(**changes: object) -> bytes:
    return json.dumps({"pyddpdiag_hello": 1, **asdict(hello(1)), **changes}).encode()


STRANGE = {
    "nothing": b"",
    "not text": b"\xff\xfe\x00",
    "not JSON": b"{",
    "no object": b"[]",
    "null": b"null",
    "deep": b"[" * 60_000,
    "too long": changed(problem="x" * MAX_BYTES),
    "another version": changed(pyddpdiag_hello=2),
    "no mark": json.dumps(asdict(hello(1))).encode(),
    "a field too much": changed(extra=1),
    "a field too few": json.dumps({"pyddpdiag_hello": 1, "rank": 1}).encode(),
    "rank is text": changed(rank="1"),
    "rank is true": changed(rank=True),
    "rank is half": changed(rank=1.0),
    "rank below 0": changed(rank=-1),
    "rank outside of its world": changed(rank=7),
    "world of none": changed(world_size=0),
    "pid below 0": changed(pid=-1),
    "pid of 30 digits": changed(pid=10**30),
    "started is NaN": changed(started=float("nan")),
    "started is infinite": changed(started=float("inf")),
    "started is text": changed(started="yesterday"),
    "at is null": changed(at=None),
    "at is too far": changed(at=1e300),
    "machine is a list": changed(machine=["a"]),
    "settings are a list": changed(settings=[1]),
    "settings hold a number": changed(settings={"--seed": 1}),
    "settings without end": changed(settings={str(n): "" for n in range(1000)}),
    "payload is a number": changed(payload=3),
    "payload with a NUL": changed(payload="a\0b"),
    "problem is null": changed(problem=None),
}


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_what_is_no_introduction_is_one_clear_error(value: bytes) -> None:
    with pytest.raises(ValueError):
        Hello.from_json(value)
    error = meeting_error(value)
    assert "Something other than a rank" in error.message and "the place of rank 1: it" in error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(asdict(MINE))), JSON)
def test_any_value_of_a_field_is_taken_or_refused(field: str, value: object) -> None:
    try:
        taken = Hello.from_json(json.dumps({"pyddpdiag_hello": 1, **asdict(hello(1)), field: value}))
    except ValueError:
        return
    # What is taken can be worked with.
    assert taken.who().isprintable()
    assert processes.is_alive(taken.pid, taken.started) in (True, False)
    assert Hello.from_json(taken.to_json()).rank == taken.rank


def test_a_rank_under_the_key_of_another_is_not_believed() -> None:
    three = replace(MINE, world_size=3)
    store = DictStore(**{f"{KEY}1": replace(three, rank=2).to_json().encode()})
    with pytest.raises(RendezvousError, match=r"rank 2 \(pid .*\) introduced itself at the place of rank 1"):
        meet(store, three, 300, "the file")


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": f"no{ESCAPE}"},
        {"world_size": 9, "machine": f"host{ESCAPE}"},
        {"settings": {**MINE.settings, "--seed": f"1{ESCAPE}"}},
        {"settings": {**MINE.settings, f"--{ESCAPE}": "x"}},
    ],
    ids=["problem", "machine", "setting", "option"],
)
def test_nothing_that_drives_a_terminal_is_shown(changes: dict[str, object]) -> None:
    message = meeting_error(hello(1, **changes).to_json().encode()).message
    assert message.isprintable()
    assert len(message) < 5000


def test_nor_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_text(hello(0, machine=f"far{ESCAPE}").to_json(), encoding="ascii")
    message = refusal(path).message.replace(str(path), "")
    assert "far" in message and message.isprintable()


def test_a_rank_cuts_its_own_words_to_what_others_take() -> None:
    long = hello(1, problem="\N{SNOWMAN}" * 10**6)
    assert Hello.from_json(long.to_json()).problem == long.problem[:2000]
