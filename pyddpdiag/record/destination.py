"""Where a recorder's files go when it is closed: nowhere, or to a URL. The ranks always write to a local file."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.output import say
from pyddpdiag.remote.carrier import Carrier, remove_brought
from pyddpdiag.remote.place import Place, is_url, name_of


class Destination:
    """Brings one rank's files to a URL.

    Args:
        url: of the run, the same on all ranks.
        folder: where this rank writes, with the attempt's folder.
        rank: of this process.
    """

    def __init__(self, url: str, folder: Path, rank: int) -> None:
        place = f"{url.rstrip('/')}/{folder.name}" if folder.name != name_of(url) else url
        self._place = Place(place)
        self._folder = folder
        self._rank = rank

    def bring(self) -> None:
        """Brings them and removes here what has arrived. Never raises: the training is not to blame."""
        try:
            brought = Carrier(self._folder, self._place, self._rank).finish()
            trouble = brought.trouble
        except (PyddpdiagError, OSError) as error:
            trouble = str(error)
        if not trouble:
            remove_brought(self._folder, brought)
            return
        with suppress(OSError):
            say(
                f"pyddpdiag: rank {self._rank}: not brought to {self._place.shown}: {trouble}\n"
                f"  kept in {self._folder.absolute()}\n"
                f"  to bring it: pyddpdiag collect {self._folder} --into {self._place.shown}",
                sys.stderr,
            )


def local_name(folder: str | Path | None) -> str | None:
    """The folder that the ranks write to: the one that is given, or for a URL one in the working directory."""
    if folder is None:
        return None
    return name_of(str(folder)) if is_url(str(folder)) else str(folder)


def destination_of(folder: str | Path | None, local: Path, rank: int) -> Destination | None:
    """Where the files go in the end; None: they stay.

    Raises:
        PyddpdiagError: the URL cannot be used.
    """
    return Destination(str(folder), local, rank) if folder is not None and is_url(str(folder)) else None
