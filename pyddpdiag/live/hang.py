"""Looks at a run that may be stuck or dead, within a few seconds, and says who holds it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyddpdiag.errors import TraceError
from pyddpdiag.live.judge import is_settled, judge
from pyddpdiag.live.look import look
from pyddpdiag.live.ranks import judge_begun
from pyddpdiag.live.state import Hang, RankState, Stack
from pyddpdiag.output import clean, clean_lines
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.starts import read_starts

LIMIT_S: Final = 4.0
"""For the whole answer, stacks included."""

LOOKING_S: Final = 2.0
"""The longest time between the first look and the last one."""

BETWEEN_S: Final = 0.4
LEAST_BETWEEN_S: Final = 0.05
LEAST_STACKS_S: Final = 0.5


def hang(
    folder: Path, *, stacks: bool = True, limit_s: float = LIMIT_S, looking_s: float = LOOKING_S
) -> Hang:
    """Say whether a run moves, is over, is stuck or died, and who is to blame. Ends nothing and waits for nobody.

    Args:
        folder: where the recorders write.
        stacks: show the stacks of the ranks in question, where py-spy is there and allowed.
        limit_s: for the whole answer.
        looking_s: the longest time between the first look and the last one; more where the folder is a copy that is
            renewed from time to time.

    Raises:
        TraceError: there are no traces, or none can be read.
    """
    begin = time.monotonic()
    try:
        first = last = look(folder)
    except TraceError:
        attempt, _ = choose_attempt(folder)
        starts = read_starts(attempt)
        if not starts:
            raise
        found = judge_begun(attempt, starts, time.monotonic() - begin)
        return _with_stacks(found, stacks, limit_s, begin)
    end = time.monotonic() + min(looking_s, limit_s / 2)
    while not is_settled(last):
        left = end - time.monotonic()
        # There is a second look even where this process got no core for so long.
        if left <= 0 and last is not first:
            break
        time.sleep(min(BETWEEN_S, max(left, LEAST_BETWEEN_S)))
        last = look(folder, last)
    looked = time.monotonic() - begin
    moving = frozenset() if last is first else last.moved_since(first)
    return _with_stacks(judge(last, moving, looked), stacks, limit_s, begin)


def _with_stacks(found: Hang, stacks: bool, limit_s: float, begin: float) -> Hang:
    if not stacks or not found.suspects:
        return found
    left = limit_s - (time.monotonic() - begin)
    return replace(found, stacks=stacks_of(found, max(LEAST_STACKS_S, left)))


MOST_RANKS: Final = 4
MOST_LINES: Final = 60
MOST_BYTES: Final = 2**17

NOT_INSTALLED: Final = "py-spy is not installed: pip install py-spy"


def stacks_of(found: Hang, limit_s: float) -> tuple[Stack, ...]:
    """The stacks of the first few suspects whose processes are on this machine. Never fails: says why there are none.

    This process itself is left out: it cannot hold itself. `limit_s`: for all of them together.
    """
    ranks = {rank.rank: rank for rank in found.ranks}
    asked = [ranks[rank] for rank in found.suspects if ranks[rank].pid not in (None, os.getpid())][
        :MOST_RANKS
    ]
    program = find_program()
    if program is None:
        return tuple(Stack(rank.rank, rank.pid or 0, "", NOT_INSTALLED) for rank in asked)
    begin = time.monotonic()
    # With native frames py-spy must hold the process for a moment, and read the symbols of large libraries.
    dumped = _dump(program, [rank for rank in asked if rank.state != "stopped"], ["--native"], 0.6 * limit_s)
    rest = [rank for rank in asked if not (rank.rank in dumped and dumped[rank.rank].text)]
    left = limit_s - (time.monotonic() - begin)
    dumped |= _dump(program, rest, ["--nonblocking"], left)
    return tuple(dumped[rank.rank] for rank in asked)


def find_program() -> str | None:
    """Path of py-spy: on the PATH, or beside this Python."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))


def _dump(
    program: str, ranks: Sequence[RankState], options: Sequence[str], limit_s: float
) -> dict[int, Stack]:
    """Ask for all stacks at once; those that do not come in time are given up."""
    begin = time.monotonic()
    running = [(rank, _start(program, rank.pid or 0, options)) for rank in ranks]
    found = {}
    for rank, process in running:
        pid = rank.pid or 0
        if isinstance(process, str):
            found[rank.rank] = Stack(rank.rank, pid, "", process)
            continue
        try:
            out, err = process.communicate(timeout=max(0.05, limit_s - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            found[rank.rank] = Stack(rank.rank, pid, "", f"py-spy took longer than {limit_s:.1f} s")
            continue
        text = _cut(out.decode("utf-8", "replace"))
        why = "" if process.returncode == 0 and text else _reason(err.decode("utf-8", "replace"), pid)
        found[rank.rank] = Stack(rank.rank, pid, "" if why else text, why)
    return found


def _start(program: str, pid: int, options: Sequence[str]) -> subprocess.Popen[bytes] | str:
    try:
        return subprocess.Popen(
            [program, "dump", "--pid", str(pid), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        return f"py-spy cannot be started: {error.strerror or error}"


def _cut(text: str) -> str:
    lines = clean_lines(text[:MOST_BYTES]).strip().split("\n")
    more = len(lines) - MOST_LINES
    return "\n".join(lines[:MOST_LINES] + ([f"... {more} more lines"] if more > 0 else []))


def _reason(said: str, pid: int) -> str:
    """Why there is no stack, and what to do."""
    if "ermission" in said or "not permitted" in said or "ptrace" in said:
        return (
            f"py-spy may not look into process {pid}: run it as that process's user with ptrace allowed, or as root "
            f"(sudo py-spy dump --pid {pid})"
        )
    last = [line for line in said.splitlines() if line.strip()][-1:]
    return f"py-spy failed: {clean(last[0], 200)}" if last else "py-spy failed and said nothing"
