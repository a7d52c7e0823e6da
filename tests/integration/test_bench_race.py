"""The race of interfaces between ranks that are started one by one: names that are wrong or do not fit."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from support.forked_command import forked
from train_support import environment

from pyddpdiag.ranks.interfaces import available

TIMEOUT_S = 110


def race(url: str, lists: tuple[str, str], folder: Path) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of two ranks with these interfaces."""
    with ExitStack() as stack:
        processes = []
        for rank, names in enumerate(lists):
            place = ("--dist-url", url, "--world-size", 2, "--rank", rank)
            words = ("bench", "interfaces", *place, "--interface", names, "--rounds", 1)
            processes.append(stack.enter_context(forked(words, folder, environment())))
        return [process.ended(TIMEOUT_S) for process in processes]


def test_a_wrong_name_on_one_rank_ends_both(tmp_path: Path) -> None:
    lists = (sorted(available())[0], "nic-of-nobody")
    ends = race((tmp_path / "meet").as_uri(), lists, tmp_path)
    assert [code for code, _, _ in ends] == [2, 2], str(ends)
    assert all("'nic-of-nobody'" in err and "does not exist" in err for _, _, err in ends), str(ends)


def test_lists_of_different_length_end_both(tmp_path: Path) -> None:
    names = sorted(available())
    if len(names) < 2:
        pytest.skip(f"this machine has one interface with an address: {names}")
    ends = race((tmp_path / "meet").as_uri(), (names[0], ",".join(names[:2])), tmp_path)
    assert [code for code, _, _ in ends] == [2, 2], str(ends)
    assert all("the number of interfaces (--interface) differs" in err for _, _, err in ends), str(ends)
