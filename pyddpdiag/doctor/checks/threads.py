"""Processor cores against ranks and threads, and how many files a rank may open."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from pyddpdiag.doctor.check import Outcome, Situation, number, passed, warned
from pyddpdiag.messages.shells import ByShell, SetVariable
from pyddpdiag.ranks.cores import usable_cores

# What a rank opens beside its connections: libraries, data, pipes to loader workers.
_OTHER_FILES = 256


def check(situation: Situation) -> Iterator[Outcome]:
    """Threads and descriptors."""
    yield _threads(situation)
    yield from _descriptors(situation)


def _threads(situation: Situation) -> Outcome:
    cores = usable_cores()
    ranks = situation.launch.local_world_size or 1
    asked = number(situation.environ, "OMP_NUM_THREADS")
    torchrun = situation.launch.by == "torchrun"
    share = max(1, cores // ranks)
    known = f"{cores} core{'s' if cores != 1 else ''}, {ranks} rank{'s' if ranks != 1 else ''} here"
    if situation.environ.get("OMP_NUM_THREADS") and asked is None:
        text, fix = "OMP_NUM_THREADS is not a whole number.", "Set it to the cores for each rank."
    elif asked is None and not 1 < ranks <= cores:
        return passed("threads", f"{known}; torch chooses by itself")
    elif asked is None and torchrun and share == 1:
        return passed("threads", f"{known}; torchrun gives each rank one thread")
    # torch itself takes all cores in every rank; torchrun gives each one thread.
    elif asked is None and torchrun:
        text = f"{known}; OMP_NUM_THREADS is not set, and torchrun then gives each rank one thread."
        fix = "Set it before torchrun."
    elif asked is None:
        text = f"{known}; OMP_NUM_THREADS is not set, so each rank takes {cores} threads and they share the cores."
        fix = "Give each rank its share."
    elif asked * ranks > cores * 1.5:
        text = f"{known} with {asked} threads each: {asked * ranks} threads share {cores} cores."
        fix = "Give each rank its share of the cores."
    elif asked == 1 and share >= 4:
        text = f"{known}, and each rank computes with one thread (OMP_NUM_THREADS=1; torchrun's default)."
        fix = "Training on the CPU is faster with a share of the cores for each rank."
    else:
        return passed("threads", f"{known}, {asked} thread{'s' if asked != 1 else ''} each")
    return warned("threads", text, fix, SetVariable("OMP_NUM_THREADS", str(share)))


def _descriptors(situation: Situation) -> Iterator[Outcome]:
    """Only where the system has such a limit."""
    try:
        soft, _ = psutil.Process().rlimit(psutil.RLIMIT_NOFILE)
    except (AttributeError, OSError, psutil.Error):
        return
    world = situation.launch.world_size or 2
    # Gloo connects each pair once per context: two or three of those, some more for the store.
    needed = _OTHER_FILES + 4 * world
    if 0 <= soft < needed:
        yield warned(
            "open files",
            f"a process here may open {soft} files and sockets; {world} ranks need about {needed}.",
            "Raise the limit in the shell that starts the ranks.",
            ByShell(f"ulimit -n {max(4096, 2 * needed)}"),
        )
    else:
        yield passed("open files", "no limit" if soft < 0 else f"up to {soft} per process")
