"""Names and texts of others reach no terminal and no page raw."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from support.trace_writer import write_training

from pyddpdiag.bench import results
from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.compare.shown import page as compare_page
from pyddpdiag.bench.compare.shown import print_comparison
from pyddpdiag.bench.entries_table import print_entries
from pyddpdiag.bench.results import parse
from pyddpdiag.cli import main
from pyddpdiag.output import as_html, clean, clean_lines, say
from pyddpdiag.report.page import Notice, Paragraph
from pyddpdiag.report.page import page as whole_page
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.tables import Table

# Sets the window's title, then colours, a direction mark, half a surrogate pair, a bell and a carriage return.
EVIL = "a\x1b]0;owned\x07\x1b[31m\u202eb\ud800\x9b\r<script>c"
# A name that Linux allows: what is no UTF-8 in it comes as such a half.
NAME = EVIL.replace("\ud800", "\udc80")
ALLOWED = re.compile(r"\x1b\[[0-9;]*m|\n")  # what rich itself says on a terminal: colours, and lines


def ours(page: str) -> str:
    """A page without the program of Plotly, whose characters are its own business."""
    from pyddpdiag.report.charts.plotly import script

    return page.replace(script(), "")


def raw(text: str) -> list[str]:
    """The characters of a text that should not be in it."""
    return [c for c in ALLOWED.sub("", text) if not c.isprintable()]


@given(st.text())
def test_clean_text_is_as_long_and_printable(text: str) -> None:
    assert clean(text).isprintable() and len(clean(text)) == len(text)
    assert clean_lines(text).replace("\n", "").isprintable() and len(clean_lines(text)) == len(text)
    assert clean_lines(text).count("\n") == text.count("\n")


def test_what_is_clean_stays() -> None:
    for text in ("", "plain", "caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 a-b_c/d\\e"):
        assert clean(text) == clean_lines(text) == text
    assert clean("a\tb\u3000c\u00a0d") == "a b c d"
    assert clean("abc", 2) == "ab"


def test_html_is_cleaned_and_escaped() -> None:
    assert as_html('<a href="x">&\x1b\ud800') == "&lt;a href=&quot;x&quot;&gt;&amp;\ufffd\ufffd"


@pytest.mark.parametrize("encoding", ["utf-8", "cp437", "ascii"])
def test_say_writes_once_what_the_encoding_has(encoding: str) -> None:
    target = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    say(f"caf\u00e9 {EVIL}\n\u65e5", target)
    target.flush()
    said = target.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert raw(said) == [] and said.count("\n") == 2 and "owned" in said


def test_errors_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / NAME)]) == 2
    printed = capsys.readouterr().err
    assert "no such folder" in printed and raw(printed) == []


@pytest.mark.parametrize(
    "arguments",
    [
        *[[EVIL], ["report", f"--{EVIL}"], ["report", "x", "--step", EVIL]],
        *[["report", "x", "y", EVIL], ["bench", EVIL], ["bench", "steps", f"--{EVIL}"]],
    ],
    ids=repr,
)
def test_wrong_arguments_are_not_repeated_raw(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert raw(capsys.readouterr().err) == []


def test_mistake_in_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> int:
        raise RuntimeError(EVIL)

    monkeypatch.setattr("pyddpdiag.pipeline.print_report", broken)
    assert main(["report", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "RuntimeError" in printed and "owned" in printed and raw(printed) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows allows no such names")
def test_report_of_a_folder_and_files_with_evil_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / NAME
    write_training(folder)
    (folder / f"{EVIL[:9]}.ddptrace").write_bytes(b"")
    (folder / "rank_9.ddptrace").write_bytes(b"\x1b]0;x\x07" * 1000)
    main(["report", str(folder)])
    shown = capsys.readouterr()
    assert "owned" in shown.out and raw(shown.out + shown.err) == []
    main(["report", str(folder), "--json"])
    printed = capsys.readouterr().out
    assert printed.isascii() and raw(printed) == []
    # JSON tells programs the name as it is.
    assert json.loads(printed)["folder"] == str(folder)


def test_cells_titles_and_lines_of_a_screen() -> None:
    target = io.StringIO()
    screen = screen_for(target)
    screen.print(Text(EVIL, "bold"))
    screen.table(Table(EVIL, {EVIL: [EVIL], "b": [Text(EVIL, "red")]}, 1, note=EVIL))
    assert "owned" in target.getvalue() and raw(target.getvalue()) == []


def test_page_of_evil_parts() -> None:
    table = Table(EVIL, {EVIL: [EVIL], "b": [Text(EVIL, "red")]}, 1, note=EVIL)
    html = whole_page(EVIL, [Notice("error", EVIL, [EVIL], {EVIL: EVIL}), table, Paragraph(EVIL)])
    assert html.count("owned") == 16 and raw(html) == [] and html.count("<script>") == 1
    html.encode("utf-8")


def test_progress_of_a_training() -> None:
    from pyddpdiag.ranks.session import Note
    from pyddpdiag.train.display import Display

    target = io.StringIO()
    display = Display(Console(file=target, force_terminal=True, width=200))
    display(Note(EVIL))
    display(Note(EVIL + "2"))
    assert target.getvalue().count("owned") == 2 and raw(target.getvalue()) == []


def evil_results() -> str:
    """A result file whose every text is evil."""
    entry = {
        "name": EVIL,
        "group": EVIL,
        "params": {EVIL: EVIL},
        "extra_info": {
            "schema": results.SCHEMA,
            "schema_version": results.SCHEMA_VERSION,
            "kind": "step",
            "world_size": 2,
            "model": EVIL,
            "hook": EVIL,
            "bucket_cap_mb": 25,
            "dtype": EVIL,
            "interface": EVIL,
            "system": EVIL,
            "round_s": [0.01 + 0.0001 * n for n in range(12)],
        },
    }
    return json.dumps({"machine_info": {"node": EVIL, "system": EVIL}, "benchmarks": [entry]})


def test_comparison_as_text_and_page() -> None:
    files = [parse(evil_results(), f"{EVIL}{n}.json") for n in range(2)]
    comparison = compare(files)
    target = io.StringIO()
    print_comparison(comparison, target)
    assert "owned" in target.getvalue() and raw(target.getvalue()) == []
    html = compare_page(comparison)
    assert "owned" in html and raw(ours(html)) == [] and ours(html).count("<script>") == 1
    html.encode("utf-8")
    target = io.StringIO()
    print_entries(files[0].entries, target, {EVIL: EVIL})
    assert "owned" in target.getvalue() and raw(target.getvalue()) == []


def test_comparison_as_a_chart() -> None:
    from pyddpdiag.bench.compare.shown import charts
    from pyddpdiag.report.charts.svg import svg

    comparison = compare([parse(evil_results(), f"{EVIL}{n}.json") for n in range(2)])
    drawn = charts(comparison)
    assert drawn
    for chart in drawn:
        drawn_ = svg(chart)
        assert "<svg" in drawn_ and raw(drawn_) == [] and "<script>" not in drawn_
