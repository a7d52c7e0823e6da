import io
import re
from pathlib import Path

import pytest
from support.trace_writer import IN_FLIGHT, MS, RankWriter, write_training

from pyddpdiag.model.findings import Finding
from pyddpdiag.pipeline import load_report
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.text import print_finding, print_text


def shown(folder: Path, encoding: str = "utf-8", *, top: int = 10, step: int | None = None) -> str:
    raw = io.BytesIO()
    # errors="strict": a character that the code page lacks is an error here, as on a real console.
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n")
    print_text(load_report(folder, step=step), stream, top=top, tables=True)
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_verdict_comes_first_and_warnings_last(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, late_ms={1: 15.0})
    text = shown(tmp_path)
    places = [text.index(part) for part in ("Rank 1 is late", "Ranks (", "Buckets, ", "Good to know")]
    assert places == sorted(places)
    assert "Confidence: high." in text


def test_tables_hold_the_numbers(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=2, steps=20, late_ms={1: 15.0}, wire_ms=2.0)
    text = shown(tmp_path)
    rows = [line.split() for line in text.splitlines()]
    assert ["1", "host1", "20", "38.5", "35.0", "1.00", "2.50", "36.0", "100%", "80"] in rows
    (last,) = [row for row in rows if "layer1.weight" in row]
    assert last[2:11] == ["4.00", "MB", "20", "15.0", "0.50", "2.00", "17.5", "2.00", "0%"]


@pytest.mark.parametrize("encoding", ["utf-8", "cp437", "cp1252", "cp850", "ascii", "latin-1", "cp932"])
def test_every_code_page_can_print_it(tmp_path: Path, encoding: str) -> None:
    writers = write_training(tmp_path, world_size=2, steps=8, late_ms={1: 15.0})
    writers[0].sidecar["host"] = "r\u00e9chner-\u4e2d"
    writers[0].sidecar["modules"][0]["parameters"][0]["name"] = "\u5c42.weight\U0001f600"
    writers[0].write(tmp_path)
    text = shown(tmp_path, encoding)
    assert "Rank 1 is late" in text
    assert ("\u2588" in text) == (encoding == "utf-8")


def test_ascii_fallback_is_plain(tmp_path: Path) -> None:
    write_training(tmp_path, steps=8, late_ms={1: 15.0})
    text = shown(tmp_path, "cp1252")
    assert text.isascii()
    assert re.search(r" \.+q?w+$", text, re.MULTILINE)


def test_piped_text_has_no_colours_and_fits(tmp_path: Path) -> None:
    write_training(tmp_path, steps=8, buckets=12, wire_ms=14.0, late_ms={1: 5.0})
    text = shown(tmp_path)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("width", [60, 80, 96, 110])
def test_terminal_widths(tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    clocks = {1: ("other", 5_000_000_000, 0)}
    writers = write_training(tmp_path, steps=8, buckets=12, wire_ms=14.0, clocks=clocks)
    writers[0].sidecar["host"] = "a-machine-with-a-rather-long-name.example.org"
    writers[0].write(tmp_path)

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    stream = Terminal()
    print_text(load_report(tmp_path), stream, tables=True)
    text = stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= width
    assert not re.search(r"\x1b\[3[0-7]m", text)
    for name in ("waiting", "queue", "wire", "total", "hidden", "exposed"):
        assert re.search(rf"\b{name}\b", plain), name


def test_top_limits_the_buckets_and_says_so(tmp_path: Path) -> None:
    write_training(tmp_path, steps=6, buckets=7)
    assert "4 more; --top 0 shows all." in shown(tmp_path, top=3)
    assert shown(tmp_path, top=3).count(".weight") == 3
    assert shown(tmp_path, top=0).count(".weight") == 7


def test_first_layout_is_marked(tmp_path: Path) -> None:
    writer = RankWriter()
    for step in range(8):
        begin = (1 + step) * 100 * MS
        writer.bucket(step, begin, begin, begin + MS, reference=1 if step == 0 else 2)
    writer.write(tmp_path)
    text = shown(tmp_path)
    assert re.search(r"00000001 +\* ", text) or re.search(r"0000000000000001 +\* ", text)
    assert "before DDP rebuilt its buckets" in text


def test_errors_and_operations_in_flight_are_shown(tmp_path: Path) -> None:
    writer = RankWriter(closed=0)
    writer.error(writer.bucket(0, 10 * MS, 11 * MS, 12 * MS, flags=1), "Connection reset by peer")
    writer.collective("gloo:barrier", 30 * MS, 0, state=IN_FLIGHT)
    for sequence in range(1, 11):
        writer.bucket(sequence, 20 * MS, 21 * MS, 0, state=IN_FLIGHT)
    writer.write(tmp_path)
    text = shown(tmp_path)
    assert "Connection reset by peer" in text
    assert "in flight, started, for at least 10.0 ms" in text
    # Nothing was recorded since it began.
    assert "gloo:barrier: in flight, started\n" in text
    assert "3 more in flight; see --json." in text
    assert "not closed" in text


def test_a_finding_without_advice_leaves_no_empty_line() -> None:
    stream = io.StringIO()
    finding = Finding("operation_failed", "error", "1 operation failed", "high")
    print_finding(screen_for(stream), finding, is_headline=False)
    assert stream.getvalue() == "    error: 1 operation failed\n    Confidence: high.\n"


def test_names_from_a_file_cannot_style_or_drive_the_terminal(tmp_path: Path) -> None:
    writer = RankWriter()
    writer.sidecar["host"] = "[red]x[/]\x1b]0;gotcha\x07"
    writer.collective("\x1b[2Jgloo:[bold]x", 1, 2)
    writer.error(writer.bucket(0, 1, 2, 3, flags=1), "\x1b[31mbad[/nonsense]")
    writer.write(tmp_path)
    text = shown(tmp_path)
    assert "\x1b" not in text and "\x07" not in text
    assert "[red]x[/]" in text and "bad[/nonsense]" in text


def test_slow_steps_are_named(tmp_path: Path) -> None:
    writer = RankWriter()
    for step in range(10):
        begin = (1 + step) * 1000 * MS
        writer.step(step, begin, begin, begin + (500 if step == 7 else 20) * MS)
        writer.bucket(step, begin, begin, begin + MS)
    writer.write(tmp_path)
    assert "slowest: 7 (500 ms)" in shown(tmp_path)


def test_stream_without_an_encoding(tmp_path: Path) -> None:
    write_training(tmp_path, steps=6)
    stream = io.StringIO()
    print_text(load_report(tmp_path), stream, tables=True)
    assert "Healthy" in stream.getvalue()
    assert screen_for(stream).encoding == "utf-8"


def numbers(text: str, table: str) -> list[str]:
    """The ranks of the rows of a table."""
    rows = [line.split() for line in text.partition(table)[2].partition("\n\n")[0].splitlines()]
    return [row[0] for row in rows if row and row[0].isdigit()]


@pytest.mark.parametrize("table", ["Ranks (", "Where each rank's life went"])
def test_many_ranks_fit_on_a_screen(tmp_path: Path, table: str) -> None:
    write_training(tmp_path, world_size=40, steps=8, late_ms={7: 30.0}, data_late_ms={21: 25.0})
    report = load_report(tmp_path)
    stream = io.StringIO()
    print_text(report, stream, tables=True)
    text = stream.getvalue()
    assert numbers(text, table) == ["7", "21", "38"]
    assert "38 others" in text.partition(table)[2] and "--all shows every rank" in text.partition(table)[2]
    assert len(text.splitlines()) < 60
    stream = io.StringIO()
    print_text(report, stream, tables=True, every_rank=True)
    assert numbers(stream.getvalue(), table) == [str(rank) for rank in range(40)]


def test_each_rank_has_a_bar_of_where_its_life_went(tmp_path: Path) -> None:
    write_training(tmp_path, world_size=3, steps=20, compute_ms=20.0, wire_ms=2.0, late_ms={2: 7.0})
    text = shown(tmp_path)
    numbers_, _, rest = text.partition("Where each rank's life went")[2].partition("\n\n")
    bars = rest.splitlines()
    assert "compute" in numbers_
    assert [line.split()[0] for line in bars[:3]] == ["0", "1", "2"]
    longest = [line.split()[1] for line in bars[:3]]
    assert {len(line) for line in longest} == {96}
    # Of 1.61 s, the third rank computes for 0.51; the others wait for it for 0.13.
    assert longest[2].count("c") == pytest.approx(96 * 0.51 / 1.61, abs=1) and "r" not in longest[2]
    assert longest[0].count("r") == pytest.approx(96 * 0.13 / 1.61, abs=1)
    assert bars[3].strip() == "Bars: s start-up, f first step, c compute, d data, w wire, r ranks"
    # No letters where one step is shown: that is no life.
    assert "Bars: s" not in shown(tmp_path, step=5)


def test_each_line_to_copy_is_whole_and_indented() -> None:
    stream = io.StringIO()
    long = "x" * 200
    screen_for(stream).print_whole(f"with Join([ddp]):\n    {long}", 4)
    assert stream.getvalue() == f"    with Join([ddp]):\n        {long}\n"
