"""One description of a table: on the screen and on a page, with texts from files made harmless."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import replace

import pytest

from pyddpdiag.report.charts.chart import (
    Area,
    Axis,
    Bar,
    Chart,
    Heat,
    Interval,
    Line,
    Panel,
    Points,
    Spans,
    Whiskers,
    log_ticks,
)
from pyddpdiag.report.charts.picture import as_png
from pyddpdiag.report.charts.plotly import figure
from pyddpdiag.report.page import Paragraph, Section, page
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.tables import Table

TABLE = Table(
    "Times <ms>",
    {"case": ["a & b", "c"], "time": ["1.0", "20.0"], " remark": ["", "slow"]},
    1,
    [False, True],
    "note",
)


CHART = Chart(
    "times",
    "Times of <two>",
    "What each took.",
    [Panel([Line("a & b", [0, 1], [1.0, None], "0")], Axis("ms"))],
    Axis("step"),
    TABLE,
)


def test_a_page_holds_the_table_and_nothing_from_elsewhere() -> None:
    text = page("Two\x1b]0;title\x07 <runs>", [TABLE, Paragraph("x < y", dim=True)])
    assert "Times &lt;ms&gt;</p>" in text and "a &amp; b" in text and "\x1b" not in text
    assert (
        '<th scope="col" class="text">case</th><th scope="col">time</th><th scope="col" class="text">remark</th>'
        in text
    )
    assert text.count('<tr class="dim">') == 1 and '<p class="dim">x &lt; y</p>' in text
    assert "http:" not in text and "https:" not in text and text.count("<script>") == 1


def test_a_table_can_be_copied_and_is_named_for_screen_readers() -> None:
    text = page("p", [TABLE, TABLE])
    names = re.findall(r'<table id="([^"]+)">', text)
    assert len(set(names)) == 2
    assert re.findall(r'<button type="button" data-table="([^"]+)">', text) == names
    assert text.count('<caption class="sr">Times &lt;ms&gt;</caption>') == 2


def test_a_page_loads_nothing_and_runs_only_its_own_scripts() -> None:
    text = page("p", [TABLE])
    policy = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    assert len(policy) == 1 and policy[0].startswith("default-src 'none';") and "unsafe-eval" not in policy[0]
    for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[0]


def test_a_chart_is_said_in_words_drawn_from_data_and_there_as_a_table() -> None:
    pytest.importorskip("plotly", reason="pages need plotly")
    text = page("p", [Section("Charts", [CHART]), Section("More", [Paragraph("x")])], zoom=True)
    assert "<figcaption>Times of &lt;two&gt;</figcaption>" in text and "What each took." in text
    assert re.search(
        r'<div class="plot" role="img" tabindex="0" data-chart="times"[^>]* aria-label="Chart: Times', text
    )
    embedded = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(embedded[0])["times"]["data"]
    assert "<" not in embedded[0] and data[0]["name"] == "a &amp; b" and data[0]["y"] == [1.0, None]
    assert text.count("The numbers as a table") == 1 and '<a href="#view-charts">Charts</a>' in text


def test_charts_without_anything_to_draw_are_left_out() -> None:
    empty = replace(CHART, panels=[Panel([Line("a", [0], [None], "0")], Axis("ms"))])
    assert empty.empty and not CHART.empty
    assert "times" not in page("p", [empty])


def test_a_chart_is_what_plotly_takes_and_matplotlib_draws() -> None:
    objects = pytest.importorskip("plotly.graph_objects", reason="pages need plotly")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    series = [
        [Area("a", [0, 1], [1.0, None], "compute"), Area("b", [0, 1], [1.0, 2.0], "data")],
        [Points("p", [0], [1.0], "bad", "cross", ["<b>bold</b>; c"], [7], "step")],
        [Spans("s", [Bar(0.0, 1.5, 0, "a <label>")], "wire")],
        [Whiskers("w", [Interval(0, 1.0, 0.5, 2.0)], "same", "diamond")],
        [Heat([[1.0, None]], "ms", [["1", "-"]], [["x", "y"]])],
    ]
    for each in series:
        labels = ("r",) if isinstance(each[0], (Spans, Whiskers, Heat)) else ()
        across = ("c", "d") if isinstance(each[0], Heat) else ()
        chart = replace(
            CHART, panels=[Panel(each, Axis("y", labels=labels), "a panel")], x=Axis("x", labels=across)
        )
        drawn = figure(chart)
        objects.Figure(drawn)
        assert "<b>" not in json.dumps(drawn).replace("<br>", "")
        assert as_png(chart).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 4.0, [0.5, 1, 2, 5]),
        (1.0, 1.0, [0.5, 1, 2]),
        (0.0, 1.0, []),
        (1e-3, 1e3, [10.0**n for n in range(-3, 4)]),
    ],
)
def test_a_logarithmic_axis_has_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


def test_the_screen_prints_the_same_table() -> None:
    out = io.StringIO()
    screen_for(out).table(TABLE)
    lines = out.getvalue().splitlines()
    assert lines[1].strip() == "Times <ms>" and lines[-1].strip() == "note"
    assert [line.split() for line in lines if line.strip().startswith("c ")] == [["c", "20.0", "slow"]]


def test_the_widest_text_gives_way_to_the_numbers() -> None:
    out = io.StringIO()
    screen_for(out).table(Table("t", {"case": ["x" * 300], "time": ["123456"]}, 1))
    assert "123456" in out.getvalue() and out.getvalue().count("x") == 300
    assert max(map(len, out.getvalue().splitlines())) <= 110


def test_no_rows_are_no_error() -> None:
    out = io.StringIO()
    screen_for(out).table(Table("empty", {"case": [], "time": []}, 1))
    assert "empty" in out.getvalue() and "<table id=" in page("p", [Table("empty", {"case": []}, 1)])
