import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from support import trace_writer

from pyddpdiag.trace import layout

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "trace-format.md").read_text(encoding="utf-8")


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


def native(opening: str) -> list[tuple[str, str]]:
    """Names and values ("" where none is given) of an enumeration in the native module's header."""
    source = (ROOT / "csrc/core/trace/record.hpp").read_text(encoding="utf-8")
    body = re.search(rf"{re.escape(opening)}[^{{]*{{(.*?)}};", source, re.DOTALL)
    assert body is not None, opening
    code = re.sub(r"//[^\n]*", "", body[1])
    parts = [part.partition("=") for part in code.split(",") if part.strip()]
    return [(name.strip(), value.strip()) for name, _, value in parts]


def in_document(field: str) -> dict[int, str]:
    """The numbered meanings of a field in the table of the format's page."""
    row = re.search(rf"^\| \d+ \| \w+ \| `{field}` \| (.*) \|$", DOCUMENT, re.MULTILINE)
    assert row is not None, field
    text = re.sub(r"\([^)]*\)", "", row[1])
    return {int(number): words.strip() for number, words in re.findall(r"(\d+) ([^,]+)", text)}


def test_the_document_is_of_this_minor() -> None:
    header = (ROOT / "csrc/core/trace/header.hpp").read_text(encoding="utf-8")
    [minor] = re.findall(r"trace_minor = (\d+);", header)
    assert f"This is format 1.{minor}." in DOCUMENT
    assert f"| 10 | u16 | `minor` | {minor}; " in DOCUMENT


def test_kinds_are_those_of_the_native_module_and_the_document() -> None:
    ours = {kind.name.lower(): kind.value for kind in layout.Kind}
    assert ours == {name: int(value) for name, value in native("enum class Kind")}
    assert ours == {words: number for number, words in in_document("kind").items()}


def test_flags_are_those_of_the_native_module_and_the_document() -> None:
    ours = {flag.name: flag.value.bit_length() - 1 for flag in layout.Flag}
    theirs = {}
    for name, value in native("enum Flag"):
        shift = re.fullmatch(r"1U << (\d+)U", value)
        assert shift is not None, name
        theirs[name.removeprefix("flag_").upper()] = int(shift[1])
    assert ours == theirs
    assert sorted(in_document("flags")) == sorted(ours.values())


def test_types_are_those_of_the_native_module_and_the_document() -> None:
    ours = dict(enumerate(layout.DTYPE_NAMES))
    assert ours == {int(value): name for name, value in native("enum class Dtype")}
    assert ours == in_document("dtype")


COLUMNS: dict[str, type[IntEnum]] = {
    "bucket_time": layout.BucketTime,
    "collective_time": layout.CollectiveTime,
    "backward_time": layout.BackwardTime,
    "step_time": layout.StepTime,
    "gradient_value": layout.GradientValue,
    "usage_value": layout.UsageValue,
    "phase_time": layout.PhaseTime,
    "history_value": layout.HistoryValue,
}


@pytest.mark.parametrize("namespace", COLUMNS)
def test_columns_are_those_of_the_native_module(namespace: str) -> None:
    theirs = [name for name, _ in native(f"namespace {namespace} {{\nenum")]
    assert [column.name.lower() for column in COLUMNS[namespace]] == theirs
    assert [column.value for column in COLUMNS[namespace]] == list(range(len(theirs)))


def test_every_kind_of_column_is_compared() -> None:
    source = (ROOT / "csrc/core/trace/record.hpp").read_text(encoding="utf-8")
    spaces = set(re.findall(r"^namespace (\w+) {\nenum", source, re.MULTILINE))
    # A parameter record has one column; connections pack two readings into a word.
    assert spaces - {"parameter_time", "connection_value"} == COLUMNS.keys()
    assert len(native("namespace connection_value {\nenum")) == len(layout.ConnectionValue)
