"""Machines that share nothing but a network: their traces make one report, and one that is lost is told."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support import machines as bed
from support.machines import Machines
from support.promised import need

from pyddpdiag.cli import main
from pyddpdiag.trace.notes import read_nodes

RUN = (sys.executable, "-m", "pyddpdiag", "run", "--trace", "run")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
JOB = str(Path(bed.__file__).with_name("scheduled_job.py"))
LIMIT_S = 480


def by_collect(folders: Sequence[Path], into: Path) -> None:
    assert main(["collect", *map(str, folders), "--into", str(into), "--force"]) == 0


@pytest.fixture(autouse=True)
def _machines_can_be_made() -> None:
    need("namespaces", bed.why_not())


def started_by_run(found: Machines, nproc: int, number: int) -> list[str]:
    where = ["--nproc", nproc, "--nnodes", len(found.hosts), "--node-rank", number]
    return [*RUN, *map(str, where), "--rendezvous", f"{found.first_address}:29500", "--", JOB]


def started_by_torchrun(found: Machines, nproc: int, number: int) -> list[str]:
    where = ["--nproc-per-node", nproc, "--nnodes", len(found.hosts), "--node-rank", number]
    return [*RUN, "--", *TORCHRUN, *map(str, where), "--master-addr", found.first_address, JOB]


def started_by_the_script(found: Machines, nproc: int, number: int) -> list[str]:
    """Its ranks have torch from their parent: so many would take minutes to load it on a small machine."""
    job = {"GROUP_RANK": number, "WORLD_SIZE": nproc * len(found.hosts), "JOB_FORKS": nproc}
    meeting = {"MASTER_ADDR": found.first_address, "MASTER_PORT": 29500}
    variables = [f"{name}={value}" for name, value in {**job, **meeting}.items()]
    return [*RUN, "--", "env", *variables, sys.executable, JOB]


def boot_all(
    found: Machines, command: Callable[[Machines, int, int], list[str]], nproc: int, **variables: str
) -> list[Path]:
    """The folders that they record into."""
    for number in range(len(found.hosts)):
        found.boot(number, command(found, nproc, number), variables)
    return [disk / "run" for disk in found.disks]


def as_if_shared(folders: Sequence[Path], into: Path) -> None:
    """What a folder would hold that all machines share."""
    for folder in reversed(folders):
        shutil.copytree(folder, into, dirs_exist_ok=True)


def report_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """As JSON, without the folder's own name."""
    capsys.readouterr()
    main(["report", str(folder), "--json"])
    return capsys.readouterr().out.replace(json.dumps(str(folder)), '"run"').replace(f"{folder}:", "run:")


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(
    ("command", "count", "nproc"),
    [(started_by_torchrun, 2, 1), (started_by_the_script, 3, 4)],
    ids=["2 machines by torchrun", "12 ranks on 3 machines"],
)
def test_their_report_is_that_of_a_shared_folder(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: Callable[[Machines, int, int], list[str]],
    count: int,
    nproc: int,
) -> None:
    with bed.machines(tmp_path, count) as found:
        folders = boot_all(found, command, nproc)
        for number in range(count):
            code, out = found.ended(number, LIMIT_S)
            assert code == 0, out
    for folder in folders:
        # Own files only, and nobody looked into another's disk.
        assert len(list(folder.glob("rank_*.ddptrace"))) == nproc
        assert [note.exit_code for note in read_nodes(folder).notes] == [0]
    as_if_shared(folders, tmp_path / "shared")
    shared = report_of(tmp_path / "shared", capsys)
    report = json.loads(shared)
    assert report["world_size"] == len(report["ranks"]) == count * nproc
    assert len({rank["host"] for rank in report["ranks"]}) == count
    by_collect(folders, tmp_path / "collected")
    assert report_of(tmp_path / "collected", capsys) == shared


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_machine_that_loses_power_is_told_from_ranks_that_were_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = time.monotonic() + LIMIT_S
    with bed.machines(tmp_path, 2) as found:
        folders = boot_all(found, started_by_run, 1, JOB_STEPS="1000000")
        # The command is there before its ranks train.
        while not all(read_nodes(folder).notes and [*folder.glob("rank_*.ddptrace")] for folder in folders):
            assert time.monotonic() < limit and found.booted[0].poll() is None, found.ended(0, 1)
            time.sleep(0.1)
        found.power_off(1)
        into = tmp_path / "into"
        # The first machine waits for the other one, and its command goes on to be heard of.
        while True:
            by_collect(folders, into)
            capsys.readouterr()
            main(["hang", str(into), "--json", "--no-stacks"])
            answer = json.loads(capsys.readouterr().out)
            kinds = [finding["kind"] for finding in answer["findings"]]
            if "node_lost" in kinds:
                break
            assert time.monotonic() < limit, answer
            time.sleep(1)
        assert answer["status"] == "found" and kinds[0] == "node_lost"
        assert answer["findings"][0]["rank"] == 1
        assert (
            "Machine1, on which rank 1 ran, was lost: its pyddpdiag run was last heard of at"
            in answer["line"]
        ), answer["line"]
        main(["watch", str(into), "--once"])
        assert "Machine1, on which rank 1 ran, was lost" in capsys.readouterr().out
        main(["report", str(into)])
        assert "its pyddpdiag run was last heard of at" in " ".join(capsys.readouterr().out.split())
