"""The map of many ranks: bounded for any run, and its hottest cell is where a rank was late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.bulk_writer import write_bulk
from support.trace_writer import write_training

from pyddpdiag.analyse.anatomy import COLUMNS, ROWS, rank_map
from pyddpdiag.model.steps import StepTable
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.charts.chart import Heat
from pyddpdiag.report.run.steps import map_of_ranks


def table(own: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> StepTable:
    """Steps of which only the own times are known; [steps, ranks] in ms."""
    steps, ranks = own.shape
    unknown, none = np.full(own.size, np.nan), np.zeros(own.size, np.int64)
    step, rank = np.repeat(np.arange(steps), ranks), np.tile(np.arange(ranks), steps)
    times = [unknown] * 5
    return StepTable(step, rank, *times, own.ravel(), none, none, source="step records", left_out=(0,))


def test_a_rank_that_is_late_for_a_while_is_where_and_when_it_was() -> None:
    own = np.full((1200, 300), 10.0)
    own[:, 7] = 9.0
    own[601:700, 123] = 14.0
    found = rank_map(table(own))
    assert found is not None and found.extra_ms.shape == (ROWS, COLUMNS)
    row, column = np.unravel_index(found.extra_ms.argmax(), found.extra_ms.shape)
    assert found.slowest[row, column] == 123 and found.low[row] <= 123 <= found.high[row]
    assert found.first[column] >= 601 and found.last[column] <= 700
    assert found.extra_ms.max() == 4.0 and found.extra_ms.min() == 0.0
    # Every rank and every judged step is in one cell.
    assert found.low[0] == 0 and found.high[-1] == 299 and (found.low[1:] == found.high[:-1] + 1).all()
    assert found.first[0] == 1 and found.last[-1] == 1199 and (found.first[1:] == found.last[:-1] + 1).all()
    # Beside it there are no traces of it.
    assert np.count_nonzero(found.extra_ms) <= 6


def test_what_is_not_known_is_not_drawn_as_nothing() -> None:
    own = np.full((6, 20), 10.0)
    own[3, 5] = np.nan
    own[:, 6] = np.nan
    found = rank_map(table(own))
    assert found is not None and found.extra_ms.shape == (19, 5)
    assert np.isnan(found.extra_ms[5, 2]) and np.count_nonzero(np.isnan(found.extra_ms)) == 1
    assert 6 not in found.low
    assert rank_map(table(np.full((3, 9), np.nan))) is None


def test_the_page_has_a_map_where_ranks_are_not_drawn_one_by_one(tmp_path: Path) -> None:
    write_training(tmp_path / "few", world_size=8)
    assert map_of_ranks(load_report(tmp_path / "few")) == []
    write_bulk(tmp_path / "many", ranks=100, records=100 * 240)
    (chart,) = map_of_ranks(load_report(tmp_path / "many"))
    (heat,) = chart.panels[0].series
    assert isinstance(heat, Heat) and len(heat.values) == ROWS
    values = np.array(heat.values, np.float64)
    row, column = np.unravel_index(values.argmax(), values.shape)
    assert heat.hover[row][column].startswith("rank 99; step")
    assert heat.hover[0][0].startswith(("rank 0 (ranks 0 to 1); step", "rank 1 (ranks 0 to 1); step"))
    assert "5." in heat.hover[row][column] and "longer than the middle rank" in heat.hover[row][column]
    assert len(chart.panels[0].y.labels) <= 12 and chart.panels[0].y.at[-1] == ROWS - 1
    assert dict(zip(*list(chart.table.columns.values())[:2], strict=True))["99"] == "99"


def test_the_map_is_on_the_page_and_the_page_stays_small(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="pages need plotly")
    from pyddpdiag.report.run.page import run_page

    write_bulk(tmp_path, ranks=100, records=100 * 240)
    page = run_page(load_report(tmp_path), None)
    assert "Which ranks need longer, and when" in page and len(page) < 8_000_000
