"""The race of interfaces between ranks that are started one by one: names that are wrong or do not fit."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from train_support import environment, started

from pyddpdiag.ranks.interfaces import available

TIMEOUT_S = 110


def race(url: str, lists: tuple[str, str], folder: Path, *options: object) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of two ranks with these interfaces."""
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for rank, names in enumerate(lists):
            command = [sys.executable, "-m", "pyddpdiag", "bench", "interfaces", "--dist-url", url]
            command += ["--world-size", "2", "--rank", str(rank), "--interface", names, *map(str, options)]
            processes.append(stack.enter_context(started(command, folder, **environment())))
        ends = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        return [(p.returncode, out, err) for p, (out, err) in zip(processes, ends, strict=True)]


def test_a_wrong_name_on_one_rank_ends_both(tmp_path: Path) -> None:
    lists = (sorted(available())[0], "nic-of-nobody")
    ends = race((tmp_path / "meet").as_uri(), lists, tmp_path, "--rounds", 1)
    assert [code for code, _, _ in ends] == [2, 2], str(ends)
    assert all("'nic-of-nobody'" in err and "does not exist" in err for _, _, err in ends), str(ends)


def test_lists_of_different_length_end_both(tmp_path: Path) -> None:
    names = sorted(available())
    if len(names) < 2:
        pytest.skip(f"this machine has one interface with an address: {names}")
    ends = race((tmp_path / "meet").as_uri(), (names[0], ",".join(names[:2])), tmp_path, "--rounds", 1)
    assert [code for code, _, _ in ends] == [2, 2], str(ends)
    assert all("the number of interfaces (--interface) differs" in err for _, _, err in ends), str(ends)
