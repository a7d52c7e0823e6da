"""The stacks of ranks in question, taken by py-spy from outside, where it is installed and allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyddpdiag.live.state import Hang, RankState, Stack
from pyddpdiag.output import clean, clean_lines

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
