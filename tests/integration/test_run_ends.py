"""How real jobs end under `pyddpdiag run`: who is named, with what error and line, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from support import ended_job
from support.commands import python
from train_support import USUAL, ended, finish, records_published, started, wait_for

from pyddpdiag.pipeline import load_report

RUN = (sys.executable, "-m", "pyddpdiag", "run", "--trace", "run", "--")
JOB = (sys.executable, ended_job.__file__)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
posix = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system ends processes without signals")

# Each child of this process asks for the note, ends in one way, and leaves its status and its note.
SIGNALS = """
import ctypes, json, os, pty, resource, signal, sys
from pathlib import Path
from pyddpdiag import _native

def kill():
    os.kill(os.getpid(), signal.SIGTERM)

def forked():
    child = os.fork()
    if not child:
        kill()
    os._exit(3 if os.waitpid(child, 0)[1] == signal.SIGTERM else 4)

def handled(when):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    if when == "before":
        _native.note_last_signal(note)
    kill()

def unseen():
    os._exit(5 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 6)

def forgotten():
    _native.forget_last_signal(note)
    kill()

def ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _native.note_last_signal(note)
    os.kill(os.getpid(), signal.SIGHUP)
    os._exit(8)

def terminal(types):
    child, end = pty.fork()
    if not child:
        _native.note_last_signal(note + " there")
        print("ready", flush=True)
        signal.pause()
    os.read(end, 1)
    os.write(end, b"\x1c") if types else os.close(end)
    os._exit(10 + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def limited():
    resource.setrlimit(resource.RLIMIT_CPU, (1, 60))
    while True:
        pass

WAYS = {
    "sent": kill, "aborts": os.abort, "crashes": lambda: ctypes.string_at(0), "forked": forked, "unseen": unseen,
    "handled before": lambda: handled("before"), "handled after": lambda: handled("after"), "forgotten": forgotten,
    "ignored": ignored, "typed": lambda: terminal(True), "hung up": lambda: terminal(False), "limited": limited,
}
# Whoever started this may have ignored some, as nohup does.
for each in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGXCPU):
    signal.signal(each, signal.SIG_DFL)
found = {}
for way, end in WAYS.items():
    note = str(Path(sys.argv[1], way))
    child = os.fork()
    if not child:
        if way not in ("handled before", "ignored"):
            _native.note_last_signal(note)
        end()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    words = Path(note).read_text().split() if Path(note).exists() else []
    found[way] = [status, int(words[1]) if words[:1] == [str(child)] and int(words[2]) > 0 else None]
print(json.dumps(found))
"""


@posix
def test_a_signal_is_noted_and_ends_the_process_as_ever(tmp_path: Path) -> None:
    """Where nothing else handles it; a handler of the script's own sees it alone."""
    done = python("-c", SIGNALS, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sent": [-signal.SIGTERM, signal.SIGTERM],
        "aborts": [-signal.SIGABRT, signal.SIGABRT],
        "crashes": [-signal.SIGSEGV, signal.SIGSEGV],
        "forked": [3, None],
        "unseen": [5, None],
        "handled before": [7, None],
        "handled after": [7, None],
        "forgotten": [-signal.SIGTERM, None],
        "ignored": [8, None],
        "typed": [10 - signal.SIGQUIT, None],
        "hung up": [10 - signal.SIGHUP, None],
        "limited": [-signal.SIGXCPU, signal.SIGXCPU],
    }


def test_a_rank_that_evaluates_for_longer_than_the_others_wait(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    code, err = ended(*RUN, *torchrun, ended_job.__file__, "evaluates", cwd=tmp_path)
    report = load_report(tmp_path / "run")
    line = report.verdict.line
    assert code == 1, err
    assert line.startswith("Rank 0 was in its own code for ") and line.endswith(" until its timeout."), line
    assert (
        f", at {ended_job.line_of('the line that the report names')}, while rank 1 waited in bucket " in line
    )
    assert report.verdict.findings[0].rank == 0
    assert report.ranks[1].ended_by in ("RuntimeError", "DistBackendError")
    if hasattr(signal, "SIGHUP"):
        assert report.ranks[0].ended_by == "SIGTERM"


def test_an_exception_in_one_rank_is_the_answer(tmp_path: Path) -> None:
    """The script's ranks are ended by their parent, as soon as one has failed."""
    code, err = ended(*RUN, *JOB, "fails", str(tmp_path), cwd=tmp_path)
    report = load_report(tmp_path / "run")
    assert code == 1 and "KeyError" in err
    where = ended_job.line_of("the line that fails")
    assert report.verdict.line.startswith(f"Rank 1 ended by KeyError: 'label_17', at {where} (last seen"), err
    assert [one.kind for one in report.verdict.findings if one.severity == "error"] == ["rank_lost"]


@posix
def test_an_abort_of_gloo_is_reported_as_itself(tmp_path: Path) -> None:
    """One rank calls an all-reduce of its own, so that the ranks' tensors have different sizes."""
    code, err = ended(*RUN, *JOB, "aborts", str(tmp_path), cwd=tmp_path)
    first, second = load_report(tmp_path / "run").verdict.findings[:2]
    assert code == 1, err
    assert (first.kind, first.rank) == ("mismatched_all_reduce", 0), err
    assert "rank 0 called gloo:all_reduce 1 time more than rank 1" in first.message
    # Of the rank that Gloo aborts, whose script never hears of it.
    assert first.where == ended_job.line_of("the call that one rank makes alone"), first.message
    assert (second.kind, second.rank, second.evidence["error"]) == ("rank_lost", 0, "SIGABRT")
    assert "Received data size doesn't match expected size" in second.message


@posix
def test_ctrl_c_is_an_interruption(tmp_path: Path) -> None:
    with started([*RUN, *JOB, "interrupted", str(tmp_path)], tmp_path, **USUAL) as process:
        folder = tmp_path / "run"
        wait_for(lambda: min(records_published(folder, rank) for rank in range(2)) > 50, 200, "training")
        os.killpg(process.pid, signal.SIGINT)
        _, _, err = finish(process)
    assert json.loads((folder / "command.json").read_text(encoding="utf-8"))["signal"] == "SIGINT", err
    report = load_report(folder)
    assert report.verdict.line.startswith("Interrupted in step ") and "(Ctrl-C)." in report.verdict.line
    assert not [one for one in report.verdict.findings if one.severity == "error"], err


def test_where_nothing_was_recorded_the_reason_is_said(tmp_path: Path) -> None:
    code, err = ended(*RUN, *JOB, "uncalled", str(tmp_path), cwd=tmp_path)
    assert code == 0 and "its forward never called" in err and "ddp.module" in err
    (tmp_path / "early.py").write_text(
        "import os\nraise ValueError('no such data: cifar11')\n", encoding="utf-8"
    )
    code, err = ended(*RUN, sys.executable, "early.py", cwd=tmp_path)
    assert code == 1 and "exit code 1" in err
    assert "by ValueError: no such data: cifar11, at early.py:2." in err and "PYTHONPATH" not in err
