"""Columns as CSV, Parquet and pandas' data frames."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import Any

from pyddpdiag.errors import UsageError
from pyddpdiag.export.columns import Columns, tables
from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun


def csv_outputs(run: ExportedRun) -> Iterator[Output]:
    """A file for each table that has rows."""
    return _outputs(run, as_csv, "csv")


def parquet_outputs(run: ExportedRun) -> Iterator[Output]:
    """A file for each table that has rows."""
    return _outputs(run, as_parquet, "parquet")


def as_csv(columns: Columns) -> str:
    """Comma-separated values with a header; empty: not known."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if value is None else value for value in row])
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
    target = io.BytesIO()
    parquet.write_table(arrow.table({name: list(values) for name, values in columns.items()}), target)
    return target.getvalue()


def as_frame(columns: Columns) -> Any:
    """A `pandas.DataFrame`.

    Raises:
        UsageError: pandas is not installed.
    """
    return _needed("pandas", "data frames are made").DataFrame(
        {name: list(values) for name, values in columns.items()}
    )


def _outputs(run: ExportedRun, made: Callable[[Columns], str | bytes], suffix: str) -> Iterator[Output]:
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
