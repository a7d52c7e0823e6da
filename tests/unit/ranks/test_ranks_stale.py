"""Files of earlier runs, distinguished from those of this run."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from pyddpdiag.errors import RendezvousError
from pyddpdiag.ranks import stale
from pyddpdiag.ranks.meeting import KEY, Hello, introduce
from pyddpdiag.ranks.rendezvous import FileTarget, Place
from pyddpdiag.ranks.stale import FileState, await_usable, judge, read_hellos

PLACES = [Place(rank, 2, 2, FileTarget("unused")) for rank in range(2)]
DEAD = {"pid": os.getpid(), "started": 1000.0}  # this pid, but a process of 1970


def hello(rank: int, **changes: object) -> Hello:
    return replace(introduce(PLACES[rank], {"--seed": "0"}, None), **changes)


def store_file(path: Path, *hellos: Hello) -> bytes:
    """The real bytes of a FileStore that holds these introductions, left behind as by killed ranks."""
    store = dist.FileStore(str(path), -1)
    for one in hellos:
        store.set(f"{KEY}{one.rank}", one.to_json())
    del store  # appends a last entry
    return path.read_bytes()


def state(content: bytes, rank: int) -> FileState:
    return judge(content, PLACES[rank], 30, time.time())[0]


def test_introductions_are_found_in_a_real_store_file(tmp_path: Path) -> None:
    hellos = [hello(0), hello(1, problem='with "quotes" and }')]
    assert read_hellos(store_file(tmp_path / "store", *hellos)) == hellos


@given(st.binary(max_size=400), st.integers(0, 200))
def test_garbage_around_or_in_introductions_does_no_harm(garbage: bytes, cut: int) -> None:
    text = hello(0).to_json().encode()
    assert read_hellos(garbage + text + garbage)[-1 if b"pyddpdiag" not in garbage else 0].rank == 0
    read_hellos(text[:cut] + garbage)


def test_what_a_file_is(tmp_path: Path) -> None:
    live, dead = hello(0), hello(0, **DEAD)
    far = replace(live, machine="elsewhere")
    old = time.time() - 1000
    cases = [
        ((), 0, FileState.FOREIGN),
        ((live,), 1, FileState.USABLE),
        ((live,), 0, FileState.BUSY),
        ((dead,), 0, FileState.STALE),
        ((dead, hello(1, **DEAD)), 1, FileState.STALE),
        ((dead, hello(1)), 0, FileState.BUSY),
        ((replace(live, at=old),), 1, FileState.BUSY),
        ((far,), 1, FileState.USABLE),
        ((far,), 0, FileState.UNKNOWN),
        ((replace(far, at=old),), 1, FileState.UNKNOWN),
    ]
    for number, (hellos, rank, expected) in enumerate(cases):
        content = store_file(tmp_path / str(number), *hellos)
        assert state(content, rank) is expected, (number, hellos, rank)
    assert state(b"", 0) is FileState.USABLE
    assert state(b"notes of mine", 0) is FileState.FOREIGN


def test_rank_0_removes_a_stale_file_and_others_wait_for_that(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store_file(path, hello(0, **DEAD), hello(1, **DEAD))
    came = threading.Event()

    def rank_1() -> None:
        await_usable(path, PLACES[1], 20)
        came.set()

    thread = threading.Thread(target=rank_1)
    thread.start()
    assert not came.wait(0.5)
    await_usable(path, PLACES[0], 20)
    assert not path.exists()
    assert came.wait(5)
    thread.join()


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_rank_left_that_could_not_start_is_heard_by_those_that_come_after_its_end(
    tmp_path: Path, rank: int
) -> None:
    path = tmp_path / "store"
    failed = hello(1 - rank, problem="no such interface", **DEAD)
    store_file(path, failed)
    with pytest.raises(RendezvousError, match=f"rank {1 - rank} cannot start: no such interface"):
        await_usable(path, PLACES[rank], 30)
    # Of an earlier run it is no news.
    path.unlink()
    store_file(path, replace(failed, at=1000.0))
    if rank == 0:
        await_usable(path, PLACES[0], 30)
        assert not path.exists()


def test_other_ranks_never_remove_it(tmp_path: Path) -> None:
    path = tmp_path / "store"
    content = store_file(path, hello(0, **DEAD))
    with pytest.raises(RendezvousError, match="left over from an earlier run"):
        await_usable(path, PLACES[1], 0.3)
    assert path.read_bytes() == content


@pytest.mark.parametrize("rank", [0, 1])
def test_a_file_that_is_not_ours_is_refused_and_kept(
    tmp_path: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stale, "_RETRY_FOR_S", 0.2)
    path = tmp_path / "notes.txt"
    path.write_text("notes of mine")
    with pytest.raises(RendezvousError, match="not written by pyddpdiag"):
        await_usable(path, PLACES[rank], 20)
    assert path.read_text() == "notes of mine"


def test_a_missing_folder_and_a_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RendezvousError, match="does not exist"):
        await_usable(tmp_path / "no" / "store", PLACES[0], 1)
    with pytest.raises(RendezvousError, match="cannot be read"):
        await_usable(tmp_path, PLACES[0], 1)
