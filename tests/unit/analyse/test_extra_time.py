"""What extra time is spent for: how much at every line alike, and in which words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.processor_use import NOTHING, Extra, findings, write

from pyddpdiag.analyse.extra_time import stretch


def test_how_much_a_rank_may_be_slower_at_every_line() -> None:
    """By what its processor takes more, and not by what it sleeps."""
    assert stretch(10.0, 20.0, 1.0, 0.0) == pytest.approx(3.0)
    assert stretch(10.0, 20.0, 0.3, 0.68) == pytest.approx(2.96)
    assert stretch(10.0, 20.0, 0.02, 0.03) == pytest.approx(1.1)
    assert stretch(10.0, 20.0, None, 1.0) == pytest.approx(3.0)
    # Readings of two clocks may add up to more than all, or to less than nothing.
    assert stretch(10.0, 20.0, 0.9, 0.4) == pytest.approx(3.0)
    assert (
        stretch(10.0, -5.0, 0.9, -0.1)
        == stretch(0.0, 5.0, 1.0, 0.0)
        == stretch(10.0, 20.0, None, None)
        == 1.0
    )


def test_a_rank_that_waits_for_a_core_is_not_said_to_compute_all_the_time(tmp_path: Path) -> None:
    for name, extra, said in (
        (
            "busy",
            Extra(cpu=30, delay=20),
            "(it computes for 60% of that, and waits for a processor core for 40%), in ",
        ),
        ("quiet", Extra(cpu=40), "(it computes for 100% of that), in "),
    ):
        write(tmp_path / name, [NOTHING, extra, NOTHING])
        (found,) = findings(tmp_path / name)
        assert (found.kind, found.cause) == ("late_rank", "compute") and said in found.message
        assert "all that time" not in found.message


def test_nor_are_all_ranks(tmp_path: Path) -> None:
    write(tmp_path, [replace(Extra(cpu=40), steps=range(40, 80))] * 2, steps=80)
    (found,) = (each for each in findings(tmp_path) if each.kind == "slower_steps")
    assert "; they compute for 100% of the difference; " in found.message
