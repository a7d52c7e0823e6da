"""A forked child has a copy of its parent's recorder: whatever it does with it, the parent's trace goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import python
from support.hooked import complete

from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.run import open_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

STEPS = 6
PROGRAM = """
import atexit, os, signal, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import pyddpdiag
from pyddpdiag.trace.reader import read_trace
from pyddpdiag.record.latest import latest_open

folder, *ways = sys.argv[1:]
parent = os.getpid()
# Comes last of all that is registered. After it torch destroys its process group, which waits for ever for threads that
# a forked child has not, with or without a recorder.
atexit.register(lambda: None if os.getpid() == parent else os._exit(0))
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/store", 1))


def child(what, recorder):
    if what == "closes":
        recorder.close()
        assert latest_open() is None
    if what == "records":
        for _ in range(2000):
            recorder.core.wait_begin()
            recorder.core.step_begin()
            recorder.core.step_end()
        recorder.core.close()
    if what == "attaches":
        try:
            recorder.attach(ddp)
        except pyddpdiag.errors.RecorderClosedError as error:
            assert f"process {os.getppid()}" in str(error), error
        else:
            raise AssertionError("it was attached")
    if what == "drops":
        return
    if what == "exits":
        # Runs what is registered with atexit, and leaves the `with` block below.
        sys.exit(0)
    os._exit(0)


def wait(pid):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def train(what):
    global ddp
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    with pyddpdiag.Recorder(f"{folder}/{what}", capacity_mb=0.0625) as recorder:
        atexit.register(recorder.close)
        recorder.attach(ddp)
        for step in recorder.steps(range(6)):
            ddp(torch.ones(1, 2)).sum().backward()
            if step == 2:
                before = recorder.core.counters()
                pid = os.fork()
                if pid == 0:
                    child(what, recorder)
                    del recorder
                    os._exit(0)
                code = wait(pid)
                assert code == 0, (what, code)
                assert recorder.core.counters() == before
                assert not read_trace(recorder.path).header.closed
                assert '"closed": false' in recorder.path.with_suffix(".json").read_text()


for what in ways:
    train(what)
print("parent done", flush=True)
os._exit(0)
"""


WAYS = ("closes", "records", "attaches", "exits", "drops")


def _left(program: str, folder: Path, *arguments: str) -> None:
    """Runs a program of one rank in `folder`."""
    done = python("-c", program, str(folder), *arguments)
    assert (done.returncode, done.stdout) == (0, "parent done\n"), done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forked")
    _left(PROGRAM, folder, *WAYS)
    return folder


@pytest.mark.parametrize("what", WAYS)
def test_the_parents_trace_goes_on(trained: Path, what: str) -> None:
    run = open_run(trained / what)
    assert run.warnings == ()
    [trace] = run.ranks
    assert trace.header.closed
    assert complete(trace, Kind.STEP)["step"].tolist() == list(range(STEPS + 1))  # and the loader's end
    assert complete(trace, Kind.BUCKET)["step"].tolist() == list(range(STEPS))
    # The lines are there if it took long enough to be looked at.
    left = {p.name for p in (trained / what).iterdir()} - {"rank_0.lines"}
    assert left == {"rank_0.ddptrace", "rank_0.json"}


LOADER = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
import pyddpdiag

folder = sys.argv[1]
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.FileStore(folder + "/store", 1))
ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
loader = DataLoader(TensorDataset(torch.ones(6, 2)), num_workers=2, multiprocessing_context="fork")
with pyddpdiag.Recorder(folder + "/run") as recorder:
    recorder.attach(ddp)
    for epoch in range(2):
        for [batch] in recorder.steps(loader):
            ddp(batch).sum().backward()
print("parent done", flush=True)
os._exit(0)
"""


def test_a_data_loader_whose_workers_are_forked(tmp_path: Path) -> None:
    _left(LOADER, tmp_path)
    run = open_run(tmp_path / "run")
    assert run.warnings == ()
    steps = complete(run.ranks[0], Kind.STEP)
    assert int((steps["times"][:, 1] > 0).sum()) == 2 * STEPS
