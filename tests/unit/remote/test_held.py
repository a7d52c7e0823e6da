"""A trace is cut to what it holds when it is closed, collected or sent, and says the same then."""

import os
from pathlib import Path

import pytest
from support.trace_writer import RankWriter, write_training

from pyddpdiag.pipeline import load_report
from pyddpdiag.remote import held
from pyddpdiag.report.json import report_to_json
from pyddpdiag.system import processes
from pyddpdiag.system.clock import clock_identity
from pyddpdiag.trace.collect import collect

CAPACITY = 1 << 18
"""Of the recorder's 32 MiB."""


def written(folder: Path, namespace: str | None = None, **header: object) -> None:
    """Traces as a recorder reserves them."""
    for writer in write_training(folder, steps=40):
        writer.header |= {"capacity": CAPACITY, **header}
        writer.sidecar["process_namespace"] = namespace
        reserved(writer, folder)


def reserved(writer: RankWriter, folder: Path) -> None:
    writer.write(folder)
    os.truncate(folder / f"rank_{writer.rank}.ddptrace", 4096 + 128 * CAPACITY)


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(folder.glob("*.ddptrace"))]


def cut_all(folder: Path) -> None:
    for trace in folder.glob("*.ddptrace"):
        held.cut(trace)


def test_a_closed_trace_is_cut_and_says_the_same(tmp_path: Path) -> None:
    written(tmp_path, closed=1)
    before = report_to_json(load_report(tmp_path))
    assert min(sizes(tmp_path)) > 33_000_000
    cut_all(tmp_path)
    once = sizes(tmp_path)
    assert max(once) < 100_000
    assert report_to_json(load_report(tmp_path)) == before
    cut_all(tmp_path)
    assert sizes(tmp_path) == once


@pytest.mark.parametrize(
    ("namespace", "pid", "clock", "is_cut"),
    [
        (processes.namespace(), 2**22 + 1, clock_identity(), True),
        (processes.namespace(), os.getpid(), clock_identity(), False),
        ("of another container", 2**22 + 1, clock_identity(), False),
        (processes.namespace(), 2**22 + 1, "of another machine", False),
    ],
    ids=["gone", "runs", "perhaps in a container", "perhaps elsewhere"],
)
def test_one_that_was_never_closed_is_cut_if_its_process_is_gone(
    namespace: str, pid: int, clock: str, is_cut: bool, tmp_path: Path
) -> None:
    written(tmp_path, namespace, closed=0, pid=pid, clock_identity=clock.encode())
    cut_all(tmp_path)
    assert (max(sizes(tmp_path)) < 100_000) == is_cut


def test_a_collected_copy_is_cut_whatever_its_process_does(tmp_path: Path) -> None:
    written(tmp_path / "a", closed=0, pid=os.getpid())
    collect([tmp_path / "a"], tmp_path / "all")
    assert max(sizes(tmp_path / "all")) < 100_000 < min(sizes(tmp_path / "a"))


def test_a_ring_that_came_around_and_other_files_stay(tmp_path: Path) -> None:
    write_training(tmp_path, steps=600, buckets=1)  # its ring holds 1024 records
    (tmp_path / "rank_7.ddptrace").write_bytes(b"no trace" * 1000)
    before = sizes(tmp_path)
    cut_all(tmp_path)
    assert sizes(tmp_path) == before
    held.cut(tmp_path / "none.ddptrace")
