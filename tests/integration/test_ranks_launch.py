"""Ranks whose job is no training: what it is given, what comes back, and what is reported on the way."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pyddpdiag.errors import RankFailedError, TrainError, UsageError
from pyddpdiag.ranks.launch import Node, launch
from pyddpdiag.ranks.rendezvous import FileTarget, Place
from pyddpdiag.ranks.session import Finished, JobMessage, Joined, Note, Options, Session

pytestmark = pytest.mark.usefixtures("forked_launches")
OPTIONS = Options(timeout_s=100)


@dataclass(frozen=True)
class Answer:
    """Nothing that ranks know of."""

    factor: int
    total: float
    payload: str | None


def _add_up(factor: int, session: Session) -> Answer:
    session.tell(("rank", session.place.rank))
    session.send(Note("adding up"))
    value = torch.tensor(float(factor * (session.place.rank + 1)))
    dist.all_reduce(value)
    return Answer(factor, value.item(), session.payload)


def _nothing(session: Session) -> None:
    del session


def test_a_job_gets_the_payload_tells_and_returns_what_it_likes() -> None:
    events: list[object] = []
    answer = launch(partial(_add_up, 10), OPTIONS, Node(3), prepare=lambda: "for all", on_event=events.append)
    assert answer == Answer(10, 60.0, "for all")
    assert sorted(e.rank for e in events if isinstance(e, Joined)) == [0, 1, 2]
    assert sorted(e.what for e in events if isinstance(e, JobMessage)) == [
        ("rank", rank) for rank in range(3)
    ]
    assert {e.rank: e.result for e in events if isinstance(e, Finished)} == dict.fromkeys(range(3), answer)
    notes = {e.text for e in events if isinstance(e, Note)}
    assert len(notes) == 2 and "adding up" in notes and any("loopback interface" in text for text in notes)


def test_prepare_comes_last_and_its_error_starts_nothing() -> None:
    called: list[str] = []

    def prepare() -> None:
        called.append("prepare")
        raise TrainError("no place for a trace")

    with pytest.raises(UsageError, match="no-such-card"):
        launch(_nothing, Options(interfaces=("no-such-card",)), Node(2), prepare=prepare)
    assert not called
    with pytest.raises(TrainError, match="no place"):
        launch(_nothing, OPTIONS, Node(2), prepare=prepare)


def test_ranks_of_two_launches_that_must_agree_refuse_each_other(tmp_path: Path) -> None:
    found: dict[int, RankFailedError] = {}

    def one(machine: int, limit: str) -> None:
        options = Options(timeout_s=100, settings={"the limit": limit})
        node = Node(1, Place(machine, 2, 2, FileTarget(str(tmp_path / "meet"))))
        try:
            launch(_nothing, options, node)
        except RankFailedError as error:
            found[machine] = error

    threads = [threading.Thread(target=one, args=arguments) for arguments in ((0, "5"), (1, "6"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(110)
    assert set(found) == {0, 1}
    assert all("the limit differs" in error.message for error in found.values())
