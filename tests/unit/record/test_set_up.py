"""What a rank does between its process group and its first module: real threads, looked at from beside."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.record.set_up import SetUp
from pyddpdiag.start import marks

GROUP_CALLS = str(Path("elsewhere", "torch", "distributed", "distributed_c10d.py"))
S = 10**9


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str | int]]:
    seen: dict[str, str | int] = {}
    monkeypatch.setattr(marks, "_marks", seen)
    yield seen


def barrier() -> Any:
    """A function that a stack shows in torch.distributed."""
    made: dict[str, Any] = {"time": time}
    exec(compile("def barrier(seconds):\n    time.sleep(seconds)", GROUP_CALLS, "exec"), made)
    return made["barrier"]


def unpack(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.001)


def number(marks: dict[str, str | int], name: str) -> int:
    value = marks[name]
    assert isinstance(value, int)
    return value


def test_work_and_waiting_are_told_apart_and_the_line_is_noted(kept: dict[str, str | int]) -> None:
    looks = SetUp()
    unpack(0.8)
    barrier()(1.0)
    looks.makes_module()
    looks.close()
    seen, waited = number(kept, "set_up_seen_ns"), number(kept, "set_up_waited_ns")
    assert seen > 1.2 * S and 0.4 * S < waited < seen - 0.4 * S
    assert str(kept["set_up_line"]).rpartition(":")[0].endswith(Path(__file__).name)
    assert 0.2 * S < number(kept, "set_up_line_ns") <= seen - waited


def test_each_stretch_has_a_line_of_its_own(kept: dict[str, str | int]) -> None:
    looks = SetUp()
    unpack(0.6)
    looks.joins()
    # Waiting to join the group counts for none.
    barrier()(0.3)
    looks.begin()
    looks.makes_module()
    unpack(0.3)
    looks.begin()
    unpack(0.6)
    looks.close()
    for name in ("before_group_line", "after_module_line"):
        assert str(kept[name]).rpartition(":")[0].endswith(Path(__file__).name)
        assert number(kept, f"{name}_ns") > 0.1 * S


def test_the_most_frequent_lines_are_noted_in_their_order(kept: dict[str, str | int]) -> None:
    looks = SetUp()
    unpack(0.6)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        pass
    looks.makes_module()
    looks.close()
    lines = Sidecar(start_up=kept).start_up_lines("set_up_line")
    assert 2 <= len(lines) <= 3 and list(lines.values()) == sorted(lines.values(), reverse=True)


def test_what_ends_at_once_leaves_no_line(kept: dict[str, str | int]) -> None:
    looks = SetUp()
    looks.close()
    looks.close()
    assert kept == {"after_module_seen_ns": 0, "after_module_waited_ns": 0}
