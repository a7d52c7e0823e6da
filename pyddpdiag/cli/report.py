"""`pyddpdiag report DIR`: where each bucket's time went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.cli._options import Attempt, Folder, Force, Memory
from pyddpdiag.output import say


def report(
    folder: Folder,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (pyddpdiag help metrics) instead of text.")
    ] = False,
    detail: Annotated[
        bool,
        typer.Option("--detail", help="With --json: each rank's times in every step of a long run, too."),
    ] = False,
    step: Annotated[
        int | None, typer.Option(min=0, help="Show this step only; on the page, this one too.")
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(help="Show buckets whose id begins with this, or a parameter's name contains it."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=0, help="How many buckets to show, usually 10; 0 shows all.")
    ] = None,
    every_rank: Annotated[
        bool, typer.Option("--all", help="All findings in full and all tables, with a row for every rank.")
    ] = False,
    attempt: Attempt = None,
    memory: Memory = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page (pyddpdiag help pages): one file below 300 kB, no network.",
        ),
    ] = None,
    charts: Annotated[
        bool,
        typer.Option(
            "--charts", help="With --html: charts to zoom, with all numbers; some MB, needs plotly."
        ),
    ] = False,
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each chart of the page as a picture.")
    ] = None,
    force: Force = False,
) -> None:
    """Say where each step's time went: which rank, which bucket, and how much was hidden behind backward.

    Exit code: 0 healthy, 1 findings, 2 could not judge.
    """
    # Here, so that --help needs neither NumPy nor rich's tables.
    import sys

    from pyddpdiag.errors import UsageError
    from pyddpdiag.pipeline import load_details, print_report
    from pyddpdiag.remote.copy import at_hand
    from pyddpdiag.remote.place import is_url, shown
    from pyddpdiag.report.run.page import require_free, write_pages
    from pyddpdiag.trace.budget import USUAL_GB

    if charts and html is None:
        raise UsageError("--charts belongs to --html FILE.")
    if detail and not json:
        raise UsageError(
            "--detail belongs to --json.",
            hint="the text shows every rank with --all, every bucket with --top 0.",
        )
    require_free(html, png, force=force, zoom=charts)
    memory_gb = USUAL_GB if memory is None else memory
    written: list[Path] = []
    whole = None
    with at_hand(folder) as traces:
        if html is not None or png is not None:
            whole, details = load_details(traces, step=step, attempt=attempt, memory_gb=memory_gb)
            written = write_pages(whole, details, html, png, force=force, zoom=charts)
        code = print_report(
            traces,
            json=json,
            detail=detail,
            step=step,
            bucket=bucket,
            top=top,
            every_rank=every_rank,
            attempt=attempt,
            memory_gb=memory_gb,
            named=shown(folder) if is_url(folder) else "",
            report=whole,
        )
    for path in written:
        # Standard output may be JSON for another program.
        say(f"Written: {path}", sys.stderr)
    raise typer.Exit(code)
