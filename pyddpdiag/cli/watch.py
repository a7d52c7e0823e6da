"""`pyddpdiag watch DIR`: how a run goes, while it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(
    folder: Annotated[
        str,
        typer.Argument(metavar="DIR_OR_URL", help="Folder with the traces, or its URL; may not exist yet."),
    ],
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two looks; more if a look takes long.")
    ] = 2.0,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per look (pyddpdiag help hang), each in a line."),
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once; exit code as of report.")] = False,
    openmetrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.prom",
            help="Also keep the figures of the newest look here, for Prometheus's node exporter.",
        ),
    ] = None,
) -> None:
    """Show step time, exposed communication, late ranks, what is in flight and the verdict, live. Ctrl-C ends it.

    Starts and stops at any time; follows a run that starts again. Takes at most 3% of one core.
    """
    import os
    import sys

    from pyddpdiag.errors import UsageError
    from pyddpdiag.live.watch import display_for
    from pyddpdiag.live.watch import watch as look_on
    from pyddpdiag.remote.copy import copied_while
    from pyddpdiag.remote.place import is_url

    if not is_url(folder) and Path(folder).is_file():
        raise UsageError(f"'{folder}' is a file.", hint="give the folder of all ranks.")
    try:
        with (
            copied_while(folder, interval, may_be_empty=True) as traces,
            display_for(sys.stdout, as_json=json) as show,
        ):
            if openmetrics is not None:
                from pyddpdiag.live.watch import also_written

                show = also_written(show, openmetrics)
            code = look_on(traces.folder, show, interval_s=interval, once=once)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Whoever read has enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    raise typer.Exit(code)
