"""Ranks that introduce themselves to each other, over a real store of torch."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from pyddpdiag.errors import RendezvousError
from pyddpdiag.ranks import meeting
from pyddpdiag.ranks.meeting import Hello, introduce, meet
from pyddpdiag.ranks.rendezvous import FileTarget, Place
from pyddpdiag.system import processes


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_LINGER_S", 0.3)


def hello(rank: int, world_size: int, **changes: object) -> Hello:
    place = Place(rank, world_size, world_size, FileTarget("unused"))
    return replace(introduce(place, {"--seed": "0", "--lr": "0.1"}, "payload"), **changes)


def meet_all(tmp_path: Path, *hellos: Hello, timeout_s: float = 5) -> list[list[Hello] | RendezvousError]:
    """Lets each introduction meet the others from a thread of its own, in this order; the outcome of each."""
    outcomes: list[list[Hello] | RendezvousError] = [[] for _ in hellos]
    stores = [dist.FileStore(str(tmp_path / "store"), len(hellos)) for _ in hellos]

    def one(index: int) -> None:
        try:
            outcomes[index] = meet(stores[index], hellos[index], timeout_s, "the file")
        except RendezvousError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(hellos))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return outcomes


def test_all_meet_and_are_sorted_by_rank(tmp_path: Path) -> None:
    mine = [hello(2, 3), hello(0, 3), hello(1, 3)]
    for outcome in meet_all(tmp_path, *mine):
        assert outcome == sorted(mine, key=lambda h: h.rank)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    for outcome in meet_all(tmp_path, hello(0, 4), hello(2, 4), timeout_s=0.5):
        assert isinstance(outcome, RendezvousError)
        assert "2 of 4 ranks" in outcome.message
        assert "missing: 1, 3" in outcome.message


def test_different_world_sizes_are_reported_on_both_sides(tmp_path: Path) -> None:
    for outcome in meet_all(tmp_path, hello(0, 2), hello(1, 3), timeout_s=20):
        assert isinstance(outcome, RendezvousError)
        assert "world sizes differ" in outcome.message


def test_one_rank_twice_is_refused(tmp_path: Path) -> None:
    outcomes = meet_all(tmp_path, hello(0, 2, pid=1), hello(0, 2, pid=2), timeout_s=1)
    texts = sorted(o.message for o in outcomes if isinstance(o, RendezvousError))
    assert len(texts) == 2
    assert "Only 1 of 2" in texts[0]
    assert "rank 0 is there already" in texts[1]


def test_different_settings_are_named_by_their_option(tmp_path: Path) -> None:
    other = {"--seed": "5", "--lr": "0.1"}
    for outcome in meet_all(tmp_path, hello(0, 2), hello(1, 2, settings=other)):
        assert isinstance(outcome, RendezvousError)
        assert outcome.message.startswith("--seed differs:")


def test_a_setting_that_only_one_rank_has_is_named(tmp_path: Path) -> None:
    for outcome in meet_all(tmp_path, hello(0, 2), hello(1, 2, settings={"--seed": "0"})):
        assert isinstance(outcome, RendezvousError)
        assert outcome.message.startswith("--lr differs:")


def test_a_problem_of_one_rank_reaches_all(tmp_path: Path) -> None:
    for outcome in meet_all(tmp_path, hello(0, 2), hello(1, 2, problem="no such folder")):
        assert isinstance(outcome, RendezvousError)
        assert outcome.message == "rank 1 cannot start: no such folder"


def test_garbage_at_the_place_is_reported(tmp_path: Path) -> None:
    store = dist.FileStore(str(tmp_path / "store"), 2)
    store.set(f"{meeting.KEY}1", "not json")
    with pytest.raises(RendezvousError, match="Something other than a rank"):
        meet(store, hello(0, 2), 5, "the file")


def test_a_reason_in_the_store_is_shown_as_text_whatever_it_is(tmp_path: Path) -> None:
    from pyddpdiag.ranks.group import Group

    place = Place(0, 2, 2, FileTarget("unused"))
    for number, left in enumerate([b"\xff\xfe broken", b"\x1b]0;title\x07 rank 9", b"long" * 10**6]):
        store = dist.FileStore(str(tmp_path / str(number)), 1)
        store.set("pyddpdiag/failed", left)
        reason = Group(place, store, []).reason_of_failure()
        assert reason and reason.isprintable() and len(reason) <= 1000


def test_a_rank_whose_process_was_killed_is_named_by_a_survivor(tmp_path: Path) -> None:
    from pyddpdiag.ranks.group import Group

    begun = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        others = [
            hello(rank, 4, pid=process.pid, started=processes.started_at(process.pid))
            for rank, process in enumerate(begun, start=1)
        ]
        far = hello(3, 4, machine="elsewhere", pid=1, started=0.0)
        store = dist.FileStore(str(tmp_path / "store"), 4)
        group = Group(Place(0, 4, 4, FileTarget("unused")), store, [hello(0, 4), *others, far])
        assert group.wait_for_reason(0.1) == ""
        begun[1].kill()
        name = others[1].who()
        assert group.wait_for_reason(10) == f"{name} is gone: its process has ended and left no reason."
        begun[0].kill()
        begun[0].wait()
        assert "which of them failed first is unknown" in group.wait_for_reason(10)
        group.tell_failure("rank 2 failed with ValueError: mine")
        assert group.wait_for_reason(10) == "rank 2 failed with ValueError: mine"
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def test_introductions_survive_json() -> None:
    mine = hello(1, 2, problem='a "quoted" {brace} \u00e9 \\ back')
    assert Hello.from_json(mine.to_json()) == mine
    assert mine.to_json().isascii()
