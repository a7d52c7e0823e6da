"""What is said while a command runs and nothing trains: what was seen, what is missing, how far a trial is."""

import json
import os
import re
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.integrations import early_end
from pyddpdiag.integrations.early_end import Early, Watch
from pyddpdiag.integrations.meanwhile import Meanwhile
from pyddpdiag.model.tried import Tried, TriedCure, tried_to_json


class Clock:
    """Time that passes when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def pass_(self, asked: Meanwhile, s: float) -> bool:
        """Whether it is enough, asked every three seconds."""
        until = self.now + s
        while self.now < until:
            self.now += 3
            if asked.enough():
                return True
        return False


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv(early_end.NOTES, str(folder))
    return folder


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_after_half_a_minute_one_line_says_what_is_missing(
    notes: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, process = Meanwhile(notes, tmp_path / "run"), Watch()
    process.note("loaded")
    process.note("joined", backend="nccl")
    process.note("stepped")
    assert not clock.pass_(asked, 27) and capsys.readouterr().err == ""
    assert not clock.pass_(asked, 300)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pyddpdiag run: no DDP pass in 30")
    assert "1 Python process with torch, 1 in a process group (nccl), 0 with a DDP module, 1 whose" in line
    assert line.endswith("Missing: a DistributedDataParallel module around the model.")


@pytest.mark.parametrize(
    ("done", "missing"),
    [
        ((), "a Python below the command that loads torch"),
        (("loaded",), "init_process_group"),
        (("loaded", "joined", "made"), "a call of the DDP module itself"),
    ],
)
def test_the_first_thing_that_lacks_is_named(
    done: tuple[str, ...],
    missing: str,
    notes: Path,
    tmp_path: Path,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = Watch()
    for kind in done:
        process.made() if kind == "made" else process.note(kind, backend="gloo")
    clock.pass_(Meanwhile(notes, tmp_path / "run"), 60)
    assert f"Missing: {missing}" in capsys.readouterr().err


def test_processes_that_wait_to_join_are_said_with_their_line(
    notes: Path,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ExitStack() as waiting:
        for pid in (71, 72):
            monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
            process = Watch()
            process.note("loaded")
            waiting.enter_context(process.joins(3))
        clock.pass_(Meanwhile(notes, tmp_path / "run"), 60)
    said = capsys.readouterr().err
    at = r"at \S*test_meanwhile\.py:\d+"
    assert re.search(
        rf"Missing: .*: 2 processes are in init_process_group\(world_size=3\) {at}, waiting", said
    ), said


def test_one_that_gave_up_joining_waits_no_more(notes: Path) -> None:
    with pytest.raises(TimeoutError), Watch().joins(3):
        assert len(early_end.read(notes).joining) == 1
        raise TimeoutError
    assert early_end.read(notes).joining == ()


def test_nothing_is_said_once_a_module_is_called(
    notes: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Meanwhile(notes, tmp_path / "run")
    Watch().note("called")
    clock.pass_(asked, 300)
    assert capsys.readouterr().err == ""


def test_a_trial_without_a_module_ends_at_its_time(
    notes: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Meanwhile(notes, tmp_path / "run", 120, ends=True)
    assert not clock.pass_(asked, 117)
    # Its progress meanwhile.
    assert capsys.readouterr().err.count("pyddpdiag try: no DDP pass in ") == 3
    assert clock.pass_(asked, 6)
    assert "no DistributedDataParallel module was made in 120" in asked.why and "--minutes 6" in asked.why


def test_its_command_goes_on_unless_it_was_to_be_ended(
    notes: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, process = Meanwhile(notes, tmp_path / "run", 120), Watch()
    assert not clock.pass_(asked, 300)
    assert capsys.readouterr().err.count("the command goes on without a trial") == 1
    # After all there is one.
    process.made()
    process.note("called")
    assert not clock.pass_(asked, 6) and not asked.why


def test_a_trial_that_may_yet_begin_is_waited_for(notes: Path, tmp_path: Path, clock: Clock) -> None:
    asked, process = Meanwhile(notes, tmp_path / "run", 60), Watch()
    process.made()
    assert not clock.pass_(asked, 600) and not asked.why


def test_a_trial_shows_how_far_it_is(
    notes: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    today = TriedCure("as it is")
    trial = Tried("in_run", "running", today, now="shared memory", minutes=2, took_s=40.0)
    for writer in write_training(tmp_path, steps=4):
        writer.sidecar["trial"] = tried_to_json(trial)
        writer.write(tmp_path)
    clock.pass_(Meanwhile(notes, tmp_path, 120), 33)
    line = capsys.readouterr().err
    assert line == "pyddpdiag try: 40.0 s of 120 s, 0 rounds; on now: shared memory.\n"


def test_the_command_of_such_a_trial_is_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A real one, which would sleep for ever."""
    program = "import time; time.sleep(100000)"
    trace = tmp_path / "run"
    assert (
        main(["try", "--stop", "--minutes", "0.03", "--trace", str(trace), sys.executable, "-c", program])
        == 2
    )
    said = " ".join(capfd.readouterr().err.split())
    assert "nothing was recorded: no DistributedDataParallel module was made in" in said
    assert not trace.exists() or not json.loads((trace / "command.json").read_text()).get("left_s")


def test_a_process_that_trained_alone_is_said_with_how_to_start_several() -> None:
    said = early_end.why_nothing(Early(loaded=1, stepped=1), 0)
    assert said.startswith("1 process trained in no process group.") and "torchrun --nproc-per-node 2" in said


def test_a_training_without_a_ddp_module_is_said_with_what_it_lacks() -> None:
    said = early_end.why_nothing(Early(loaded=2, stepped=2, groups=2, backends=("gloo",)), 0)
    assert said.startswith(
        "2 processes trained in a process group (gloo), and made no DistributedDataParallel module."
    )
    assert "wrap the model" in said
