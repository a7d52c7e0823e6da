"""The page of a run by its structure: every view is there, says what the report says, and stays small."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from support.shown_run import write_shown
from support.trace_writer import write_training

from pyddpdiag.analyse.anatomy import PARTS, anatomy
from pyddpdiag.analyse.details import steps_to_show
from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_details, load_report
from pyddpdiag.report.charts.chart import Area, Axis, Chart, Heat, Line, Panel, Points, Spans
from pyddpdiag.report.charts.svg import svg
from pyddpdiag.report.page import SMALL
from pyddpdiag.report.run.page import charts, run_page
from pyddpdiag.report.tables import Table

pytest.importorskip("plotly", reason="pages need plotly")

VIEWS = [
    *("Verdict", "Steps", "One step", "Lines of the script", "Buckets", "Links"),
    *("Gradients and loss", "The whole run", "Files and ranks"),
]
CHARTS = [
    *("where", "step-times", "step-anatomy", "waterfall", "lines", "lateness", "bandwidth"),
    *("links-sent", "links-busy", "gradient-norms", "loss", "account"),
]


class Page(HTMLParser):
    """What a test asks of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
        data = re.findall(r'id="page-data">(.*?)</script>', text, re.DOTALL)
        self.figures: dict[str, Any] = json.loads(data[0]) if data else {}

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def choices(self, name: str) -> list[str]:
        """What can be chosen in the choice of this name."""
        chooser, found = "", list[str]()
        for tag, attributes in self.tags:
            chooser = str(attributes.get("id")) if tag == "select" else chooser
            if tag == "option" and chooser == name:
                found.append(str(attributes["value"]))
        return found

    def all(self, tag: str, name: str) -> list[str]:
        """An attribute of all elements of a kind that have it."""
        return [str(attributes[name]) for kind, attributes in self.tags if kind == tag and name in attributes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shown(tmp_path_factory.mktemp("shown") / "run")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return run_page(*load_details(folder), zoom=True)


def test_every_view_is_there_and_linked(text: str) -> None:
    assert re.findall(r'<h2 id="[^"]+">([^<]+)</h2>', text) == VIEWS
    assert re.findall(r'<li><a href="#[^"]+">([^<]+)</a></li>', text) == VIEWS
    page = Page(text)
    assert page.all("div", "data-chart") == CHARTS
    ids = [str(attributes["id"]) for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for target in page.all("a", "href"):
        assert target.startswith("#") and target[1:] in ids


def test_what_can_be_used_can_be_reached_by_keyboard_and_has_a_name(text: str) -> None:
    page = Page(text)
    for tag, attributes in page.tags:
        if tag == "div" and attributes.get("class") in ("plot", "scroll"):
            assert attributes["tabindex"] == "0" and attributes["aria-label"]
        if tag == "select":
            assert attributes["id"] in page.all("label", "for")
    tables = [attributes["id"] for tag, attributes in page.tags if tag == "table"]
    assert page.all("button", "data-table") == tables
    assert text.count('<caption class="sr">') == len(tables)
    assert text.count("<summary>The numbers as a table</summary>") == len(CHARTS)


def test_the_verdict_is_the_reports(folder: Path, text: str) -> None:
    report = load_report(folder)
    kinds = {finding.kind for finding in report.verdict.findings}
    assert {"late_rank", "non_finite_gradient"} <= kinds
    for finding in report.verdict.findings:
        assert f"<td>{finding.kind}</td>" in text and finding.confidence in text


def test_no_figure_is_empty_and_all_choices_have_theirs(text: str) -> None:
    page = Page(text)
    steps = page.choices("waterfall")
    assert len(steps) >= 8
    assert {f"waterfall-{step}" for step in steps} < set(page.figures)
    # The rank that a finding blames comes first.
    assert sorted(page.choices("lines")) == ["0", "1", "2"]
    assert {f"lines-{rank}" for rank in range(3)} < set(page.figures)
    for name, figure in page.figures.items():
        points = [trace.get("z") or trace["x"] for trace in figure["data"]]
        assert points and all(points), name
    assert set(page.all("button", "data-key")) == set(steps)
    slow = next(trace for trace in page.figures["step-times"]["data"] if trace["name"] == "shown below")
    assert sorted(map(str, slow["customdata"])) == sorted(steps)


def drawn(folder: Path) -> dict[str, Chart]:
    report, details = load_details(folder)
    return {chart.name: chart for chart in charts(report, details)}


def test_parts_of_a_step_add_up(folder: Path) -> None:
    steps = load_report(folder).steps
    total = sum(getattr(steps, f"{name}_ms") for name in PARTS)
    assert total == pytest.approx(steps.wall_ms)
    late = steps.late_ms.reshape(-1, 3)[1:]
    # Rank 1 is the late one: it waits for nobody.
    assert np.median(late, axis=0)[1] == 0 and np.median(late, axis=0)[0] > 10
    binned = anatomy(steps, stretches=5)
    assert len(binned) == 5 and binned.first[0] == 1 and binned.last[-1] == 23
    wall = steps.wall_ms.reshape(-1, 3)[1:].mean(axis=0)
    sizes = binned.last - binned.first + 1
    mean = sum((binned.parts[name] * sizes[:, None]).sum(axis=0) for name in PARTS) / sizes.sum()
    assert mean == pytest.approx(wall)


def test_slow_steps_come_first(tmp_path: Path) -> None:
    report = load_report(write_shown(tmp_path / "r"))
    shown = steps_to_show(report)
    assert list(shown) == sorted(shown) and "the slowest" in shown.values() and "typical" in shown.values()
    walls = np.fmax.reduceat(report.steps.wall_ms, np.unique(report.steps.step, return_index=True)[1])
    slowest = next(step for step, reason in shown.items() if reason == "the slowest")
    assert slowest == 1 + int(walls[1:].argmax())


def test_a_waterfall_shows_what_was_written(folder: Path) -> None:
    chart = next(chart for name, chart in drawn(folder).items() if name.startswith("waterfall-"))
    spans = {series.name: series for series in chart.panels[0].series if isinstance(series, Spans)}
    assert {"data", "forward", "backward", "waits for buckets"} <= set(spans)
    assert {"bucket: waiting for the last rank", "bucket: in Gloo's queue", "bucket: on the wire"} <= set(
        spans
    )
    wire, queue, late = (
        spans[f"bucket: {name}"] for name in ("on the wire", "in Gloo's queue", "waiting for the last rank")
    )
    # 3 ranks with 3 buckets each; the last rank waits for nobody.
    assert len(wire.bars) == 9 and len(late.bars) == 6
    assert [bar.end - bar.start for bar in wire.bars] == pytest.approx([1.0] * 9)
    assert queue.bars[0].end - queue.bars[0].start == pytest.approx(0.5)
    said = wire.bars[0].hover
    assert "layer0.weight" in said and "4.00 MB" in said and "1.00 ms on the wire" in said
    assert list(chart.panels[0].y.labels) == ["rank 0", "rank 1", "rank 2"]


def test_a_step_that_is_asked_for_comes_first(folder: Path) -> None:
    report, details = load_details(folder, step=5)
    names = [chart.name for chart in charts(report, details)]
    assert "waterfall-5" in names
    page = Page(run_page(report, details, zoom=True))
    assert page.all("option", "value")[0] == "5"


def test_lateness_by_rank_and_bucket(folder: Path) -> None:
    chart = drawn(folder)["lateness"]
    heat = chart.panels[0].series[0]
    assert isinstance(heat, Heat)
    values = np.array(heat.values, np.float64)
    assert values.shape == (3, 3)
    # Buckets come over the second half of 32 instead of 20 ms: 8, 10 and 12 ms late, in order of their cost.
    assert sorted(values[1].tolist()) == pytest.approx([8.0, 10.0, 12.0], abs=0.6)
    assert values[0].max() < 1.0


def test_links_and_gradients(folder: Path) -> None:
    every = drawn(folder)
    sent = every["links-sent"].panels[0].series[0]
    assert isinstance(sent, Heat)
    # From each rank to the one before it ten times as much as the other way.
    assert sent.values[1][0] == pytest.approx(9.9) and sent.values[0][1] == pytest.approx(0.99)
    norms = every["gradient-norms"].panels[0].series
    assert [series.name for series in norms if not isinstance(series, Heat)] == [
        *("rank 0", "rank 1", "rank 2", "not finite", "found")
    ]
    marks = norms[3]
    assert isinstance(marks, Points) and list(marks.x) == [16]
    first = norms[0]
    assert not isinstance(first, (Heat, Spans, Area)) and first.y[0] == pytest.approx(
        (3 * 4.0) ** 0.5, rel=1e-3
    )
    assert "loss" in every


def test_a_page_of_a_saved_report_has_what_that_holds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(folder), "--json"])
    saved = tmp_path / "report.json"
    saved.write_text(capsys.readouterr().out, encoding="utf-8")
    text = run_page(*load_details(saved), zoom=True)
    assert "A saved report holds no single steps" in text
    assert Page(text).all("div", "data-chart") == [
        *("where", "step-times", "step-anatomy", "bandwidth", "links-sent", "links-busy"),
        "account",
    ]


@pytest.mark.parametrize("training", [{"step_records": False}, {"steps": 1}, {"world_size": 1}], ids=str)
def test_a_run_that_tells_little_has_a_page_too(tmp_path: Path, training: dict[str, Any]) -> None:
    write_training(tmp_path, **training)
    page = Page(run_page(*load_details(tmp_path), zoom=True))
    assert all(figure["data"] for figure in page.figures.values())


def test_a_stuck_run_has_a_page_too(tmp_path: Path) -> None:
    for writer in write_training(tmp_path, steps=8):
        writer.header["closed"] = 0
        if writer.rank == 0:
            writer.bucket(16, 9_000_000_000, 0, 0, state=2, step=8)
        writer.write(tmp_path)
    report, details = load_details(tmp_path)
    assert details is not None and 8 in details.shown
    text = run_page(report, details, zoom=True)
    assert "has not ended" in text


@pytest.mark.parametrize(
    "many", [{}, {"world_size": 8, "buckets": 24}, {"world_size": 64, "steps": 120}, {"steps": 1500}], ids=str
)
def test_a_page_can_be_mailed(tmp_path: Path, many: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyddpdiag.report.charts.plotly._program", lambda: None)
    text = run_page(*load_details(write_shown(tmp_path, **many)))
    assert len(text.encode()) < SMALL
    page = Page(text)
    assert page.all("section", "aria-labelledby") == [
        "view-" + view.lower().replace(" ", "-") for view in VIEWS
    ]
    drawn_ = re.findall(r"<svg class=.pd.*?</svg>", text, flags=re.DOTALL)
    assert len(drawn_) >= len(CHARTS)
    for each in drawn_:
        # Well-formed, and no place that is no number.
        assert ElementTree.fromstring(each).tag.endswith("svg") and "nan" not in each and "inf" not in each
    assert text.count("<script>") == 1 and not page.figures


def test_a_picture_shows_what_was_written() -> None:
    chart = Chart(
        "c",
        "t",
        "s",
        [
            Panel(
                [Line("a", list(range(100_000)), [float(i == 70_000) for i in range(100_000)], "0")],
                Axis("ms"),
            )
        ],
        Axis("step"),
        Table("t", {}, 0),
    )
    [line] = re.findall(r'points="([^"]+)"', svg(chart))
    points = [tuple(map(float, each.split(","))) for each in line.split()]
    # Of each column of pixels its highest value stays, at its place.
    assert len(points) < 1000
    (peak,) = [x for x, y in points if y == min(y for _, y in points)]
    left, right = points[0][0], points[-1][0]
    assert (peak - left) / (right - left) == pytest.approx(0.7, abs=0.005)


def test_a_page_with_zoom_stays_below_8_mb(tmp_path: Path) -> None:
    write_shown(tmp_path, world_size=8, steps=60, buckets=24)
    text = run_page(*load_details(tmp_path), zoom=True)
    assert len(text.encode()) < 8e6
    # And that is its bound: with more, fewer steps are shown.
    assert 1 <= len(Page(text).choices("waterfall")) <= 12


def test_files_are_written_and_not_overwritten(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    target, pictures = tmp_path / "page.html", tmp_path / "png"
    command = ["report", str(folder), "--html", str(target), "--png", str(pictures)]
    assert main([*command, "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema_version"] == 1 and str(target) in captured.err
    names = sorted(path.name for path in pictures.iterdir())
    assert len(names) == len(CHARTS) and all(
        (pictures / name).read_bytes().startswith(b"\x89PNG") for name in names
    )
    before = target.read_bytes()
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err and target.read_bytes() == before
    assert main([*command, "--force"]) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_with_charts_and_without_plotly_the_error_says_how_to_get_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyddpdiag.report.charts.plotly._program", lambda: None)
    assert main(["report", str(folder), "--html", str(tmp_path / "a.html"), "--charts"]) == 2
    # Not an extra of pyddpdiag: a machine that reads would get torch with it.
    assert "pip install plotly\n" in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()
