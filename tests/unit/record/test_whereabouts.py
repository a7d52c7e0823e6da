"""Which lines of a script are noted while its rank records nothing, and of an exception."""

import json
import sys
from pathlib import Path

import pytest

from pyddpdiag.model.ending import Stay
from pyddpdiag.record import script_lines
from pyddpdiag.record.script_lines import line_of_error, lines_of_frame
from pyddpdiag.record.whereabouts import Stall

S = 1_000_000_000
EVALUATES = ("train.py:50", "train.py:31")


def notes(stall: Stall, tickets: int, seconds: range, lines: tuple[str, ...] = EVALUATES) -> list[int]:
    """The seconds at which a note is taken."""
    return [at for at in seconds if stall.look(tickets, at * S, lambda: lines) is not None]


def test_a_silence_is_noted_from_two_seconds_on_and_more_seldom_the_longer_it_lasts() -> None:
    stall = Stall(0)
    assert notes(stall, 0, range(1, 100)) == []  # nothing has begun
    assert notes(stall, 7, range(100, 120)) == [102, 103, 105, 108, 112, 118]


def test_what_has_come_to_its_end_before_is_not_noted_again() -> None:
    """Slow steps, and an evaluation after each epoch, write nothing each time."""
    stall = Stall(0)
    stall.look(1, 1 * S, tuple)
    assert notes(stall, 1, range(2, 11)) == [3, 4, 6, 9]
    for begun in (11, 21, 31):
        stall.look(begun, begun * S, tuple)
        assert notes(stall, begun, range(begun + 1, begun + 10)) == []
    stall.look(41, 41 * S, tuple)
    assert notes(stall, 41, range(42, 60)) == [56]


def test_of_a_loop_the_line_that_calls_it_is_noted() -> None:
    stall = Stall(0)
    stall.look(1, 1 * S, tuple)
    for at, line in ((2, 31), (3, 32), (4, 33)):
        stay = stall.look(1, at * S, lambda line=line: ("train.py:50", f"train.py:{line}"))
    assert stay == Stay("train.py:50", 1 * S, 4 * S)
    # It has left that, too.
    assert stall.look(1, 9 * S, lambda: ("train.py:60",)) == Stay("train.py:60", 1 * S, 9 * S)


def test_a_line_is_of_own_code_and_never_of_an_installed_package() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        where = line_of_error(error)
    name = Path(__file__).name
    assert where.rpartition("/")[2].startswith(f"{name}:")
    lines = lines_of_frame(sys._getframe())
    assert lines[-1].rpartition("/")[2].startswith(f"{name}:")
    assert not [line for line in lines if "site-packages" in line or "_pytest" in line or "pluggy" in line]
    assert line_of_error(KeyError("never raised")) == ""


def test_packages_of_the_user_and_of_the_system_are_no_own_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A virtual environment that sees them has another folder of its own."""
    packages = tmp_path / "lib" / "python3" / "dist-packages"
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    for cached in (script_lines._installed, script_lines.name_of):
        cached.cache_clear()
    try:
        assert script_lines.name_of(str(packages / "torch" / "distributed.py")) == ""
        assert script_lines.name_of(str(tmp_path / "train.py")).endswith("train.py")
    finally:
        for cached in (script_lines._installed, script_lines.name_of):
            cached.cache_clear()
