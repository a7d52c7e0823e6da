"""A trace that is still written, in pieces: only those that have changed are brought.

Beside the place of `rank_0.ddptrace` there is a folder `rank_0.ddptrace.live` with a file for each piece, named by its
number, and `index.json`. The first piece, which has the header, and the index are written last: what a header counts
has arrived. The whole file takes its place in the end.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.errors import RemoteError
from pyddpdiag.remote.local import open_own

PIECE_BYTES: Final = 2**20
MOST_BYTES: Final = 2**34
"""Of a trace; a larger number in an index is damage."""
INDEX: Final = "index.json"
LIVE: Final = ".live"


@dataclass(frozen=True)
class Index:
    """What was brought of a trace.

    Attributes:
        size: of the whole file in bytes.
        pieces: the checksum (CRC-32) of each piece that has arrived, by its number; others hold only zeros.
        round: how often pieces were brought.
        every_s: how often they are brought, in seconds.
    """

    size: int
    pieces: Mapping[int, int]
    round: int
    every_s: float

    def text(self) -> bytes:
        """The file's content."""
        pieces = {str(number): crc for number, crc in self.pieces.items()}
        return json.dumps(
            {"size": self.size, "pieces": pieces, "round": self.round, "every_s": self.every_s}
        ).encode()


def read_index(text: bytes, where: str) -> Index:
    """An index that comes from elsewhere.

    Raises:
        RemoteError: it is none.
    """
    try:
        raw = json.loads(text)
        size, number, every_s = raw["size"], raw["round"], float(raw["every_s"])
        pieces = {int(key): int(crc) for key, crc in raw["pieces"].items()}
        sound = (
            type(size) is int
            and type(number) is int
            and 0 <= size <= MOST_BYTES
            and 0 <= every_s <= 86400
            and all(0 <= piece * PIECE_BYTES < size and 0 <= crc < 2**32 for piece, crc in pieces.items())
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise RemoteError(
            f"{where}: damaged.", hint="bring the trace again: pyddpdiag collect DIR --into URL"
        )
    return Index(size, pieces, number, every_s)


def read_pieces(path: Path) -> dict[int, bytes]:
    """The pieces of a file that may be written meanwhile, the first one as it was before the others were read."""
    with open_own(path) as file:
        found = {0: file.read_on(PIECE_BYTES)}
        number = 1
        while piece := file.read_on(PIECE_BYTES):
            if any(piece):
                found[number] = piece
            number += 1
    return found


def checksum(piece: bytes) -> int:
    """Of one piece."""
    return zlib.crc32(piece)
