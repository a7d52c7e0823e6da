"""`pyddpdiag plan DIR`: the step with other ranks, links and bucket layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyddpdiag.cli._options import Folder, Force, Half, Shared

if TYPE_CHECKING:
    from pyddpdiag.plan import ring as plan_paths


def plan(
    folder: Folder,
    ranks: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of ranks, as 2,8,64. Default: as recorded.")
    ] = "",
    bandwidth: Annotated[
        str, typer.Option(metavar="RATE", help="Of the links, as 10Gbit. Default: as the run shows it.")
    ] = "",
    latency: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Of one round of the ring, as 0.2ms. Default: as the run shows it."
        ),
    ] = "",
    bucket_cap_mb: Annotated[
        str,
        typer.Option(
            metavar="MIB,...",
            help="DDP's bucket sizes to plan beside the recorded one, as 5,25, or as 1:4:25 for a size of each bucket.",
        ),
    ] = "",
    compress: Annotated[Half | None, typer.Option(help="Also plan gradients in 16 bits.")] = None,
    shared_memory: Annotated[
        Shared | None, typer.Option(help="Also plan averaging in shared memory, on one machine.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (pyddpdiag help plan) instead of a table.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with charts and tables.")
    ] = None,
    force: Force = False,
) -> None:
    """Say what a recorded run's step would take with other ranks, links and bucket layouts, and without a straggler.

    A replay of the recorded schedule (pyddpdiag help plan says what it covers). Exit code: 0 answered, 2 cannot tell.
    """
    # Here, so that --help needs neither NumPy nor rich's tables.
    import sys

    from pyddpdiag.plan.read import plan_folder
    from pyddpdiag.plan.text import page, print_plan
    from pyddpdiag.remote.copy import at_hand
    from pyddpdiag.report.run.page import require_free
    from pyddpdiag.system.result_files import write_whole

    require_free(html, None, force=force)

    paths: list[plan_paths.Path] = [] if compress is None else [compress.value]
    paths += [] if shared_memory in (None, Shared.OFF) else ["shared memory"]
    with at_hand(folder) as traces:
        found = plan_folder(
            traces,
            ranks=ranks,
            bandwidth=bandwidth,
            latency=latency,
            bucket_cap_mb=bucket_cap_mb,
            paths=paths,
        )
    if html is not None:
        write_whole(html, page(found), force=force, option="--html")
    print_plan(found, sys.stdout, as_json=json)
    raise typer.Exit(0 if found.tells else 2)
