"""`pyddpdiag report DIR`: where each bucket's time went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the traces of all ranks.")],
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (docs/metrics.md) instead of text.")
    ] = False,
    step: Annotated[int | None, typer.Option(min=0, help="Show this step only.")] = None,
    bucket: Annotated[
        str | None,
        typer.Option(help="Show buckets whose id begins with this, or a parameter's name contains it."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many buckets to show; 0 shows all.")] = 10,
) -> None:
    """Say where each step's time went: which rank, which bucket, and how much was hidden behind backward.

    Exit code: 0 healthy, 1 findings, 2 could not judge.
    """
    # Here, so that --help needs neither NumPy nor rich's tables.
    from pyddpdiag.pipeline import print_report

    raise typer.Exit(print_report(folder, json=json, step=step, bucket=bucket, top=top))
