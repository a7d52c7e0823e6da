"""What the looks at the main thread's Python stack cost (record/lines.py).

Run: python3 dev.py bench benchmarks/bench_lines.py
The first case is the processor time of the thread that looks, per second, while the main thread trains: what is
formatted and written is in it. The second is how long a look keeps the interpreter lock, for which the main thread may
have to wait; the third, in which part of the time looks and the writing of what they saw keep it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from harness.row import Row

from pyddpdiag import _native
from pyddpdiag.record import lines
from pyddpdiag.record.lines import LineSampler
from pyddpdiag.record.stacks import looks_at_main_thread

SECONDS = 5.0
GOAL = 0.005
"""Of one core, while there are 20 looks a second: the first 20 s of a run or more."""

NAME = "pyddpdiag lines"
TASKS = Path("/proc/self/task")


class _Core:
    """Of a recorder, what the looks ask for."""

    paused = False


def _sampler(folder: Path, core: _Core) -> LineSampler:
    return LineSampler(folder / "rank_0.ddptrace", bytes(16), cast(_native.Recorder, core))


def _step(model: torch.nn.Module, inputs: torch.Tensor, depth: int = 30) -> None:
    """A step below a deep stack, as frameworks have it."""
    if depth:
        _step(model, inputs, depth - 1)
    else:
        model(inputs).square().mean().backward()


def _model() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers), torch.randn(64, 256)


@pytest.mark.skipif(not TASKS.exists(), reason="only Linux tells the processor time of one thread here")
def test_processor_time(row: Row, tmp_path: Path) -> None:
    model, inputs = _model()
    core = _Core()
    sampler = _sampler(tmp_path, core)
    [thread] = [each for each in threading.enumerate() if each.name == NAME]
    task = TASKS / str(thread.native_id)
    shares = []
    for _ in range(row.rounds(3)):
        before, begun = _used_s(task), time.monotonic()
        while time.monotonic() - begun < SECONDS:
            _step(model, inputs)
        shares.append((_used_s(task) - before) / (time.monotonic() - begun))
    sampler.close()
    row.report("processor time of the looks per second", shares)
    assert not row.judges(3) or min(shares) < GOAL


def test_lock(row: Row) -> None:
    model, inputs = _model()
    looks, over = looks_at_main_thread(), threading.Event()
    held: list[float] = []

    def look() -> None:
        while not over.wait(0.05):
            begun = time.perf_counter()
            looks.look(paused=False)
            held.append(time.perf_counter() - begun)

    thread = threading.Thread(target=look)
    thread.start()
    while len(held) < row.rounds(100):
        _step(model, inputs)
    over.set()
    thread.join()
    row.report("interpreter lock held by a look", held)


def test_lock_share(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = _model()
    core, held = _Core(), [0.0]

    def adds_up(call: Callable[..., Any], clock: Callable[[], float]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            begun = clock()
            result = call(*given, **named)
            held[0] += clock() - begun
            return result

        return timed

    class TimedLooks:
        def __init__(self) -> None:
            self._looks = looks_at_main_thread()
            self.look = adds_up(self._looks.look, time.perf_counter)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._looks, name)

    # Of a write, the processor time of what is done in Python: files are written without the lock.
    monkeypatch.setattr(lines, "looks_at_main_thread", TimedLooks)
    monkeypatch.setattr(LineSampler, "_lines", adds_up(LineSampler._lines, time.thread_time))
    monkeypatch.setattr(lines, "to_json", adds_up(lines.to_json, time.thread_time))
    monkeypatch.setattr(json, "dumps", adds_up(json.dumps, time.thread_time))
    sampler = _sampler(tmp_path, core)
    shares = []
    for _ in range(row.rounds(3)):
        before, begun = held[0], time.monotonic()
        while time.monotonic() - begun < SECONDS:
            _step(model, inputs)
        shares.append((held[0] - before) / (time.monotonic() - begun))
    sampler.close()
    row.report("interpreter lock held by looks and writes per second", shares)


def _used_s(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / 1e9
