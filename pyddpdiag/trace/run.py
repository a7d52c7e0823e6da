"""One run's folder: the traces of all ranks, and what is wrong with the set of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyddpdiag.errors import TraceError
from pyddpdiag.model.command import CommandEnd
from pyddpdiag.model.sidecar import Group, Layout, Module, Sidecar
from pyddpdiag.model.start import Start
from pyddpdiag.model.words import listed
from pyddpdiag.system.regular_file import FileIdentity
from pyddpdiag.trace.budget import FEWEST, SAMPLE, needed_gb, records_per_step, that_fit
from pyddpdiag.trace.folder import NAMED_RANKS, find_traces, number_of
from pyddpdiag.trace.header import Header
from pyddpdiag.trace.layout import HEADER_BYTES, RECORD_BYTES
from pyddpdiag.trace.notes import NodeNotes, read_command, read_nodes
from pyddpdiag.trace.reader import RankTrace, read_header, read_trace
from pyddpdiag.trace.rows import Int64
from pyddpdiag.trace.sidecar import SidecarReader
from pyddpdiag.trace.starts import read_starts
from pyddpdiag.trace.table import Tables

FILE_LIMIT: Final = 16384

IN_PART: Final = "only the newest"
"""So begins the warning that not all records were read."""


@dataclass(frozen=True, eq=False)
class Run:
    """All readable traces of one run, sorted by rank.

    `missing` are the ranks below `world_size` that have no trace here; at most the first 1024 are listed,
    `missing_count` is how many there are. `damaged` says what is wrong with traces that lack records or cannot be
    read, by rank. `command`: how the command of `pyddpdiag run` ended;
    None: not known. `nodes`: what each machine's `pyddpdiag run` noted. `starts`: where ranks
    are that have no trace yet.
    """

    folder: Path
    run_id: str
    world_size: int
    ranks: tuple[RankTrace, ...]
    missing: tuple[int, ...]
    missing_count: int
    warnings: tuple[str, ...]
    damaged: Mapping[int, str] = field(default_factory=dict)
    command: CommandEnd | None = None
    nodes: NodeNotes = field(default_factory=NodeNotes)
    starts: tuple[Start, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every rank has a trace and none is damaged: what no trace shows has not happened."""
        return not (self.missing_count or self.damaged)

    def groups(self) -> dict[int, Group]:
        """Process groups by id, from the sidecars of all ranks; the lowest rank's entry wins."""
        return {key: group for sidecar in self._sidecars() for key, group in sidecar.groups.items()}

    def places(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Where those of some ranks that have a trace are in `ranks`, in this order."""
        wanted = set(ranks)
        return tuple(place for place, trace in enumerate(self.ranks) if trace.rank in wanted)

    def modules(self) -> dict[int, Module]:
        """DDP modules by index; the lowest rank's entry wins."""
        return {key: module for sidecar in self._sidecars() for key, module in sidecar.modules.items()}

    def layouts(self) -> dict[int, Layout]:
        """Bucket layouts by identity; the lowest rank's entry wins."""
        return {key: layout for sidecar in self._sidecars() for key, layout in sidecar.layouts.items()}

    def _sidecars(self) -> Iterable[Sidecar]:
        """The sidecars, the lowest rank's last; one that several ranks share (links) comes once."""
        lowest_first = {id(trace.sidecar): trace.sidecar for trace in self.ranks}
        return reversed(lowest_first.values())


def open_run(
    folder: Path,
    visit: Callable[[RankTrace], None] | None = None,
    read: Callable[..., RankTrace] = read_trace,
    memory_gb: float = 0.0,
    steps: Int64 | None = None,
) -> Run:
    """Read the traces of all ranks in a folder: the files named rank_<number>.ddptrace.

    Args:
        visit: called with each rank, in ascending order; the run then keeps no records, so that only one rank's
            records at a time are in memory.
        memory_gb: if all records would take more than about this many GB (10^9 bytes), the older ones of each
            rank are left out, and a warning says so; 0: none are. Needs the usual `read`.
        steps: of what has a step, keep only that of these; None: of all. Needs the usual `read`.

    Raises:
        TraceError: there is no folder, no trace in it, or none that can be read.
    """
    files, warnings = find_traces(folder)
    failures: dict[Path, TraceError] = {}
    # Headers first: only what is kept is read whole.
    kept = _one_per_rank(_one_run(_headers(files[:FILE_LIMIT], failures, warnings), warnings), warnings)
    if memory_gb > 0 and (some := _some_of(kept, memory_gb, warnings)) is not None:
        read = some
    if steps is not None:
        read = partial(read, steps=steps)
    sidecars = SidecarReader()
    tables = None if visit is None else Tables()
    traces: list[RankTrace] = []
    for file in kept:
        try:
            trace = _require(file, read(file.path, sidecars, tables))
        except TraceError as error:
            failures[file.path] = error
            continue
        if visit is not None:
            visit(trace)
            trace = trace.without_records()
        traces.append(trace)
    if not traces:
        if len(failures) == 1:
            raise next(iter(failures.values()))
        reasons = "\n".join(f"  {failure.message}" for failure in list(failures.values())[:NAMED_RANKS])
        raise TraceError(f"{folder}: none of its {len(failures)} traces can be read:\n{reasons}")
    # What is wrong with the files comes before all that follows from it.
    warnings[:0] = [f"left out: {failure.message}" for failure in failures.values()]
    if len(files) > FILE_LIMIT:
        warnings.append(f"{folder}: {len(files)} traces; only the first {FILE_LIMIT} were read.")
    world_size = _world_size(traces, warnings)
    present = {trace.rank for trace in traces}
    missing = tuple(rank for rank in range(min(world_size, 1024 + len(present))) if rank not in present)[
        :1024
    ]
    missing_count = world_size - sum(rank < world_size for rank in present)
    starts = read_starts(folder) if missing_count else ()
    if missing_count:
        warnings.append(
            f"{folder}: no trace of {_ranks(missing, missing_count)} of {world_size} in the folder; "
            "arrival times are lower bounds."
        )
    still_open: dict[str, list[str]] = {}
    for trace in traces:
        if not (trace.header.closed or trace.header.ended):
            end = trace.sidecar.end
            why = (
                f"{end.error or end.signal} ended the process"
                if end
                else "the process still runs, or was killed"
            )
            still_open.setdefault(why, []).append(trace.path.name)
    warnings.extend(f"not closed: {listed(names, NAMED_RANKS)}; {why}." for why, names in still_open.items())
    # The same problem in many files is one line.
    problems: dict[str, list[str]] = {}
    for trace in traces:
        for name, text in trace.warnings:
            problems.setdefault(text, []).append(name)
        for module in trace.sidecar.modules.values():
            if module.reduced_by:
                text = (
                    f"{module.name} is compiled with optimize_ddp='{module.reduced_by}': it reduces in the compiled "
                    "graph and calls no hook, so it has no buckets."
                )
                problems.setdefault(text, []).append(trace.path.name)
    warnings.extend(f"{listed(names, NAMED_RANKS)}: {text}" for text, names in problems.items())
    damaged = {trace.rank: trace.damage for trace in traces if trace.damage}
    for path, failure in failures.items():
        rank = number_of(path)
        if rank is not None and rank < world_size and rank not in present:
            damaged[rank] = failure.message.removeprefix(f"{path}: ").rstrip(".")
    return Run(
        folder,
        traces[0].header.run_id,
        world_size,
        tuple(traces),
        missing,
        missing_count,
        tuple(warnings),
        dict(sorted(damaged.items())),
        read_command(folder),
        read_nodes(folder),
        starts,
    )


def held_records(folder: Path) -> list[int]:
    """How many records each rank's trace may hold, by the files' headers alone."""
    files, warnings = find_traces(folder)
    kept = _one_per_rank(_one_run(_headers(files[:FILE_LIMIT], {}, warnings), warnings), warnings)
    return [file.held for file in kept]


@dataclass(frozen=True)
class _File:
    """A trace whose header was read, and nothing else."""

    path: Path
    header: Header
    size: int

    @property
    def held(self) -> int:
        """How many records it may have, whatever its header says."""
        there = max(0, self.size - HEADER_BYTES) // RECORD_BYTES
        return min(self.header.capacity, self.header.tickets, there)

    @property
    def in_its_place(self) -> bool:
        """Whether the file is named after the rank that it holds."""
        return number_of(self.path) == self.header.rank


def _headers(paths: Sequence[Path], failures: dict[Path, TraceError], warnings: list[str]) -> list[_File]:
    """The headers of all files that have one; a file with several names (links) counts once."""
    found: list[_File] = []
    names: dict[FileIdentity, str] = {}
    again: list[str] = []
    for path in paths:
        try:
            header, identity, size = read_header(path)
        except TraceError as error:
            failures[path] = error
            continue
        if identity is not None and names.setdefault(identity, path.name) != path.name:
            again.append(f"{path.name} (as {names[identity]})")
        else:
            found.append(_File(path, header, size))
    if again:
        warnings.append(f"left out, as they are links to the same file: {listed(again, NAMED_RANKS)}.")
    return found


def _some_of(
    files: Sequence[_File], memory_gb: float, warnings: list[str]
) -> Callable[..., RankTrace] | None:
    """What reads only the newest records of each rank, and a warning that says so; None: all of them fit."""
    held = {file.path: file.held for file in files}
    counts = list(held.values())
    if needed_gb(counts) <= memory_gb:
        return None
    try:
        per_step = records_per_step(read_trace(max(held, key=lambda path: held[path]), newest=SAMPLE))
    except TraceError:
        # It is read once more, and what is wrong with it is said then.
        per_step = FEWEST
    all_gb = needed_gb(counts, per_step)
    if not all_gb > memory_gb:
        return None
    some = that_fit(counts, per_step, memory_gb)
    keep = dict(zip(held, some, strict=True))
    warnings.append(
        f"{IN_PART} {sum(some) / sum(counts):.0%} of the {sum(counts):,} records were read, which takes about "
        f"{needed_gb(some, per_step):.2g} GB of memory; of earlier steps only the recorder's sums. "
        f"`--memory {math.ceil(10 * all_gb) / 10:g}` reads all."
    )
    return lambda path, sidecars, tables, **more: read_trace(path, sidecars, tables, keep=keep[path], **more)


def _require(file: _File, trace: RankTrace) -> RankTrace:
    """The trace; raises `TraceError` if another file has replaced the one whose header was read."""
    if (trace.rank, trace.header.run_id) != (file.header.rank, file.header.run_id):
        raise TraceError(
            f"{file.path}: was replaced while it was read.",
            hint="run the report again when the new run has begun.",
        )
    return trace


def _one_run(files: list[_File], warnings: list[str]) -> list[_File]:
    """Keep the run with the most ranks (the newest of equals) and say which files belong to which run."""
    runs: dict[str, list[_File]] = {}
    for file in files:
        runs.setdefault(file.header.run_id, []).append(file)
    if len(runs) < 2:
        return files
    kept = max(runs, key=lambda run: (len(runs[run]), max(file.header.wall_ns for file in runs[run])))
    listed_runs = "; ".join(
        f"run {run[:8]}: {listed([file.path.name for file in members], NAMED_RANKS)}"
        for run, members in list(runs.items())[:8]
    )
    warnings.append(f"traces of {len(runs)} runs are mixed ({listed_runs}). Only run {kept[:8]} is reported.")
    return runs[kept]


def _one_per_rank(files: list[_File], warnings: list[str]) -> list[_File]:
    """Keep one file per rank: the one that is named after it. Sorted by rank."""
    by_rank: dict[int, _File] = {}
    for file in files:
        rank = file.header.rank
        other = by_rank.get(rank)
        if other is None:
            by_rank[rank] = file
            continue
        kept, left = (file, other) if file.in_its_place else (other, file)
        by_rank[rank] = kept
        warnings.append(f"{left.path.name}: is rank {rank} as {kept.path.name} is, and was left out.")
    for file in by_rank.values():
        if not file.in_its_place:
            warnings.append(f"{file.path.name}: holds rank {file.header.rank}; it was renamed.")
    return [by_rank[rank] for rank in sorted(by_rank)]


def _world_size(traces: list[RankTrace], warnings: list[str]) -> int:
    """The world size that most ranks had."""
    counts = Counter(trace.header.world_size for trace in traces)
    world_size = max(counts, key=lambda size: (counts[size], size))
    if len(counts) > 1:
        sizes = "; ".join(
            f"{size} in {listed([t.path.name for t in traces if t.header.world_size == size], NAMED_RANKS)}"
            for size in list(counts)[:8]
        )
        warnings.append(f"the ranks disagree about the world size: {sizes}. {world_size} is used.")
    return world_size


def _ranks(ranks: tuple[int, ...], count: int) -> str:
    word = "rank" if count == 1 else "ranks"
    return f"{word} {listed(ranks[:NAMED_RANKS], NAMED_RANKS)}" + (
        f" and {count - NAMED_RANKS} more" if count > NAMED_RANKS else ""
    )
