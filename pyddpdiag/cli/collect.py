"""`pyddpdiag collect DIR...`: one run's traces from several machines."""

from __future__ import annotations

from typing import Annotated

import typer

from pyddpdiag.output import say


def collect(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR_OR_URL...", help="Each machine's folder with traces of the run, or its URL."
        ),
    ],
    into: Annotated[
        str, typer.Option(metavar="DIR_OR_URL", help="Where to bring them together: a folder, or a URL.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace files of an earlier collection.")] = False,
) -> None:
    """Bring together the traces of one run that lie in a folder of each machine.

    `pyddpdiag help several-machines` says more.
    """
    import tempfile
    from contextlib import ExitStack
    from pathlib import Path

    from pyddpdiag.errors import RemoteError
    from pyddpdiag.model.words import count, listed
    from pyddpdiag.remote.carrier import Carrier
    from pyddpdiag.remote.copy import copied
    from pyddpdiag.remote.place import Place, is_url, shown
    from pyddpdiag.trace import collect as collecting

    with ExitStack() as stack:
        copies = {folder: stack.enter_context(copied(folder)) for folder in folders if is_url(folder)}
        links = [f"{shown(folder)}/{name}" for folder, copy in copies.items() for name in copy.links]
        names = {
            copies[folder].folder if folder in copies else Path(folder): shown(folder) for folder in folders
        }
        if is_url(into):
            place = Place(into)
            # Brought together here first: nothing is written there before all of it was looked at.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyddpdiag-")), "run")
            found = collecting.collect(list(names), folder)
            brought = Carrier(folder, place).finish()
            if brought.trouble:
                raise RemoteError(
                    f"not all was brought to {place.shown}: {brought.trouble}",
                    hint="nothing that was given is lost; the same command brings the rest.",
                )
        else:
            found = collecting.collect(list(names), Path(into), force=force)
    say(f"{count(len(found.ranks), 'trace')} of {found.world_size} ranks in {shown(into)}.")
    links += map(str, found.links)
    if links:
        say(f"Not followed, and left: {count(len(links), 'link')}: {listed(links)}.")
    for empty in found.empty:
        say(f"No trace in {names[empty]}.")
    if found.missing:
        say(f"Missing: ranks {listed(found.missing)}. The report says what that leaves open.")
    say(f"Next: pyddpdiag report {shown(into)}")
