"""What a rank adds to the error that ends it: lines that can be typed as they are, where its trace lies."""

import shlex
from pathlib import Path

import pytest

from pyddpdiag import system
from pyddpdiag.record.last_words import explained, words

TIMEOUT = (
    "[/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 14000ms for recv operation to complete"
)
LOST = "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5760"
BARRIER = (
    "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
    "Please check rank 0 logs for faulty rank."
)


@pytest.mark.skipif(system.WINDOWS, reason="another shell, and other paths")
def test_the_folder_of_the_trace_is_in_the_line(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    line = words(RuntimeError(TIMEOUT), 1, folder).splitlines()[-1]
    assert shlex.split(line) == ["pyddpdiag", "hang", str(folder)]


def test_without_a_trace_there_is_no_line_for_one() -> None:
    found = explained(RuntimeError(TIMEOUT))
    assert found is not None and found.kind == "receive_timeout" and not found.lines


@pytest.mark.parametrize("message", [LOST, BARRIER])
def test_no_line_names_logs_of_which_a_rank_knows_nothing(message: str) -> None:
    said = words(RuntimeError(message), 1, Path("run"))
    assert "hint: " in said and "--log" not in said and "DIR" not in said


def test_an_error_of_the_scripts_own_is_left_alone() -> None:
    assert (
        words(KeyError("rank"), 0, Path("run")) == "" == words(RuntimeError("no such class"), 0, Path("run"))
    )
