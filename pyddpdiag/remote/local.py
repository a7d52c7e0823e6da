"""A run's files in a folder of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.run_files import HEADER_BYTES, RUN_ID, belongs, is_trace, rank_of


def files_of(folder: Path, rank: int | None = None) -> list[str]:
    """The files of a run relative to its folder, with `/` between an attempt's folder and a name; sorted.

    Args:
        folder: of the run; need not exist.
        rank: only those of this rank; None: all.
    """
    found = []
    with suppress(OSError):
        for part in _parts(folder):
            for path in (folder / part).iterdir():
                if path.is_file() and belongs(path.name) and rank in (None, rank_of(path.name)):
                    found.append(f"{part}/{path.name}" if part else path.name)
    return sorted(found)


def _parts(folder: Path) -> Iterator[str]:
    yield ""
    for entry in folder.iterdir():
        if entry.is_dir() and attempt_number(entry.name) is not None:
            yield entry.name


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
            with suppress(OSError), (folder / name).open("rb") as file:
                identity = run_id(file.read(HEADER_BYTES))
                if identity:
                    found[attempt] = identity
    return found


__all__ = ["files_of", "run_id", "runs_of"]
