"""Files that cost much or wait for ever: each is read soon, in little memory, or left alone."""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.attack import Length, attack, peak_bytes, survive
from support.costly import MANY, cut_while_read, full_sidecars, sparse
from support.trace_writer import COMPLETE, RankWriter, header_page, record_dtype, write_training

from pyddpdiag.errors import TraceError
from pyddpdiag.model import sidecar as schema
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.trace.reader import read_trace
from pyddpdiag.trace.run import open_run
from pyddpdiag.trace.sidecar import read_sidecar
from pyddpdiag.trace.slots import PIECE, UNUSED_LIMIT

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="only Unix has such files")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such files")


@contextmanager
def soon(seconds: float) -> Iterator[None]:
    """Fails if it takes longer. Generous: the machine may be busy."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_sparse_trace_of_8_gib(tmp_path: Path) -> None:
    places = [0, 5, 2**20 + 3, 2**25, 2**26 - 1]
    sparse(tmp_path / "rank_0.ddptrace", 2**26, places)
    with soon(10):
        assert peak_bytes(lambda: survive(tmp_path)) < 32 * 2**20
    trace = read_trace(tmp_path / "rank_0.ddptrace")
    slots = (trace.by_kind[1]["word"] >> np.uint64(2)) - np.uint64(1)  # type: ignore[index]
    assert slots.tolist() == places
    assert any("slots hold no record" in text for _, text in trace.warnings)


def test_sparse_trace_of_8_gib_where_the_system_cannot_tell_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows, and some file systems: a bound on what is read stands in for it."""
    monkeypatch.delattr(os, "SEEK_DATA", raising=False)
    sparse(tmp_path / "rank_0.ddptrace", 2**26, [0, UNUSED_LIMIT // 2, 2**25])
    with soon(20):
        assert peak_bytes(lambda: survive(tmp_path)) < 32 * 2**20
    trace = read_trace(tmp_path / "rank_0.ddptrace")
    assert len(trace) == 2
    assert any("slots hold no record" in text for _, text in trace.warnings)


def test_islands_of_records_in_holes_are_all_found(tmp_path: Path) -> None:
    places = [n * PIECE * 3 + n % PIECE for n in range(60)]
    sparse(tmp_path / "rank_0.ddptrace", 2**24, places)
    trace = read_trace(tmp_path / "rank_0.ddptrace")
    assert len(trace) == len(places)


def test_unused_slots_between_records_skip_nothing(tmp_path: Path) -> None:
    """Slots that hold zeros and are no hole: a file that was copied without its holes."""
    count = 5 * PIECE
    slots = np.zeros(count, record_dtype())
    used = np.array([1, PIECE + 2, 4 * PIECE, count - 1])
    slots["word"][used] = (used + 1) << 2 | COMPLETE
    slots["kind"] = 1
    path = tmp_path / "rank_0.ddptrace"
    path.write_bytes(bytes(header_page(capacity=count, tickets=count)) + slots.tobytes())
    assert len(read_trace(path)) == len(used)


def test_many_names_of_one_trace_are_read_once(tmp_path: Path) -> None:
    writer = RankWriter(capacity=20_000)
    for sequence in range(200):
        writer.bucket(sequence, 1, 2, 3)
    path = writer.write(tmp_path)
    for rank in range(1, 40):
        os.link(path, tmp_path / f"rank_{rank}.ddptrace")
    run = open_run(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0]
    [warning] = [text for text in run.warnings if "links to the same file" in text]
    assert "rank_1.ddptrace (as rank_0.ddptrace)" in warning


def test_copies_of_one_rank_are_not_read_to_be_thrown_away(tmp_path: Path) -> None:
    count = 100_000
    slots = np.zeros(count, record_dtype())
    slots["word"] = (np.arange(count) + 1) << 2 | COMPLETE
    slots["kind"] = 1
    content = bytes(header_page(capacity=count, tickets=count)) + slots.tobytes()
    for rank in range(8):
        (tmp_path / f"rank_{rank}.ddptrace").write_bytes(content)
    assert peak_bytes(lambda: open_run(tmp_path)) < 3 * len(content)


@pytest.mark.parametrize("content", [MANY, MANY[:-2] + b"," + b"[0]," * 30_000_000], ids=["4 MiB", "large"])
def test_sidecar_of_small_objects(tmp_path: Path, content: bytes) -> None:
    write_training(tmp_path)
    (tmp_path / "rank_0.json").write_bytes(content)
    with soon(10):
        assert peak_bytes(lambda: survive(tmp_path)) < 64 * 2**20
    assert any("rank_0.json" in text and "not read" in text for text in open_run(tmp_path).warnings)


def test_full_sidecars_share_one_budget(tmp_path: Path) -> None:
    for rank in range(24):
        writer = RankWriter(rank, 24)
        writer.bucket(0, 1, 2, 3)
        writer.write(tmp_path, sidecar=False)
    for rank, content in enumerate(full_sidecars(24, 300_000)):
        (tmp_path / f"rank_{rank}.json").write_bytes(content)
    begin = time.process_time()
    run = open_run(tmp_path)
    # Processor time, on a machine that may be slow.
    assert time.process_time() - begin < 20
    read = [trace.rank for trace in run.ranks if trace.sidecar.host]
    assert read == list(range(len(read))) and 4 <= len(read) < 24
    assert any("not read" in text and "rank_23.json" in text for text in run.warnings)
    assert run.modules()[0].parameters[0] == "0.0"


def test_links_to_one_sidecar_do_not_multiply(tmp_path: Path) -> None:
    for rank in range(64):
        writer = RankWriter(rank, 64)
        writer.bucket(0, 1, 2, 3)
        writer.write(tmp_path, sidecar=False)
    (tmp_path / "rank_0.json").write_bytes(next(full_sidecars(1, 100_000)))
    alone = peak_bytes(lambda: read_sidecar(tmp_path / "rank_0.json"))
    for rank in range(1, 64):
        os.link(tmp_path / "rank_0.json", tmp_path / f"rank_{rank}.json")
    with soon(30):
        assert peak_bytes(lambda: open_run(tmp_path)) < 2 * alone + 2**20
    run = open_run(tmp_path)
    assert {trace.sidecar.host for trace in run.ranks} == {"host 0"}


def test_lists_of_a_sidecar_end_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [1] * (schema.ENTRIES_LIMIT + 1)
    monkeypatch.setattr(schema, "ENTRIES_LIMIT", 3)
    path = tmp_path / "rank_0.json"
    group = {"name": "g", "backend": "gloo", "ranks": [0]}
    path.write_text(
        json.dumps(
            {
                "schema_version": 1,
                "groups": [{**group, "id": f"{n:x}"} for n in range(5)],
                "buckets": [{"id": "1", "module": 0, "parameters": many, "dtype": "float32"}],
            }
        )
    )
    sidecar, warnings = read_sidecar(path)
    assert sorted(sidecar.groups) == [0, 1, 2] and sidecar.layouts == {}
    assert "3 entries" in warnings[0]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's path is short.
        here = Path.cwd()
        os.chdir(path.parent)
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def make_folder(path: Path) -> None:
    path.mkdir()


def link_to(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.symlink_to(target)

    return make


STRANGE = [
    pytest.param(make_folder, id="folder"),
    pytest.param(make_pipe, id="pipe", marks=unix_only),
    pytest.param(make_socket, id="socket", marks=unix_only),
    pytest.param(link_to("/dev/zero"), id="zeros", marks=unix_only),
    pytest.param(link_to("/dev/stdin"), id="stdin", marks=unix_only),
    pytest.param(link_to("/dev/tty"), id="terminal", marks=unix_only),
    # The kernel's log: a regular file of size 0 whose reader waits for news.
    pytest.param(link_to("/proc/kmsg"), id="log", marks=linux_only),
    pytest.param(link_to("/proc/self/mem"), id="memory", marks=linux_only),
    pytest.param(link_to("rank_0.json"), id="itself", marks=unix_only),
]


@pytest.mark.parametrize("make", STRANGE)
def test_strange_sidecar_is_a_warning(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "rank_0.json")
    with soon(10):
        sidecar, warnings = read_sidecar(tmp_path / "rank_0.json")
    assert sidecar == Sidecar()
    assert len(warnings) == 1 and "names are not known" in warnings[0]


@pytest.mark.parametrize("make", STRANGE[:-1])
def test_strange_trace_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "rank_0.ddptrace")
    with soon(10), pytest.raises(TraceError, match=r"rank_0\.ddptrace: "):
        open_run(tmp_path)


@unix_only
def test_name_that_becomes_a_pipe_after_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was looked at by name need not be what is opened."""
    sound = RankWriter().write(tmp_path / "run").stat()
    pipe = tmp_path / "rank_0.ddptrace"
    os.mkfifo(pipe)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: sound)
    with soon(10), pytest.raises(TraceError, match="not a file"):
        read_trace(pipe)


@pytest.mark.parametrize(
    "name", ["a\0b", "a\ud800b", "\udcff" * 10, "x" * 5000], ids=["NUL", "half", "byte", "long"]
)
def test_names_that_no_file_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"no such folder|cannot be read: File name too long"):
        open_run(tmp_path / name)
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / name)
    assert read_sidecar(tmp_path / name)[0] == Sidecar()


@linux_only
def test_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    """Linux allows any bytes."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff\xfe\x1b]0;x\x07"))
    write_training(folder)
    assert survive(folder)


@unix_only
def test_trace_that_is_cut_and_filled_while_it_is_read(tmp_path: Path) -> None:
    """Windows cuts no file that a process has open for its records."""
    assert cut_while_read(tmp_path, 3.0) > 0


def test_run_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that starts again between the look at the headers and the reading is not mixed with the others."""
    from pyddpdiag.trace import run as module

    write_training(tmp_path)
    other = tmp_path / "other"
    writer = RankWriter(1, 2, run_id=b"B" * 16)
    writer.bucket(0, 1, 2, 3)
    replaced = writer.write(other)
    plain = module.read_header

    def replace(path: Path) -> object:
        found = plain(path)
        if path.name == "rank_1.ddptrace":
            shutil.copy(replaced, path)
        return found

    monkeypatch.setattr(module, "read_header", replace)
    run = open_run(tmp_path)
    assert [trace.rank for trace in run.ranks] == [0]
    assert any("was replaced while it was read" in text for text in run.warnings)


def test_mutated_files_give_a_report_or_one_clear_error(tmp_path: Path) -> None:
    found = attack(tmp_path, Length(cases=2000, seconds=8))
    assert found.cases > 20
    assert 0 < found.read < found.cases or found.cases < 100
    assert found.slowest_bytes < 64 * 2**20
