"""A SLURM cluster on this machine: its controller and several nodes, with files in one folder and on loopback only."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from support.commands import ran
from support.ports import own_port

_START_S: Final = 120.0
_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "unshare")
# Where daemons are that only root starts.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def why_not() -> str:
    """Why there can be no cluster here, "" if there can."""
    if not hasattr(os, "geteuid"):
        return "SLURM's nodes are not Windows'"
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"no {missing[0]} here; on Debian: apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "SLURM's daemons take root here"
    return ""


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """A cluster of so many nodes of 4 cores, on which several tasks fit; gone after the block.

    Args:
        folder: for its files; a path that is short enough for a socket.
        nodes: how many; they are called bed0, bed1, ...

    Yields:
        the variables with which srun and sbatch find it.
    """
    # Tasks find their nodes by name, as on a real cluster.
    names = "".join(f"127.0.0.1 bed{node}\n" for node in range(nodes))
    (folder / "hosts").write_text(Path("/etc/hosts").read_text(encoding="utf-8") + names, encoding="utf-8")
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(folder, nodes), encoding="ascii")
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    variables = {"SLURM_CONF": str(configuration)}
    munge = [f"--{name}={folder}/munge.{end}" for name, end in _MUNGE.items()]
    with ExitStack() as stack:
        # --force: its files lie below /tmp, where everybody may write.
        stack.enter_context(_daemon(folder, "munged", ["--foreground", "--force", *munge]))
        _wait_for((folder / "munge.socket").is_socket, folder)
        stack.enter_context(_daemon(folder, "slurmctld", ["-D", "-c"], **variables))
        for node in range(nodes):
            arguments = ["-D", "-N", f"bed{node}"]
            stack.enter_context(_daemon(folder, "slurmd", arguments, **variables))
        _wait_for(lambda: _idle(variables) == nodes, folder)
        yield variables


# The last is $0: the file of hosts. In a mount namespace of its own, which the tasks of a node inherit.
_WITH_HOSTS: Final = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')
_MUNGE: Final = {
    "key-file": "key",
    "socket": "socket",
    "pid-file": "pid",
    "log-file": "log",
    "seed-file": "seed",
}


def _configuration(folder: Path, nodes: int) -> str:
    host = socket.gethostname().partition(".")[0]
    ports = [own_port() for place in range(nodes + 1)]
    lines = [
        "ClusterName=bed",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports[-1]}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.socket",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd-%n.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdLogFile={folder}/slurmd-%n.log",
        # Neither control groups nor an accounting database.
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU",
        "ReturnToService=2",
        # Each node says that it has 4 cores, whatever the machine has.
        "SlurmdParameters=config_overrides",
        "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    lines += [
        f"NodeName=bed{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[node]} CPUs=4 State=UNKNOWN"
        for node in range(nodes)
    ]
    return "\n".join(lines) + "\n"


def submitted(script: Path, variables: Mapping[str, str], timeout_s: float) -> tuple[str, str]:
    """Submits a job and waits until it is over: its state, and what it said.

    Not by `sbatch --wait`, which asks at longer and longer intervals.
    """
    env = {**os.environ, **variables}

    def asked(*command: str) -> str:
        done = ran(*command, cwd=script.parent, env=env, timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return done.stdout

    job = asked("sbatch", "--parsable", "--output=out.txt", script.name).strip()
    limit = time.monotonic() + timeout_s
    while True:
        [state] = re.findall(r"JobState=(\w+)", asked("scontrol", "--oneliner", "show", "job", job))
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            break
        if time.monotonic() > limit:
            asked("scancel", job)
            break
        time.sleep(0.2)
    out = script.parent / "out.txt"
    return state, out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""


@contextmanager
def _daemon(folder: Path, name: str, arguments: Sequence[str], **variables: str) -> Iterator[None]:
    program = shutil.which(name, path=_PATH)
    assert program is not None, name
    with (folder / f"{name}.out").open("ab") as out:
        process = subprocess.Popen(
            [*_WITH_HOSTS, str(folder / "hosts"), program, *arguments],
            env={**os.environ, **variables},
            stdout=out,
            stderr=out,
            cwd=folder,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _idle(variables: dict[str, str]) -> int:
    shown = ran(
        *("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"),
        env={**os.environ, **variables},
        timeout_s=_START_S,
    )
    return len(shown.stdout.split())


def _wait_for(condition: Callable[[], bool], folder: Path) -> None:
    limit = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > limit:
            said = "\n".join(path.read_text("utf-8", "replace")[-500:] for path in folder.glob("*.out"))
            raise TimeoutError(f"the cluster did not come up in {_START_S:.0f} s:\n{said}")
        time.sleep(0.1)
