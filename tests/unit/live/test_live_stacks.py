"""Stacks by py-spy: a program that is missing, refused, slow or broken costs a sentence and no more."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from pyddpdiag.live import hang
from pyddpdiag.live.state import Hang, RankState

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="the stand-in for py-spy is a script with a #! line"
)


def a_hang(*states: tuple[int, str]) -> Hang:
    ranks = tuple(RankState(rank, state, pid=1000 + rank) for rank, state in states)  # type: ignore[arg-type]
    suspects = tuple(rank.rank for rank in ranks)
    return Hang("run", "", len(ranks), "found", "", (), ranks, suspects, 0.0)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A py-spy of the test's own; the test writes what it does."""
    path = tmp_path / "py-spy"
    monkeypatch.setattr(hang, "find_program", lambda: str(path))
    return path


def write(path: Path, body: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n", encoding="utf-8")
    path.chmod(0o700)


def test_what_it_says_is_cut_and_cleaned(program: Path) -> None:
    write(program, "print('evil\\x1b[31m', sys.argv[3]); print('line\\n' * 500)")
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 20)
    lines = stack.text.split("\n")
    assert (stack.rank, stack.pid, stack.why) == (1, 1001, "")
    assert lines[0].endswith("1001") and "\x1b" not in stack.text
    assert len(lines) == hang.MOST_LINES + 1 and "more lines" in lines[-1]


def test_without_native_frames_it_asks_again(program: Path) -> None:
    write(program, "sys.exit('no native frames here') if '--native' in sys.argv else print('python frames')")
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 20)
    assert (stack.text, stack.why) == ("python frames", "")


def test_a_stopped_process_is_not_held(program: Path) -> None:
    write(program, "print('held' if '--native' in sys.argv else 'left alone')")
    dumped = hang.stacks_of(a_hang((1, "stopped"), (2, "busy")), 20)
    assert [stack.text for stack in dumped] == ["left alone", "held"]


def test_a_refusal_says_what_to_do(program: Path) -> None:
    write(program, "sys.exit('Permission Denied: Try running again with elevated permissions')")
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 20)
    assert stack.text == "" and "may not look into process 1001" in stack.why and "sudo py-spy" in stack.why
    write(program, "sys.exit('Error: Failed to find python\\x1b version')")
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 20)
    assert "Failed to find python" in stack.why and "\x1b" not in stack.why


def test_a_slow_one_is_given_up(program: Path) -> None:
    write(program, "time.sleep(600)")
    begin = time.monotonic()
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 0.5)
    assert time.monotonic() - begin < 60
    assert stack.text == "" and "took longer" in stack.why


def test_what_cannot_be_started(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stack,) = hang.stacks_of(a_hang((1, "busy")), 5)
    assert "cannot be started" in stack.why
    monkeypatch.setattr(hang, "find_program", lambda: None)
    assert [each.why for each in hang.stacks_of(a_hang((1, "busy"), (2, "waiting")), 5)] == [
        hang.NOT_INSTALLED
    ] * 2


def test_few_are_asked_and_never_this_process(program: Path) -> None:
    import os
    from dataclasses import replace

    write(program, "print('frames')")
    many = a_hang(*((rank, "busy") for rank in range(9)))
    assert len(hang.stacks_of(many, 20)) == hang.MOST_RANKS
    own = replace(many, ranks=(RankState(0, "busy", pid=os.getpid()),), suspects=(0,))
    assert hang.stacks_of(own, 20) == ()
