"""`pyddpdiag plan DIR`: the step with other ranks, links and bucket layouts."""

from __future__ import annotations

from typing import Annotated

import typer


def plan(
    folder: Annotated[
        str, typer.Argument(metavar="DIR_OR_URL", help="Folder with the traces of all ranks, or its URL.")
    ],
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
        typer.Option(metavar="MIB,...", help="DDP's bucket sizes to plan beside the recorded one, as 5,25."),
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (docs/plan.md) instead of a table.")
    ] = False,
) -> None:
    """Say what a recorded run's step would take with other ranks, links and bucket layouts, and without a straggler.

    A replay of the recorded schedule (docs/plan.md says what it covers). Exit code: 0 answered, 2 cannot tell.
    """
    # Here, so that --help needs neither NumPy nor rich's tables.
    import sys

    from pyddpdiag.planning import plan_folder, print_plan
    from pyddpdiag.remote.copy import at_hand

    with at_hand(folder) as traces:
        found = plan_folder(
            traces, ranks=ranks, bandwidth=bandwidth, latency=latency, bucket_cap_mb=bucket_cap_mb
        )
    print_plan(found, sys.stdout, as_json=json)
    raise typer.Exit(0 if found.tells else 2)
