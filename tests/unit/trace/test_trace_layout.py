from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import trace_writer

from pyddpdiag.trace import layout


def test_record_is_laid_out_as_the_writer_writes_it() -> None:
    ours, theirs = layout.record_dtype("<"), trace_writer.record_dtype("<")
    assert ours.itemsize == theirs.itemsize == 128
    assert theirs.fields is not None and ours.fields is not None
    for name in theirs.names or ():
        assert ours.fields[name][:2] == theirs.fields[name][:2], name


def test_text_lies_over_the_times() -> None:
    record = np.zeros(1, layout.record_dtype("<"))
    record["times"][0] = np.frombuffer(b"0123456789abcdef" * 4, "<i8")
    assert record["text"][0] == b"0123456789abcdef" * 4
    assert record["name"][0] == b"0123456789abcdef" * 2


@pytest.mark.parametrize("order", ["<", ">"])
def test_header_fields_are_where_the_format_puts_them(order: str) -> None:
    page = bytes(trace_writer.header_page(order, capacity=77, tickets=5, closed=1, rank=3, wall_ns=9))
    header = np.frombuffer(page, layout.header_dtype(order), 1)[0]
    assert (header["capacity"], header["tickets"], header["closed"]) == (77, 5, 1)
    assert (header["rank"], header["wall_ns"], header["magic"]) == (3, 9, b"DDPTRACE")
    assert bytes(header["run_id"]) == trace_writer.RUN_ID


def test_constants_agree_with_the_document() -> None:
    text = (Path(__file__).parents[3] / "docs" / "trace-format.md").read_text(encoding="utf-8")
    for name in ("bucket", "collective", "backward", "step", "parameter", "error", "connection"):
        assert f"{layout.Kind[name.upper()].value} {name}" in text
    for number, name in enumerate(layout.DTYPE_NAMES[1:], 1):
        assert f"{number} {name}" in text
    for flag, name in enumerate(
        ("error", "last bucket", "native hook", "accelerator", "no batch", "sampled", "abandoned")
    ):
        assert f"{flag} {name}" in text
        assert layout.Flag(1 << flag)
