"""`pyddpdiag export DIR`: a run for the tools that you have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.cli._options import Attempt, Folder, Force, Memory, option, with_options
from pyddpdiag.errors import UsageError
from pyddpdiag.export.format import FORMATS
from pyddpdiag.output import say


@with_options([option(row.name, bool, row.help) for row in FORMATS])
def export(
    folder: Folder,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PROFILE.json",
            help="A trace of torch.profiler, to get our events on its time line; repeat it for more ranks.",
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option(metavar="FROM-TO", help="Only these steps in --chrome and --merge.")
    ] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Where to write. Default: DIR/export.")] = None,
    attempt: Attempt = None,
    memory: Memory = None,
    force: Force = False,
    **formats: bool,
) -> None:
    """Write a run in the formats of other tools (pyddpdiag help exports)."""
    from pyddpdiag.export.write import write_exports
    from pyddpdiag.remote.copy import at_hand
    from pyddpdiag.remote.place import is_url
    from pyddpdiag.trace.budget import USUAL_GB
    from pyddpdiag.trace.folder import folder_of

    chosen = parse_steps(steps) if steps is not None else None
    wanted = [known for known in FORMATS if formats[known.name]]
    for known in wanted:
        known.require()
    with at_hand(folder) as traces:
        # Beside the traces; those at a URL are copied for a moment only.
        beside = Path(traces.name) if is_url(folder) else folder_of(traces)
        target = output_dir if output_dir is not None else beside / "export"
        for path in write_exports(
            traces,
            target,
            wanted,
            merge or (),
            steps=chosen,
            attempt=attempt,
            memory_gb=USUAL_GB if memory is None else memory,
            force=force,
        ):
            say(f"Written: {path}")


def parse_steps(text: str) -> range:
    """The steps in 10-20 or 10, both ends included.

    Raises:
        UsageError: it is no such thing.
    """
    found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first or last - first > 10_000_000:
        raise UsageError(f"--steps {text} is not a range of steps.", hint="write 10-20.")
    return range(first, last + 1)
