"""The end of a run on one screen: the step as a tree whose numbers are those of the page and of the JSON."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from support.reported import report_of
from support.trace_writer import BACKWARD, MS, RankWriter, write_training

from pyddpdiag.analyse.anatomy import anatomy
from pyddpdiag.model.cube import PARTS, RankParts
from pyddpdiag.model.report import RunReport
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.json import read_report, report_to_json
from pyddpdiag.report.text import machines_line, print_text


def shown(report: RunReport) -> str:
    stream = io.StringIO()
    print_text(report, stream)
    return stream.getvalue()


def row(text: str, label: str) -> str:
    (line,) = [line for line in text.splitlines() if label in line and line.lstrip()[0] in "├└│"]
    return line.split(label)[1]


def passes(folder: Path) -> RankParts:
    """One rank: of 100 ms, 2 of data, 10 forward, 30 backward, 8 in the optimizer, 5 of a transfer, 45 before."""
    writer = RankWriter()
    for step in range(12):
        at = (1 + step) * 100 * MS
        writer.step(step, at, at + 2 * MS, at + 100 * MS)
        begin = at + 57 * MS
        times = (begin, begin, begin + 30 * MS, begin + 35 * MS, begin - 10 * MS, begin)
        writer.add(BACKWARD, times=times, step=step)
        writer.bucket(step, begin + 20 * MS, begin + 20 * MS, begin + 35 * MS)
    (parts,) = report_of([writer], folder).parts
    return parts


def test_the_spans_of_a_step_are_those_of_its_passes(tmp_path: Path) -> None:
    parts = passes(tmp_path)
    known = (parts.forward_ms, parts.backward_ms, parts.after_ms, parts.before_ms)
    assert known == pytest.approx((10, 30, 8, 45), abs=0.01)
    assert (parts.data_wait_ms, parts.own_ms, parts.step_ms) == pytest.approx((2, 93, 100), abs=0.01)
    text = shown(load_report(tmp_path))
    assert row(text, "forward").split() == ["10.0", "10%"]
    assert row(text, "optimizer and after").split() == ["8.00", "8%"]


def test_text_page_and_json_say_the_same(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, late_ms={1: 15.0}, data_late_ms={2: 3.0})
    report = load_report(tmp_path)
    found = anatomy(report.steps, report.cube, stretches=1)
    for part in PARTS:
        of_page = np.nan_to_num(found.parts[part][0])
        assert [getattr(each, f"{part}_ms") for each in report.parts] == pytest.approx(of_page.tolist())
    for each in report.parts:
        assert sum(getattr(each, f"{part}_ms") for part in PARTS) == pytest.approx(each.step_ms)
    file = tmp_path / "report.json"
    file.write_text(report_to_json(report), encoding="utf-8")
    saved = read_report(file)
    assert saved.parts == report.parts
    assert shown(saved).splitlines()[1:-1] == shown(report).splitlines()[1:-1]


@pytest.mark.parametrize(
    ("made", "label", "who"),
    [
        ({"late_ms": {1: 15.0}}, "own lines", "rank 1"),
        ({"data_late_ms": {1: 15.0}}, "data", "rank 1"),
        ({"wire_ms": 30.0}, "on the wire", "every rank"),
    ],
)
def test_the_cause_is_marked(tmp_path: Path, made: dict[str, object], label: str, who: str) -> None:
    write_training(tmp_path, world_size=3, steps=20, **made)  # type: ignore[arg-type]
    text = shown(load_report(tmp_path))
    assert row(text, label).endswith(f"◀ {who}")
    assert text.count("◀") == 1


def test_where_gradients_add_up_a_step_is_not_what_findings_count(tmp_path: Path) -> None:
    """Of two steps, one averages."""
    writers = [RankWriter(rank, 2) for rank in range(2)]
    for step in range(20):
        now = 10**9 + 40 * MS * step
        for writer in writers:
            writer.step(step, now, now + MS, now + 40 * MS)
            writer.backward(step, now + MS, now + 26 * MS, now + 31 * MS)
            if step % 2:
                writer.bucket(step, now + 25 * MS, now + 26 * MS, now + 31 * MS, step=step)
    said = shown(report_of(writers, tmp_path))
    assert "1 step in 2 averages gradients" in said
    write_training(tmp_path / "plain", world_size=2, steps=8)
    assert "averages gradients" not in shown(load_report(tmp_path / "plain"))


def test_it_is_one_screen_and_says_where_to_read_more(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=40, steps=8, late_ms={7: 30.0}, data_late_ms={21: 25.0})
    text = shown(load_report(tmp_path))
    assert len(text.splitlines()) <= 30
    assert f"pyddpdiag report {tmp_path} --all" in text
    assert "rank 7" in text and "38 others" in text and "Also: rank 21 is late" in text


def test_machines_in_a_line(tmp_path: Path) -> None:
    for writer in write_training(tmp_path, world_size=3, steps=8):
        memory = {"used": (1 + writer.rank) * 10**9, "machine": 32 * 10**9}
        host = "b" if writer.rank == 2 else "a"
        writer.sidecar.update(host=host, cores=[0, 1], torch_threads=2, memory=memory)
        writer.write(tmp_path)
    line = machines_line(load_report(tmp_path))
    assert "Machine a with ranks 0 to 1: 2 cores, 2 threads each, memory 1.00 to 2.00 of 32.0 GB" in line
    assert "Machine b with rank 2: 2 cores, 2 threads, memory 3.00 of 32.0 GB" in line


def test_a_summary_is_flat_and_says_what_the_tree_says(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, late_ms={1: 15.0})
    report = load_report(tmp_path)
    summary = report.summary()
    assert all(isinstance(value, (int, float, str)) for value in summary.values())
    assert (summary["status"], summary["first_kind"], summary["first_rank"]) == ("findings", "late_rank", 1)
    assert summary["verdict"] == report.verdict.line
    assert summary["late_ms"] == pytest.approx(sum(rank.late_ms for rank in report.parts) / 3)
    assert "forward_ms" not in summary
