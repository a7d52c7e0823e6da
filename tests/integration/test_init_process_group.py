"""`pyddpdiag.init_process_group` in the situations in which torch's own freezes, or fails with another's name."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import starting
from support.commands import python
from support.doctored import environment
from support.forked_command import forked

import pyddpdiag
from pyddpdiag.errors import RendezvousError, UsageError

LIMIT_S = 240
WINDOWS = sys.platform == "win32"


def start(
    folder: Path,
    *,
    worlds: tuple[int, ...] = (2, 2),
    variables: tuple[Mapping[str, str], ...] = ({}, {}),
    how: tuple[str, ...] = ("sums", "sums"),
    seconds: float = 60,
) -> list[dict[str, Any]]:
    """What each rank answered; {} for one that died."""
    with ExitStack() as stack:
        processes = []
        for rank, world in enumerate(worlds):
            words = (starting.__file__, rank, world, (folder / "pg").as_uri(), seconds, how[rank])
            ours = environment({"GLOO_SOCKET_IFNAME": "" if WINDOWS else "lo", **variables[rank]})
            processes.append(stack.enter_context(forked(words, folder, ours)))
        waited = [process for process, what in zip(processes, how, strict=True) if what != "stalls"]
        outs = [process.ended(LIMIT_S)[1] for process in waited]
        return [json.loads(out) if out else {} for out in outs]


def alone(url: str, rank: int = 0, world_size: int = 2, seconds: float = 2) -> str:
    """The error of one rank whose partner does not come."""
    with pytest.raises(RendezvousError) as caught:
        pyddpdiag.init_process_group(
            "gloo", url, world_size=world_size, rank=rank, start_timeout=timedelta(seconds=seconds)
        )
    return str(caught.value)


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield listening.getsockname()[1]


def test_ranks_start_and_a_file_of_a_killed_run_is_removed_by_proof(tmp_path: Path) -> None:
    if not WINDOWS:
        assert start(tmp_path, how=("dies", "dies")) == [{}, {}]
        assert (tmp_path / "pg").stat().st_size > 0
    assert [answer.get("sum") for answer in start(tmp_path)] == [2.0, 2.0]


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    said = alone((tmp_path / "pg").as_uri(), world_size=3)
    assert "Only 1 of 3 ranks came" in said and "missing: 1, 2" in said


def test_a_file_that_nobody_is_known_to_have_left_is_kept_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "pg"
    path.write_bytes(b"\x00default_pg/0//cpu//0/0\x00 10.0.0.1")
    said = alone(path.as_uri(), seconds=4)
    assert "exists, is not empty" in said and "delete the file" in said
    assert path.exists()


@pytest.mark.skipif(WINDOWS, reason="flock is POSIX's")
def test_a_locked_file_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    import fcntl
    import os

    path = tmp_path / "pg"
    program = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; time.sleep(99)", str(path)], stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        said = alone(path.as_uri(), seconds=4)
        other.kill()
    assert f"is locked by pid {other.pid}" in said and other.pid != os.getpid() and fcntl.LOCK_EX


def test_a_silent_listener_is_refused_by_every_rank(listener: int) -> None:
    url = f"tcp://127.0.0.1:{listener}"
    assert "says nothing" in alone(url, rank=1)
    held = alone(url, rank=0)
    assert "cannot serve the store" in held
    if not WINDOWS:
        assert "held by pid" in held


def test_an_interface_that_does_not_exist_is_refused_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "^docker")
    with pytest.raises(UsageError, match=r"\^docker.*does not exist"):
        pyddpdiag.init_process_group("gloo", (tmp_path / "pg").as_uri(), world_size=1, rank=0)


def test_world_sizes_that_differ_are_named_at_once(tmp_path: Path) -> None:
    for answer in start(tmp_path, worlds=(2, 3)):
        assert "world sizes differ" in answer["error"]


def test_a_variable_that_only_one_rank_has_is_named(tmp_path: Path) -> None:
    for answer in start(tmp_path, variables=({"TORCH_GLOO_LAZY_INIT": "1"}, {})):
        assert "TORCH_GLOO_LAZY_INIT differs" in answer["error"]


def test_a_freeze_after_the_rendezvous_becomes_an_error_that_names_the_missing(tmp_path: Path) -> None:
    (answer,) = start(tmp_path, how=("sums", "stalls"), seconds=12)
    assert answer["kind"] == "RendezvousError"
    # Either our limit, or what Gloo says at the same time; both name the rank or explain.
    assert "rank 1 did not connect" in answer["error"] or "could not connect Gloo" in answer["error"]


FAILS = """
import os, sys, torch, torch.distributed as dist, pyddpdiag
from pathlib import Path
dist.init_process_group("gloo", init_method=Path(sys.argv[1]).as_uri(), rank=0, world_size=1)
class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.used(x)
ddp = torch.nn.parallel.DistributedDataParallel(Half())
recorder = pyddpdiag.Recorder(sys.argv[2])
recorder.attach(ddp)
for _ in range(2):
    ddp(torch.ones(2, 4)).sum().backward()
"""


def test_a_script_that_records_has_its_error_explained(tmp_path: Path) -> None:
    done = python(
        *("-c", FAILS, str(tmp_path / "pg"), str(tmp_path / "run")),
        env=environment({} if WINDOWS else {"GLOO_SOCKET_IFNAME": "lo"}),
        timeout_s=LIMIT_S,
    )
    assert done.returncode == 1
    trace, _, words = done.stderr.partition("pyddpdiag: rank 0: ")
    assert "Expected to have finished reduction" in trace
    assert "Some parameters got no gradient" in words and "find_unused_parameters" in words
