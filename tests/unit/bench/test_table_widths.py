"""Tables in narrow windows: texts give way, and no number is ever cut."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pytest
from sample_entries import file, step, training

from pyddpdiag.bench.compare.compare import compare
from pyddpdiag.bench.compare.tables import tables
from pyddpdiag.live.answer import print_hang
from pyddpdiag.live.state import Hang, RankState
from pyddpdiag.report.screen import screen_for
from pyddpdiag.report.tables import Table

WIDTHS = (60, 80, 100, 120)
ERROR = "[pair.cc:547] Connection closed by peer [10.0.0.1]:29500"


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("pyddpdiag.report.screen.PIPED", request.param)
    return int(request.param)


def shown(table: Table) -> str:
    out = io.StringIO()
    screen_for(out).table(table)
    return out.getvalue()


def numbers(table: Table) -> Iterator[str]:
    """The cells that must be in one piece."""
    for place, (name, cells) in enumerate(table.columns.items()):
        if not table.is_text(place, name):
            yield from map(str, cells)


def complete(text: str, every: Sequence[Table], width: int) -> None:
    """No line is too wide, each number is a word of its own as often as it is in the table, and no text is lost."""
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for table in every:
        cells = [number for number in numbers(table)]
        for number in set(cells):
            for part in number.split():
                assert words.count(part) >= sum(cell.split().count(part) for cell in cells), (part, text)
    assert "…" not in text


@pytest.mark.parametrize("ranks", [2, 12])
def test_a_hang_with_a_long_error(width: int, ranks: int) -> None:
    state = [
        RankState(
            rank, "busy", f"node-{rank}.example.org", 100_000 + rank, 150 + rank, 34.5, 0.7, error=ERROR
        )
        for rank in range(ranks)
    ]
    out = io.StringIO()
    found = Hang("runs/today", "0" * 16, ranks, "found", "Rank 1 failed.", (), tuple(state), (), 1.0)
    print_hang(found, out)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for rank in range(ranks):
        assert str(150 + rank) in words
    assert words.count("Connection") == words.count("[10.0.0.1]:29500") == ranks


def test_comparisons_of_steps_and_scalings(width: int) -> None:
    parts = {"compute_s": 0.0071234, "exposed_s": 0.0012345, "queue_s": 0.0001, "wire_s": 0.0012}
    entries = [
        step(0.01 * n, n, hook=hook, bucket_cap_mb=cap, first_bucket_mb=1.0, split=parts)
        for n, hook in enumerate(("plain", "native", "native+shared"), 1)
        for cap in (25.0, 1.0)
    ]
    entries += [training(n, 3418.0 / n, split={name: 60 * v for name, v in parts.items()}) for n in (1, 2, 4)]
    every = tables(compare([file("a-first-run", *entries), file("another-run", *entries)]))
    for table in every:
        complete(shown(table), [table], width)
    # Every case has its own name, whatever the width.
    ratios = next(table for table in every if "ratio of times" in table.title)
    assert len(set(ratios.columns["case"])) == 6 and "All are" in ratios.note
    flat = " ".join(shown(ratios).split())
    assert all(part in flat for case in ratios.columns["case"] for part in str(case).split())


def test_a_table_of_numbers_alone_is_shown_in_blocks(width: int) -> None:
    columns = {"epoch": ["1", "2"], **{f"{n} ranks": [f"2.{n:04} {n:8.1f}s"] * 2 for n in range(1, 9)}}
    table = Table("Losses", columns, 0)
    text = shown(table)
    complete(text, [table], width)
    assert text.count("epoch") == len([line for line in text.splitlines() if line.split()[:1] == ["1"]]) > 1


def test_a_table_that_fits_stays_as_it_is_and_the_widest_text_gives_way_first() -> None:
    assert "run-with-a-name" in shown(Table("t", {"run": ["run-with-a-name"], "time": ["1.5"]}, 1))
    long = "a sentence of many words " * 6
    lines = shown(
        Table("t", {"short": ["as wide as before"], "long": [long], "time": ["1.5"]}, 2)
    ).splitlines()
    assert any(line.strip().startswith("as wide as before  a sentence") for line in lines)
    assert " ".join(lines).count("sentence") == 6
