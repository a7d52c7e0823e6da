"""The words and figures of a scaling series."""

from __future__ import annotations

import io

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.scaling import charts, parse_sizes
from pyddpdiag.scaling.model import Run, Split
from pyddpdiag.train.events import EpochDone, TrainResult


def one(world_size: int, seconds: float, split: Split) -> Run:
    history = tuple(EpochDone(n, 1 / (n + 1), 0.5, 0.9, seconds / 2) for n in range(2))
    buckets = 5 if world_size > 1 else 0
    result = TrainResult(world_size, "native", None, 100, buckets, history, seconds, "<digits>")
    return Run(world_size, result, split)


RUNS = [
    one(1, 100.0, Split(96.0, 4.0, 0.0, 0.0, 0.0, 0.0)),
    one(4, 40.0, Split(30.0, 2.0, 5.0, 3.0, 1.0, 8.0)),
]


def test_speed_up_efficiency_and_the_missing_part() -> None:
    assert RUNS[1].speed_up(RUNS[0]) == 2.5
    assert RUNS[1].efficiency(RUNS[0]) == 0.625
    text = charts.text(RUNS)
    assert "1m 40s" in text and "40.0s" in text and "2.50x" in text and "62%" in text
    columns = charts.tables(RUNS)[1].columns
    ideal, real, missing, compute, wait, exposed, other = (
        float(str(columns[name][0]))
        for name in ("ideal", "real", "missing", "compute", "data", "exposed", "other")
    )
    assert (ideal, real, missing) == (25.0, 40.0, 15.0)
    assert (compute, wait, exposed, other) == (6.0, 1.0, 5.0, 3.0)
    assert compute + wait + exposed + other == missing


def test_curves_are_against_epoch_and_time() -> None:
    assert RUNS[1].curve() == [(1.0, 20.0, 1.0, 0.9), (2.0, 40.0, 0.5, 0.9)]


def test_unknown_parts_are_no_zeros() -> None:
    plain = one(2, 60.0, Split(None, 2.0, None, None, None, None))
    missing = charts.tables([RUNS[0], plain])[1]
    assert missing.columns["compute"] == ["-"]
    assert missing.columns["data"] == ["0.00"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(9.96, "10.0s"), (59.9, "59.9s"), (61, "1m 01s"), (3418, "56m 58s"), (7265, "2h 01m 05s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert charts.duration(seconds) == words


def test_the_page_escapes_names() -> None:
    text = charts.page(RUNS)
    assert "&lt;digits&gt;" in text and "<digits>" not in text


def test_sizes() -> None:
    assert parse_sizes("4,1,2,1") == [1, 2, 4]
    for wrong in ("", "1,,2", "a", "0,1", "-1"):
        with pytest.raises(UsageError):
            parse_sizes(wrong)


def test_one_number_of_ranks_says_so() -> None:
    assert "nothing to compare with" in charts.text(RUNS[:1])


def test_it_has_the_signs_of_the_stream_that_it_is_for() -> None:
    assert "\u2500" in charts.text(RUNS)
    page = charts.text(RUNS, io.TextIOWrapper(io.BytesIO(), encoding="cp1252"))
    assert page.isascii() and "-----" in page
