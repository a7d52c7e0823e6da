"""A recorder is closed on one thread while another is on its way into one of its callbacks."""

import sys
import threading
import time
from pathlib import Path

import torch
from support.ranks import run_ranks
from torch.nn.parallel import DistributedDataParallel

import pyddpdiag
from pyddpdiag.record import ddp_modules
from pyddpdiag.trace.layout import Kind
from pyddpdiag.trace.reader import is_in_flight
from pyddpdiag.trace.run import open_run

ATTEMPTS = 5


def _race(folder: Path) -> bool:
    """Closes while a backward pass waits for the GIL to tell of its first bucket; False: that pass was faster."""
    ddp = DistributedDataParallel(torch.nn.Linear(1000, 1000, bias=False))
    x = torch.randn(1000, 1000)
    factors = [torch.randn(1000, 1000) / 32 for _ in range(8)]
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        y = ddp(x)
        for factor in factors:
            y = y @ factor
        loss = y.sum()
        one = torch.ones_like(loss)
        engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
        begins = threading.Event()

        def backward() -> None:
            begins.set()
            # As loss.backward(retain_graph=True), but it releases the GIL only once: for the pass. To free the graph it
            # would need it back. The products' gradients come first, and take a while.
            engine.run_backward(
                (loss,), (one,), True, False, (), allow_unreachable=True, accumulate_grad=True
            )

        thread = threading.Thread(target=backward)
        thread.start()
        begins.wait()
        # From here on this thread keeps the GIL.
        core = recorder.core
        early = not core.layouts()
        while not core.layouts():
            pass
        # The bucket is known, and the callback is next: it waits for the GIL by now.
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        recorder.close()
        thread.join()
    assert ddp.module.weight.grad is not None
    return early


def _job(rank: int, world_size: int, folder: str) -> int:
    sys.setswitchinterval(1000)
    # It needs the GIL before the bucket's callback does.
    ddp_modules._Marks.look_at_backward = lambda *_, **__: None  # type: ignore[method-assign,assignment]
    try:
        for attempt in range(ATTEMPTS):
            if _race(Path(folder, str(attempt))):
                return attempt
    finally:
        sys.setswitchinterval(0.005)
    raise AssertionError(f"the backward pass was faster {ATTEMPTS} times")


def test_closing_while_a_callback_waits_for_the_gil(tmp_path: Path) -> None:
    attempt = run_ranks(_job, 1, tmp_path, str(tmp_path))[0]
    trace = open_run(tmp_path / str(attempt)).ranks[0]
    assert trace.header.closed
    # The pass that the closing found under way came to its end, and its bucket has a name.
    buckets = trace.of_kind(Kind.BUCKET)
    assert len(buckets) == 1
    assert not is_in_flight(buckets).any()
    assert set(buckets["reference"].tolist()) == set(trace.sidecar.layouts)


def _closed(rank: int, world_size: int, folder: Path) -> tuple[int, int]:
    """How large the trace was while it lived, and is now."""
    del rank, world_size
    ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
    with pyddpdiag.Recorder(folder) as recorder:
        recorder.attach(ddp)
        for _ in range(5):
            ddp(torch.randn(2, 8)).sum().backward()
        alive = recorder.path.stat().st_size
    return alive, recorder.path.stat().st_size


def test_a_closed_trace_takes_no_more_than_it_holds(tmp_path: Path) -> None:
    for alive, closed in run_ranks(_closed, 2, tmp_path, tmp_path / "run"):
        assert closed < 100_000 < alive
    run = open_run(tmp_path / "run")
    assert all(len(trace) >= 10 and trace.header.closed for trace in run.ranks) and not run.warnings
