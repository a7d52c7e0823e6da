"""The checks of one machine, each in the real situation that it is for; and the lines to paste mend it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from support.doctored import bad, command, paste, situation, variables_after

from pyddpdiag import system
from pyddpdiag.doctor import check
from pyddpdiag.doctor.check import Check, Outcome, Situation, Status
from pyddpdiag.doctor.checks import addresses, batch, installed, launcher, rendezvous, threads, variables
from pyddpdiag.doctor.torch_facts import Torch
from pyddpdiag.messages.shells import SetVariable, Shell, UnsetVariable, write
from pyddpdiag.ranks.rendezvous import FileTarget, TcpTarget

POSIX = pytest.mark.skipif(system.WINDOWS, reason="pastes into a POSIX shell")


def pasted(outcome: Outcome, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables after the outcome's lines: pasted into a shell, where there is a POSIX one."""
    if not system.WINDOWS:
        return variables_after([write(line, Shell.POSIX) for line in outcome.lines], environ)
    changed = dict(environ)
    for line in outcome.lines:
        if isinstance(line, SetVariable):
            changed[line.name] = line.value
        elif isinstance(line, UnsetVariable):
            changed.pop(line.name, None)
    return changed


def mended(check: Check, where: Situation) -> bool:
    """Pastes what the first bad outcome says, and looks again."""
    (outcome, *_) = bad(check, where)
    return not bad(check, situation(pasted(outcome, where.environ), where.target))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        yield listening


def some_interface() -> str:
    return next(one.name for one in addresses.interfaces.found())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("^docker", "NCCL's syntax"),
        ("=eth0", "NCCL's syntax"),
        ("10.0.0.1", "is an address, not a name"),
        ("127.0.0.1", "its interface is"),
        ("nosuch7", "there is no interface nosuch7"),
        (" {name}", "blanks around"),
        ("{name}, {name}", "blanks around"),
        ("{name},", "an empty name"),
        ("{name},{name}", "more than once"),
    ],
)
def test_wrong_interface_names_are_explained_and_the_line_mends_them(value: str, said: str) -> None:
    where = situation({"GLOO_SOCKET_IFNAME": value.format(name=some_interface())})
    (outcome, *_) = bad(addresses.check, where)
    assert outcome.name == "GLOO_SOCKET_IFNAME" and said in outcome.text
    assert mended(addresses.check, where)


def test_the_loopback_interface_is_wrong_for_several_machines_only() -> None:
    name = next(one.name for one in addresses.interfaces.found() if one.kind == "loopback")
    environ = {"GLOO_SOCKET_IFNAME": name}
    assert bad(addresses.check, situation(environ)) == []
    several = situation(environ, world_size=4, local_world_size=2)
    (outcome,) = bad(addresses.check, several)
    assert outcome.status is Status.FAIL
    if addresses.interfaces.outward() is not None:
        again = situation(pasted(outcome, environ), world_size=4, local_world_size=2)
        assert bad(addresses.check, again) == []


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"RANK": "two", "WORLD_SIZE": "2"}, "RANK is 'two'"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "outside of a world of 2"),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "4"}, "the world has only 2"),
        ({"MASTER_PORT": "70000"}, "not a TCP port"),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, "outside of the 2 ranks"),
        (
            {
                **{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "RANK": "0", "WORLD_SIZE": "4"},
                **{"MASTER_ADDR": "a", "MASTER_PORT": "1"},
            },
            "Open MPI says 3",
        ),
    ],
)
def test_contradictions_of_launchers(environ: dict[str, str], said: str) -> None:
    where = situation(environ)
    assert said in bad(launcher.check, where)[0].text
    (outcome, *_) = bad(launcher.check, where)
    again = situation(pasted(outcome, environ))
    assert not [one for one in bad(launcher.check, again) if said in one.text]


def test_missing_variables_are_named() -> None:
    (outcome,) = bad(launcher.check, situation({"RANK": "0", "WORLD_SIZE": "2"}))
    assert "MASTER_ADDR, MASTER_PORT" in outcome.text


@pytest.mark.parametrize(
    ("environ", "by", "place"),
    [
        (
            {
                "TORCHELASTIC_RUN_ID": "x",
                "RANK": "1",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
            },
            "torchrun",
            (1, 4, 1, 2),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            "Open MPI",
            (2, 4, 0, None),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, "SLURM", (None, None, None, None)),
        ({"SM_NUM_HOSTS": "2", "SM_NUM_GPUS": "0"}, "SageMaker", (None, None, None, None)),
        ({}, "", (None, None, None, None)),
    ],
)
def test_launchers_are_known_by_their_variables(
    environ: dict[str, str], by: str, place: tuple[int | None, ...]
) -> None:
    found = check.read(environ)
    assert (found.by, (found.rank, found.world_size, found.local_rank, found.local_world_size)) == (by, place)


def test_variables_of_gloo() -> None:
    where = situation({"GLOO_DEVICE_TRANSPORT": "IBVERBS", "TORCH_GLOO_LAZY_INIT": "1"})
    assert [outcome.name for outcome in bad(variables.check, where)] == ["transport", "lazy init"]
    assert mended(variables.check, situation({"TORCH_GLOO_LAZY_INIT": "1"}))
    assert mended(variables.check, situation({"GLOO_DEVICE_TRANSPORT": "UV2"}))


def test_threads_against_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)

    def said(environ: dict[str, str], ranks: int) -> list[str]:
        """The number of threads to set; after that, nothing is wrong."""
        found = bad(threads.check, situation(environ, world_size=ranks, local_world_size=ranks))
        changed = [pasted(outcome, environ) for outcome in found]
        for again in changed:
            assert bad(threads.check, situation(again, world_size=ranks, local_world_size=ranks)) == []
        return [again["OMP_NUM_THREADS"] for again in changed]

    assert said({"OMP_NUM_THREADS": "1"}, 2) == ["4"]
    assert said({"OMP_NUM_THREADS": "8"}, 2) == ["4"]
    assert said({"OMP_NUM_THREADS": "many"}, 2) == ["4"]
    assert said({}, 2) == ["4"]
    assert said({"TORCHELASTIC_RUN_ID": "x"}, 2) == ["4"]
    assert said({"OMP_NUM_THREADS": "4"}, 2) == []
    assert said({"OMP_NUM_THREADS": "1"}, 8) == []
    assert said({}, 1) == []


@POSIX
def test_a_low_limit_of_open_files_is_raised_by_the_line(tmp_path: Path) -> None:
    low = ["ulimit -S -n 128"]
    before = json.loads(paste(low, command("--json"), {}, tmp_path))
    (outcome,) = [one for one in before["checks"] if one["name"] == "open files"]
    assert outcome["status"] == "warn" and "may open 128 files" in outcome["text"]
    after = json.loads(paste([*low, *outcome["lines"]], command("--json"), {}, tmp_path))
    assert [one["status"] for one in after["checks"] if one["name"] == "open files"] == ["pass"]


def test_the_effective_batch() -> None:
    (outcome,) = batch.check(situation(world_size=4, local_world_size=4, batch_size=32))
    assert "steps of 128" in outcome.text and not outcome.status


def test_a_stale_file_is_reported_with_its_age_and_the_line_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "pg"
    path.write_bytes(b"\x00default_pg/0//cpu//0/0\x00 10.0.0.1")
    where = situation(target=FileTarget(str(path)))
    (outcome,) = bad(rendezvous.check, where)
    assert "exists and is not empty" in outcome.text and " 0 s old" in outcome.text
    if not system.WINDOWS:
        paste([write(line, Shell.POSIX) for line in outcome.lines], ["true"], {}, tmp_path)
        assert bad(rendezvous.check, where) == [] and not path.exists()


def test_a_new_file_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    assert bad(rendezvous.check, situation(target=FileTarget(str(tmp_path / "pg")))) == []
    assert list(tmp_path.iterdir()) == []
    missing = situation(target=FileTarget(str(tmp_path / "none" / "pg")))
    assert "does not exist" in bad(rendezvous.check, missing)[0].text


@POSIX
def test_a_locked_file_names_the_process_and_the_line_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "pg"
    path.touch()
    program = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(1, "
        "flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        where = situation(target=FileTarget(str(path)))
        (outcome,) = bad(rendezvous.check, where)
        assert f"is locked by pid {other.pid}" in outcome.text
        paste([write(line, Shell.POSIX) for line in outcome.lines], ["true"], {}, tmp_path)
        other.wait(30)
    assert bad(rendezvous.check, where) == []


def test_a_silent_listener_on_the_port_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    target = TcpTarget("127.0.0.1", port)
    (outcome,) = bad(rendezvous.check, situation({"RANK": "0"}, target))
    assert "says nothing" in outcome.text and "wait for it without a message" in outcome.text
    if not system.WINDOWS:
        name = psutil.Process().name()
        assert f"({name})" in outcome.text
    # The line is another port, which is free.
    free = int(pasted(outcome, {"RANK": "0"})["MASTER_PORT"])
    assert bad(rendezvous.check, situation({"RANK": "0"}, TcpTarget("127.0.0.1", free))) == []
    # To any other rank, too.
    assert "says nothing" in bad(rendezvous.check, situation({"RANK": "1"}, target))[0].text


def test_master_addresses_that_cannot_work() -> None:
    def said(host: str, environ: dict[str, str] | None = None, **options: int) -> str:
        """The line gives an address of this machine, where the store can be."""
        (outcome, *_) = bad(rendezvous.check, situation(environ, TcpTarget(host, 29555), **options))
        right = pasted(outcome, environ or {})["MASTER_ADDR"]
        again = bad(rendezvous.check, situation(environ, TcpTarget(right, 29555), **options))
        local = addresses.interfaces.outward() is None and "loopback address" in outcome.text
        # A machine without a network has nothing better to offer; another's address is just not served yet.
        assert local or not [one for one in again if one.name == "MASTER_ADDR"]
        return outcome.text

    assert "does not resolve" in said("no-such-host.invalid") or "not resolved in time" in said(
        "no-such-host.invalid"
    )
    assert "blanks around it" in said(" 10.0.0.1")
    assert "loopback address" in said("127.0.0.1", world_size=4, local_world_size=2)
    assert "link-local" in said("fe80::1")
    assert "no address of this machine" in said("192.0.2.77", {"RANK": "0"})


def test_an_unreachable_master_is_reported_within_the_limit() -> None:
    # 198.51.100.0/24 is for documentation: nobody answers there.
    (outcome,) = bad(rendezvous.check, situation({"RANK": "1"}, TcpTarget("198.51.100.7", 29555)))
    assert outcome.name == "MASTER_PORT" and outcome.status


def test_another_torch_than_the_wheels_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "find", lambda: Torch("2.12.1", Path()))
    monkeypatch.setattr(installed, "built_with", lambda: "2.13")
    (outcome,) = [one for one in installed.check(situation({})) if one.status]
    assert outcome.lines and write(outcome.lines[0], Shell.POSIX) == 'pip install "torch==2.13.*"'


@pytest.mark.parametrize(("version", "sums"), [("2.12.1", True), ("2.13.0+cpu", False)])
def test_sums_instead_of_averages_are_reported_for_the_torch_that_has_them(
    version: str, sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "find", lambda: Torch(version, Path()))
    torch = next(outcome for outcome in installed.check(situation()) if outcome.name == "torch")
    assert ("ReduceOp.AVG returns sums over Gloo before 2.13" in torch.text) is sums
