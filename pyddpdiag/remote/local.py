"""A run's files in a folder of this machine: regular files only, for they are copied to other people's machines.

A link would give them whatever it leads to. Somebody else may write into the folder.
"""

from __future__ import annotations

import json
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.errors import RemoteError
from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.run_files import HEADER_BYTES, RUN_ID, belongs, is_trace, rank_of
from pyddpdiag.system.regular_file import RegularFile, is_link


def files_of(folder: Path, rank: int | None = None) -> list[str]:
    """The files of a run relative to its folder, with `/` between an attempt's folder and a name; sorted.

    `folder`: of the run; need not exist. `rank`: only those of this rank; None: all.
    """
    every = _named(folder)
    return sorted(name for name, leads in every if not leads and rank in (None, rank_of(Path(name).name)))


def links_of(folder: Path) -> list[str]:
    """What has the name of such a file, or of an attempt's folder, and leads elsewhere; named and sorted likewise."""
    return sorted(name for name, leads in _named(folder) if leads)


def open_own(path: Path) -> RegularFile:
    """Opens one of these files; not what may have taken its place since they were listed.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    return RegularFile(path, links="hard")


def _named(folder: Path, part: str = "") -> Iterator[tuple[str, bool]]:
    """What has the name of a file of a run, here and in the attempts' folders, and whether it leads elsewhere."""
    with suppress(OSError):
        for path in (folder / part).iterdir():
            is_attempt = not part and attempt_number(path.name) is not None
            if not is_attempt and not belongs(path.name):
                continue
            with suppress(OSError):
                status = path.lstat()
                if is_link(status):
                    yield f"{part}/{path.name}" if part else path.name, True
                elif is_attempt and stat.S_ISDIR(status.st_mode):
                    yield from _named(folder, path.name)
                elif not is_attempt and stat.S_ISREG(status.st_mode):
                    yield f"{part}/{path.name}" if part else path.name, False


def run_id(header: bytes) -> bytes:
    """The run's identity in a trace's first bytes; empty: the header is not finished, or cut short."""
    found = header[RUN_ID]
    return found if len(header) >= HEADER_BYTES and any(found) else b""


def runs_of(folder: Path, files: Sequence[str]) -> dict[str, bytes]:
    """The identity of the run of each attempt, by the attempt's folder ("" is the first)."""
    found: dict[str, bytes] = {}
    for name in files:
        attempt, _, last = name.rpartition("/")
        if is_trace(last) and attempt not in found:
            with suppress(OSError), open_own(folder / name) as file:
                identity = run_id(file.read(0, HEADER_BYTES))
                if identity:
                    found[attempt] = identity
    return found


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
