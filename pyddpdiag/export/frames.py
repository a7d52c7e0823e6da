"""Columns as CSV, Parquet and pandas' data frames."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from pyddpdiag.errors import UsageError
from pyddpdiag.export.columns import Columns, tables
from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun

BLOCK: Final = 2**14
"""Rows that are Python's objects at a time: a long run has millions."""


def csv_outputs(run: ExportedRun) -> Iterator[Output]:
    """A file for each table that has rows."""
    return _outputs(run, as_csv, "csv")


def parquet_outputs(run: ExportedRun) -> Iterator[Output]:
    """A file for each table that has rows."""
    return _outputs(run, as_parquet, "parquet")


def as_csv(columns: Columns) -> Iterator[str]:
    """Comma-separated values with a header, in pieces; empty: not known."""
    yield _lines([tuple(columns)])
    for block in _blocks(columns):
        yield _lines(zip(*block, strict=True))


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    target = io.StringIO()
    # It writes nothing for None.
    csv.writer(target, lineterminator="\n").writerows(rows)
    return target.getvalue()


def as_parquet(columns: Columns) -> bytes:
    """A Parquet file.

    Raises:
        UsageError: pyarrow is not installed.
    """
    arrow, parquet = (
        _needed("pyarrow", "Parquet is written"),
        _needed("pyarrow.parquet", "Parquet is written"),
    )

    def column(values: Sequence[Any]) -> Any:
        parts = [arrow.array(values[rows]) for rows in _rows(len(values))]
        # What a part knows nothing of has no type of its own.
        kind = next((part.type for part in parts if part.type != arrow.null()), arrow.null())
        return arrow.chunked_array([part.cast(kind) for part in parts], kind).combine_chunks()

    target = io.BytesIO()
    parquet.write_table(arrow.table({name: column(values) for name, values in columns.items()}), target)
    return target.getvalue()


def as_frame(columns: Columns) -> Any:
    """A `pandas.DataFrame`.

    Raises:
        UsageError: pandas is not installed.
    """
    return _needed("pandas", "data frames are made").DataFrame(
        {name: values[:] for name, values in columns.items()}
    )


def _rows(length: int) -> list[slice]:
    return [slice(begin, begin + BLOCK) for begin in range(0, length, BLOCK)]


def _blocks(columns: Columns) -> Iterator[list[Sequence[Any]]]:
    """The columns, some rows at a time."""
    length = max(map(len, columns.values()), default=0)
    for rows in _rows(length):
        yield [values[rows] for values in columns.values()]


def _outputs(run: ExportedRun, made: Callable[[Columns], Any], suffix: str) -> Iterator[Output]:
    for name, table in tables(run.report, run.occurrences).items():
        if table:
            yield Output(PurePath(f"{name}.{suffix}"), partial(made, table))


def _needed(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise UsageError(
            f"{what} by {package}, which is not installed.", hint="pip install 'pyddpdiag[frames]'"
        ) from error
