"""`pyddpdiag hang` names who holds up a real run of three ranks, from outside and within seconds."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import ran
from support.stuck import training, wait_for

from pyddpdiag.live.hang import hang
from pyddpdiag.live.state import Hang
from pyddpdiag.system import processes

WITHIN_S = 5.0
NOTED_S = 60.0


ATTEMPTS = 3


def ask(folder: Path) -> Hang:
    """The answer within the promised time. Other work on the machine may spoil some attempts, but not all."""
    took = []
    for _ in range(ATTEMPTS):
        begin = time.monotonic()
        found = hang(folder)
        took.append(time.monotonic() - begin)
        if took[-1] < WITHIN_S:
            return found
    pytest.fail(f"none of the answers came within {WITHIN_S} s: {took}")


def only(found: Hang) -> tuple[str, int | None]:
    """Kind and rank of the first finding."""
    assert (found.status, found.exit_code) == ("found", 1)
    assert found.line == found.findings[0].message[:1].upper() + found.findings[0].message[1:]
    return found.findings[0].kind, found.findings[0].rank


def states(found: Hang) -> list[str]:
    return [rank.state for rank in found.ranks]


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped by a signal")
def test_a_run_that_moves_then_has_a_stopped_rank_then_a_killed_one(tmp_path: Path) -> None:
    with training(tmp_path, 3) as ranks:
        moving = ask(ranks.folder)
        assert (moving.status, moving.exit_code, moving.findings, moving.stacks) == ("moving", 0, (), ())
        assert states(moving) == ["moving"] * 3

        ranks.process(1).suspend()
        stopped = ask(ranks.folder)
        assert only(stopped) == ("rank_stopped", 1)
        assert stopped.ranks[1].state == "stopped"
        assert str(ranks.process(1).pid) in stopped.findings[0].advice
        ranks.process(1).resume()
        wait_for(lambda: hang(ranks.folder, stacks=False).status == "moving", 60)

        ranks.process(2).kill()
        wait_for(lambda: processes.find(ranks.processes[2].pid or 0) is None, 60)
        killed = ask(ranks.folder)
        assert only(killed) == ("rank_lost", 2)
        assert killed.ranks[2].state == "dead"
        # The others may fail by their own errors in the end; that does not make them culprits.
        wait_for(lambda: hang(ranks.folder, stacks=False).ranks[0].state != "moving", 60)
        assert only(ask(ranks.folder)) == ("rank_lost", 2)


def test_a_rank_that_sleeps_in_its_own_code_is_named_with_what_it_never_began(tmp_path: Path) -> None:
    with training(tmp_path, 3, "sleeps") as ranks:
        wait_for(lambda: hang(ranks.folder, stacks=False).status != "moving", 60)
        found = ask(ranks.folder)
        assert only(found) == ("rank_stuck", 1)
        assert states(found) == ["waiting", "busy", "waiting"]
        missed = found.ranks[1].missing_from
        assert missed is not None and missed.kind == "bucket" and missed.parameters and missed.bytes
        assert {rank.waits_in.what for rank in found.ranks if rank.waits_in} == {missed.what}
        assert found.suspects == (1,)
        _the_command_line(ranks.folder)
        _stacks_where_py_spy_is(ranks.folder, tmp_path)
        _lines_without_it(ranks.folder)


def _lines_without_it(folder: Path) -> None:
    """Each rank notes its line once it has recorded nothing for some time: who waits, and who is waited for."""
    lines: list[str] = []
    deadline = time.monotonic() + NOTED_S
    while not (lines and all(lines)) and time.monotonic() < deadline:
        lines = [rank.line for rank in hang(folder, stacks=False).ranks]
    assert lines[0] == lines[2] and "hooked.py:" in lines[0] and "stuck.py:" in lines[1], lines


def _the_command_line(folder: Path) -> None:
    """Text, JSON and exit code of the command itself."""
    command = [sys.executable, "-m", "pyddpdiag", "hang", str(folder), "--no-stacks"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    text = ran(*command, timeout_s=60, env=environment)
    assert text.returncode == 1 and text.stderr == ""
    assert "Rank 1 is stuck in its own code" in text.stdout and "never began bucket" in text.stdout
    done = ran(*command, "--json", timeout_s=60, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, answer["exit_code"], answer["status"]) == (1, 1, "found")
    assert answer["findings"][0]["kind"] == "rank_stuck" and answer["ranks"][1]["state"] == "busy"
    assert answer["stacks"] == []


def _stacks_where_py_spy_is(folder: Path, scratch: Path) -> None:
    """With py-spy its stack, or the reason why not; without, what to install."""
    (stack,) = hang(folder, limit_s=30).stacks
    assert stack.rank == 1
    assert "oversleep" in stack.text or "py-spy" in stack.why


def test_a_rank_that_left_out_a_barrier_is_behind(tmp_path: Path) -> None:
    with training(tmp_path, 3, "skips") as ranks:
        wait_for(lambda: hang(ranks.folder, stacks=False).status != "moving", 60)
        found = ask(ranks.folder)
        assert only(found) == ("rank_behind", 1)
        assert states(found) == ["waiting"] * 3
        missed = found.ranks[1].missing_from
        assert missed is not None and missed.what == "gloo:barrier"


def test_a_run_that_ended_in_good_order_and_one_whose_rank_died(tmp_path: Path) -> None:
    with training(tmp_path, 2, "ends") as ranks:
        wait_for(lambda: hang(ranks.folder, stacks=False).status == "ended", 60)
        assert ask(ranks.folder).exit_code == 0
    with training(tmp_path / "again", 2, "dies") as ranks:
        wait_for(lambda: ranks.processes[1].exitcode is not None, 60)
        assert only(ask(ranks.folder)) == ("rank_lost", 1)
        # The survivor fails by a connection that broke, and dies of it: it cried, but was not the first.
        wait_for(lambda: ranks.processes[0].exitcode is not None, 60)
        over = ask(ranks.folder)
        assert only(over) == ("rank_lost", 1)
        assert [rank.state for rank in over.ranks] == ["dead", "dead"]
        assert over.ranks[0].error is not None and over.ranks[1].error is None
