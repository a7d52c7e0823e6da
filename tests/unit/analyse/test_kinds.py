"""The table of kinds: each row is complete, and a kind that nothing else knows is shown right everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.trace_writer import write_training

from pyddpdiag.analyse import catalog
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.bench.compare.runs import compare_runs
from pyddpdiag.cli import main
from pyddpdiag.live.pulse import Watcher
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import KINDS, Kind, brief
from pyddpdiag.pipeline import load_details, load_report
from pyddpdiag.report.charts.chart import Spans
from pyddpdiag.report.run.verdict import figures, where_chart

MESSAGE = "rank 1 hums: 7.00 ms of each step, for no reason."


def finding(kind: str, **more: int | float | str | None) -> Finding:
    return Finding(kind, "warning", MESSAGE, "high", **more)  # type: ignore[arg-type]


@pytest.fixture
def hums(monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A kind and its check, which finds it in folders that are named so."""
    kind = Kind(
        "hums",
        short="{ranks} hums{when}",
        family="ranks",
        part="compute",
        cure="if {ranks} kept silent",
        saves={"--silent": "saved_ms"},
    )

    def look(view: RunView) -> Iterator[Finding]:
        if view.run.folder.name == "hums":
            yield Finding(
                kind="hums",
                severity="warning",
                message=MESSAGE,
                confidence="high",
                rank=1,
                since_step=5,
                cost_ms=7.0,
                evidence={"saved_ms": 6.0, "stretches": 1},
                change_mind="It sings.",
                advice="Listen.",
            )

    monkeypatch.setitem(KINDS, "hums", kind)
    monkeypatch.setattr(catalog, "CHECKS", (*catalog.CHECKS, Check(("hums",), look)))
    return kind


def test_a_new_kind_is_a_row_and_a_check(
    hums: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("hums", "calm"):
        write_training(tmp_path / name, steps=20)
    folder = tmp_path / "hums"

    assert main(["report", str(folder)]) == 1
    assert "Rank 1 hums: 7.00 ms of each step" in capsys.readouterr().out

    main(["report", str(folder), "--json"])
    (found,) = json.loads(capsys.readouterr().out)["verdict"]["findings"]
    assert (found["kind"], found["family"], found["short"]) == ("hums", "ranks", "rank 1 hums from step 5 on")

    report, details = load_details(folder)
    saved = figures(report)[-1]
    assert saved.value == "6.00 ms" and saved.about.endswith("if rank 1 kept silent")
    chart = where_chart(report, details)
    assert chart is not None and chart.panels[0].callouts[0].text.startswith("rank 1, compute or asleep: ")
    assert any(isinstance(series, Spans) and series.marked for series in chart.panels[0].series)
    assert main(["report", str(folder), "--html", str(tmp_path / "page.html")]) == 1
    assert "Rank 1 hums" in (tmp_path / "page.html").read_text(encoding="utf-8")

    (change,) = Watcher(folder).look().changes
    assert change.endswith(" since step 5: rank 1 hums (7.00 ms per step)")

    notes = compare_runs([tmp_path / "calm", folder]).notes
    assert any(
        "Only hums: rank 1 hums from step 5 on (7.00 ms per step) (hums from" in note for note in notes
    )

    target = tmp_path / "exported"
    assert main(["export", str(folder), "--csv", "--openmetrics", "--output-dir", str(target)]) == 0
    tables = [path.read_text(encoding="utf-8") for path in target.rglob("*") if path.is_file()]
    assert sum("hums,warning,high,1" in table for table in tables) == 1
    assert sum('kind="hums",severity="warning",rank="1"' in table for table in tables) == 1


@pytest.mark.parametrize("evidence", [{}, {"saved_ms": 6.0}])
def test_a_kind_without_a_row_is_shown_too(tmp_path: Path, evidence: dict[str, float]) -> None:
    """As a report that was saved by another version may have it."""
    write_training(tmp_path, steps=20)
    report = load_report(tmp_path)
    one = replace(finding("not_seen_before", cost_ms=7.0), evidence=evidence)
    saved = figures(replace(report, verdict=replace(report.verdict, findings=(one,))))[-1]
    assert saved.value == f"{evidence.get('saved_ms', 7.0):.2f} ms"
    assert saved.about.endswith("without this: not seen before")
    assert brief(one) == "not seen before (7.00 ms per step)"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_is_complete(kind: Kind) -> None:
    assert kind.short
    part = replace(finding(kind.name, rank=1, peer=2, since_step=3, until_step=5), evidence={"stretches": 1})
    for one in (finding(kind.name), part, replace(part, severity="error")):
        said = kind.in_short(one)
        assert said and "{" not in said and said[-1] not in ".:;" and len(said) < 80
        assert "{" not in kind.cured(one)
    others = {*kind.explained_by, *kind.leads_to}
    assert others <= set(KINDS) and kind.name not in others
    if kind.explains or kind.part not in ("", "gradients"):
        assert kind.cure, "what costs time says what would save it"
