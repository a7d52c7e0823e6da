"""A real training in which one rank sleeps in a function of its own: the report names file, line and function."""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from support.models import batch, branches
from support.ranks import run_ranks
from support.reported import findings
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import pyddpdiag
from pyddpdiag.pipeline import load_report
from pyddpdiag.record.stacks import looks_at_main_thread

STEPS = 100


def load_labels() -> None:
    time.sleep(0.03)


def write_log(seconds: float) -> None:
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile(dir=Path.cwd()) as file:
        while time.monotonic() < until:
            file.write(bytes(1 << 19))
            file.flush()
            os.fsync(file.fileno())


class Slow(Dataset[torch.Tensor]):
    """A data set that takes its time on one rank."""

    def __init__(self, rank: int, slow: bool) -> None:
        self._rank = rank
        self._slow = slow

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, step: int) -> torch.Tensor:
        if self._slow:
            time.sleep(0.03)
        return batch(self._rank, step, torch.float32)


def _train(recorder: pyddpdiag.Recorder, ddp: DistributedDataParallel, rank: int, slow: str) -> None:
    loader = DataLoader(Slow(rank, slow == "data" and rank == 1), batch_size=None)
    for inputs in recorder.steps(loader):
        if slow == "labels" and rank == 1:
            load_labels()
        ddp(inputs).square().mean().backward()


def _job(rank: int, _: int, folder: str) -> None:
    for name in ("labels", "data", "nothing", "off"):
        ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
        with pyddpdiag.Recorder(f"{folder}/{name}", capacity_mb=1, lines=name != "off") as recorder:
            recorder.attach(ddp)
            _train(recorder, ddp, rank, name)


def test_the_line_of_a_late_rank_is_named(tmp_path: Path) -> None:
    run_ranks(_job, 2, tmp_path, str(tmp_path))
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    sleeps = [number for number, line in enumerate(source, 1) if line.strip() == "time.sleep(0.03)"]
    for name, line, function in (("labels", sleeps[0], "load_labels"), ("data", sleeps[1], "__getitem__")):
        finding = findings(tmp_path / name, "late_rank")[0]
        assert finding.rank == 1
        assert finding.where is not None
        place, _, inside = finding.where.partition(" in ")
        assert place.rpartition("/")[2] == f"{Path(__file__).name}:{line}"
        assert inside.rpartition(".")[2] == function
        assert finding.where in finding.message and finding.where in finding.advice
    report = load_report(tmp_path / "nothing")
    assert not [each for each in report.verdict.findings if each.where]
    for path in (tmp_path / "off").glob("*.lines"):
        assert json.loads(path.read_text(encoding="utf-8"))["frames"] == []


def _disk_job(rank: int, _: int, folder: str) -> None:
    ddp = DistributedDataParallel(branches(torch.float32), bucket_cap_mb=0.002)
    with pyddpdiag.Recorder(folder, capacity_mb=1) as recorder:
        recorder.attach(ddp)
        for step in recorder.steps(range(STEPS)):
            if rank == 1:
                write_log(0.06)
            ddp(batch(rank, step, torch.float32)).square().mean().backward()


def _waits_for_its_disk() -> bool:
    """Whether writing here waits, and the system says so: memory does not wait, nor may a very fast disk."""
    looks, over = looks_at_main_thread(), threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            looks.look(paused=False)

    thread = threading.Thread(target=look)
    thread.start()
    write_log(0.5)
    over.set()
    thread.join()
    _, _, _, places, stacks = looks.kept()
    return sum(stacks[each][0] for each in places) > 0.3 * len(places)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells what a thread waits for")
def test_a_rank_that_waits_for_its_disk_is_named_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if not _waits_for_its_disk():
        pytest.skip(
            "writing and syncing in the folder for temporary files shows hardly any waiting for a disk"
        )
    run_ranks(_disk_job, 2, tmp_path, str(tmp_path / "run"))
    finding = findings(tmp_path / "run", "late_rank")[0]
    assert finding.rank == 1
    assert finding.where is not None and finding.where.endswith("in write_log")
    waits, core, cpu = (finding.evidence[name] for name in ("disk_wait_ms", "core_wait_share", "cpu_share"))
    assert isinstance(waits, float) and waits > 0, finding
    assert isinstance(core, float) and isinstance(cpu, float), finding
    # After each wait for its disk, it may wait for a core for longer: on a machine that is so busy, that is the cause.
    # So is copying what is written, where that takes the system longer.
    if core + cpu < 0.4:
        assert finding.cause == "disk" and "because it waits for a disk" in finding.message, finding
