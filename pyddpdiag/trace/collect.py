"""Brings the traces of one run together that lie in a folder for each machine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.errors import ResultWriteError, TraceError, TraceExistsError
from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.command import NAME
from pyddpdiag.model.node import node_of
from pyddpdiag.model.run_files import is_trace
from pyddpdiag.model.words import listed
from pyddpdiag.remote import held
from pyddpdiag.remote.local import files_of, links_of, open_own
from pyddpdiag.system.replaced_files import replace
from pyddpdiag.trace.folder import number_of
from pyddpdiag.trace.notes import read_node
from pyddpdiag.trace.reader import read_header

CHUNK_BYTES: Final = 2**20


@dataclass(frozen=True)
class Collected:
    """What was brought together.

    Attributes:
        ranks: whose traces were found.
        world_size: the run's number of ranks.
        empty: folders that were given and hold no trace.
        links: what has the name of a run's file and leads elsewhere, and so was left.
    """

    ranks: tuple[int, ...]
    world_size: int
    empty: tuple[Path, ...]
    links: tuple[Path, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks of which no trace was found."""
        there = set(self.ranks)
        return tuple(rank for rank in range(self.world_size) if rank not in there)


def collect(folders: Sequence[Path], into: Path, *, force: bool = False) -> Collected:
    """Copy all that belongs to the ranks of one run into one folder: traces, sidecars, notes, later attempts.

    Nothing is copied before all of it was looked at. The files that are given stay. Links are left, whatever they
    lead to: the copy may go to another machine. `force`: replace files of an earlier collection.

    Raises:
        TraceError: there are no traces, one cannot be read, they are of several runs, or two of the same rank.
        TraceExistsError: there are traces already, and `force` is not given.
        ResultWriteError: a file cannot be copied.
    """
    for folder in folders:
        if not folder.is_dir():
            raise TraceError(
                f"{folder}: no such folder.", hint="give the folder that each machine recorded into."
            )
    named = [(folder, name) for folder in folders for name in files_of(folder)]
    found = [(into / name, folder / name) for folder, name in named]
    ranks, world_size = _one_run([path for _, path in found if number_of(path) is not None], folders)
    files = _by_target(found)
    there = [target for target in files if target.exists() and not target.samefile(files[target])]
    if there and not force:
        raise TraceExistsError(
            f"'{there[0]}' exists already.", hint="give another --into, or --force to replace it."
        )
    for target, path in files.items():
        _copy(path, target)
    full = {folder for folder, name in named if number_of(Path(name)) is not None}
    empty = tuple(folder for folder in folders if folder not in full)
    links = tuple(folder / name for folder in folders for name in links_of(folder))
    return Collected(ranks, world_size, empty, links)


def _by_target(found: Sequence[tuple[Path, Path]]) -> dict[Path, Path]:
    files: dict[Path, Path] = {}
    for target, path in found:
        # How the command ended: each machine has its own; that of the first one counts.
        if path.name == NAME and target in files:
            continue
        # A machine's sign of life: the newest copy of it counts.
        if node_of(path.name) is not None and target in files:
            files[target] = max(files[target], path, key=_noted_at)
            continue
        if target in files and not path.samefile(files[target]):
            raise TraceError(
                f"two files of the same rank: {files[target]} and {path}.",
                hint="give each machine's folder once, and only folders of one run.",
            )
        files[target] = path
    return files


def _noted_at(path: Path) -> int:
    note = read_node(path)
    return 0 if note is None else note.at_ns


def _one_run(traces: Sequence[Path], folders: Sequence[Path]) -> tuple[tuple[int, ...], int]:
    """The ranks and the world size; traces of one attempt must be of one run."""
    if not traces:
        raise TraceError(
            f"no traces in {listed(folders)}.", hint="give the folders that the ranks recorded into."
        )
    runs: dict[str, dict[str, Path]] = {}
    ranks: set[int] = set()
    world_size = 0
    for path in traces:
        header = read_header(path)[0]
        attempt = path.parent.name if attempt_number(path.parent.name) is not None else ""
        runs.setdefault(attempt, {}).setdefault(header.run_id, path)
        ranks.add(header.rank)
        world_size = max(world_size, header.world_size)
    for found in runs.values():
        if len(found) > 1:
            (one, path), (other, second) = list(found.items())[:2]
            raise TraceError(
                f"traces of {len(found)} runs: {path} is of run {one[:8]}, {second} of run {other[:8]}.",
                hint="collect each run into a folder of its own.",
            )
    return tuple(sorted(ranks)), world_size


def _copy(path: Path, target: Path) -> None:
    if target.exists() and target.samefile(path):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(target.name + ".part")
        try:
            with open_own(path) as source, beside.open("wb") as file:
                while chunk := source.read_on(CHUNK_BYTES):
                    file.write(chunk)
            if is_trace(path.name):
                held.cut(beside, is_copy=True)
            shutil.copystat(path, beside, follow_symlinks=False)
            replace(beside, target)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except OSError as error:
        raise ResultWriteError(
            f"cannot copy '{path}' to '{target}': {error.strerror or error}.",
            hint="check the folder's permissions and that its disk has space.",
        ) from error
