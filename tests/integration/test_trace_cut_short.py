"""Somebody cuts a trace short while its rank trains: training goes on to its end, rightly, with a warning."""

import mmap
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support.forked_command import forked
from support.hooked import WAYS, backward, complete, register
from support.models import branches, gradient_bytes
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import read_trace

STEPS = 12
CUT_AT = 4
VICTIM = 1
HEADER = 4096

pytestmark = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows refuses to cut a mapped file short (tests/native/trace_lost_test.cpp)",
)


def _ddp() -> DistributedDataParallel:
    return DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)


def _job(rank: int, _: int, folder: str, way: str, how: str, by_steps: bool) -> dict[str, Any]:
    """Trains beside plain DDP; rank 1's trace is cut short in the middle of step 4."""
    plain, hooked = _ddp(), _ddp()
    same = True
    seen: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pyddpdiag.Recorder(folder) as recorder:
            register(recorder, hooked, way)
            size = recorder.path.stat().st_size
            for step in recorder.steps(range(STEPS)) if by_steps else range(STEPS):
                for ddp in (plain, hooked):
                    ddp.zero_grad()
                    if step == CUT_AT and rank == VICTIM and ddp is hooked:
                        _cut(recorder.path, how)
                    backward(ddp, rank, step)
                same = same and gradient_bytes(plain) == gradient_bytes(hooked)
            seen["warnings before the close"] = len(caught)
            recorder.resume()
        seen["size"] = (size, recorder.path.stat().st_size)
    seen["same"] = same
    seen["warnings"] = [str(warning.message) for warning in caught]
    return seen


def _cut(path: Path, how: str) -> None:
    if how == "header left":
        os.truncate(path, HEADER)
    elif how == "filled again":
        length = path.stat().st_size
        path.write_bytes(b"\xff" * length)
    else:
        # What `> rank_1.ddptrace` does.
        path.open("wb").close()


@pytest.mark.parametrize(
    ("way", "how", "by_steps"),
    [(way, how, by_steps) for way in WAYS for how, by_steps in (("empty", False), ("header left", True))]
    + [("native", "filled again", False)],
)
def test_training_goes_on(tmp_path: Path, way: str, how: str, by_steps: bool) -> None:
    if how == "header left" and mmap.PAGESIZE > HEADER:
        pytest.skip("this system's pages are larger than the header: the first records stay mapped")
    folder = tmp_path / "run"
    whole, cut = run_ranks(_job, 2, tmp_path, str(folder), way, how, by_steps)
    assert [whole["same"], cut["same"]] == [True, True]
    assert whole["warnings"] == []
    [warning] = cut["warnings"]
    assert "rank 1: the trace '" in warning
    assert "cut short or written over" in warning
    assert "training goes on" in warning
    assert cut["warnings before the close"] == 1
    assert cut["size"][1] == {"empty": 0, "header left": HEADER, "filled again": cut["size"][0]}[how]
    # The other rank's trace has nothing to do with it.
    other = read_trace(folder / "rank_0.ddptrace")
    assert other.header.closed
    assert len(set(complete(other, Kind.BUCKET)["step"].tolist())) == STEPS


def _at_any_moment(rank: int, _: int, folder: str) -> tuple[bool, int]:
    """Traces are cut short by another thread while collectives and buckets are under way."""
    plain = _ddp()
    same, warned = True, 0
    for number in range(8):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            recorder = pyddpdiag.Recorder(Path(folder, str(number)), capacity_mb=0.0625)
            ddp = _ddp()
            recorder.attach(ddp)
            done = threading.Event()

            def cut(path: Path = recorder.path, done: threading.Event = done) -> None:
                while not done.is_set():
                    os.truncate(path, 0)
                    time.sleep(0.0005)

            thread = threading.Thread(target=cut)
            for step in recorder.steps(range(10)):
                if step == 3:
                    thread.start()
                for one in (plain, ddp):
                    one.zero_grad()
                    backward(one, rank, step)
                same = same and gradient_bytes(plain) == gradient_bytes(ddp)
            done.set()
            thread.join()
            recorder.close()
            warned += len(caught)
    return same, warned


def test_at_any_moment(tmp_path: Path) -> None:
    assert run_ranks(_at_any_moment, 2, tmp_path, str(tmp_path / "runs")) == [(True, 8)] * 2


# A run of one rank, with others' handlers of the same signal before and after the recorder's.
HANDLERS = """
import faulthandler, mmap, os, signal, sys, warnings
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import pyddpdiag

order, what, folder = sys.argv[1:]
caught = []
if order == "none":
    faulthandler.disable()
if order == "before":
    faulthandler.enable()
if order == "python":
    signal.signal(signal.SIGBUS, lambda *_: caught.append("python"))
if order == "ignored":
    signal.signal(signal.SIGBUS, signal.SIG_IGN)
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/store", 1))
recorder = pyddpdiag.Recorder(folder + "/run", capacity_mb=0.0625)
if order == "after":
    faulthandler.enable()
if order == "on and off":
    faulthandler.enable()
    pyddpdiag.Recorder(folder + "/another", capacity_mb=0.0625)
    faulthandler.disable()
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
recorder.attach(ddp)
for step in range(4):
    if step == 2 and what == "ours":
        os.truncate(recorder.path, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ddp(torch.ones(1, 2)).sum().backward()
if what == "sent":
    os.kill(os.getpid(), signal.SIGBUS)
if what == "foreign":
    with open(folder + "/foreign", "wb+") as file:
        file.truncate(8192)
        mapped = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
    print("about to fault", flush=True)
    mapped[4096] = 1
recorder.close()
print("trained on", *caught, flush=True)
os._exit(0)
"""


def _run(folder: Path, order: str, what: str) -> tuple[int, str, str]:
    script = folder / "handlers.py"
    script.write_text(HANDLERS, encoding="utf-8")
    with forked((script, order, what, folder), folder, os.environ) as process:
        return process.ended(100)


@pytest.mark.parametrize("order", ["none", "before", "after", "on and off", "python", "ignored"])
def test_with_handlers_of_others(tmp_path: Path, order: str) -> None:
    code, out, err = _run(tmp_path, order, "ours")
    assert (code, out) == (0, "trained on\n"), err
    assert "Bus error" not in err


@pytest.mark.parametrize("order", ["none", "before", "after", "on and off"])
def test_a_fault_of_somebody_else_ends_the_process_as_ever(tmp_path: Path, order: str) -> None:
    code, out, err = _run(tmp_path, order, "foreign")
    assert (code, out) == (-signal.SIGBUS, "about to fault\n")
    # Once: faulthandler and our guard do not call each other in a circle.
    assert err.count("Fatal Python error: Bus error") == (order in ("before", "after"))


@pytest.mark.parametrize(
    ("order", "end"),
    [
        ("python", (0, "trained on python\n")),
        ("ignored", (0, "trained on\n")),
        ("none", (-signal.SIGBUS, "")),
    ],
)
def test_a_signal_that_was_sent_reaches_its_handler(tmp_path: Path, order: str, end: tuple[int, str]) -> None:
    code, out, err = _run(tmp_path, order, "sent")
    assert (code, out) == end, err
