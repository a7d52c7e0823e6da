"""One run's folder: the traces of all ranks, and what is wrong with the set of them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.errors import TraceError
from pyddpdiag.trace.reader import RankTrace, read_trace
from pyddpdiag.trace.sidecar import Group, Layout, Module

SUFFIX: Final = ".ddptrace"
NAMED_RANKS: Final = 16
FILE_LIMIT: Final = 16384


@dataclass(frozen=True, eq=False)
class Run:
    """All readable traces of one run, sorted by rank.

    `missing` are the ranks below `world_size` that have no trace here; at most the first 1024 are listed,
    `missing_count` is how many there are.
    """

    folder: Path
    run_id: str
    world_size: int
    ranks: tuple[RankTrace, ...]
    missing: tuple[int, ...]
    missing_count: int
    warnings: tuple[str, ...]

    def groups(self) -> dict[int, Group]:
        """Process groups by id, from the sidecars of all ranks; the lowest rank's word counts."""
        return {key: group for trace in reversed(self.ranks) for key, group in trace.sidecar.groups.items()}

    def modules(self) -> dict[int, Module]:
        """DDP modules by index; the lowest rank's word counts."""
        return {
            key: module for trace in reversed(self.ranks) for key, module in trace.sidecar.modules.items()
        }

    def layouts(self) -> dict[int, Layout]:
        """Bucket layouts by identity; the lowest rank's word counts."""
        return {
            key: layout for trace in reversed(self.ranks) for key, layout in trace.sidecar.layouts.items()
        }


def open_run(folder: Path) -> Run:
    """Read the traces of all ranks in a folder.

    Raises:
        TraceError: there is no folder, no trace in it, or none that can be read.
    """
    files = _find(folder)
    warnings: list[str] = []
    traces: list[RankTrace] = []
    failures: list[TraceError] = []
    for path in files[:FILE_LIMIT]:
        try:
            traces.append(read_trace(path))
        except TraceError as error:
            failures.append(error)
    if not traces:
        if len(failures) == 1:
            raise failures[0]
        reasons = "\n".join(f"  {failure.message}" for failure in failures[:NAMED_RANKS])
        raise TraceError(f"{folder}: none of its {len(failures)} traces can be read:\n{reasons}")
    warnings.extend(f"left out: {failure.message}" for failure in failures)
    if len(files) > FILE_LIMIT:
        warnings.append(f"{folder}: {len(files)} traces; only the first {FILE_LIMIT} were read.")
    traces = _one_run(traces, warnings)
    traces = _one_per_rank(traces, warnings)
    world_size = _world_size(traces, warnings)
    present = {trace.rank for trace in traces}
    missing = tuple(rank for rank in range(min(world_size, 1024 + len(present))) if rank not in present)[
        :1024
    ]
    missing_count = world_size - sum(rank < world_size for rank in present)
    if missing_count:
        warnings.append(
            f"{folder}: no trace of {_ranks(missing, missing_count)} of {world_size} in the folder; "
            "arrival times are lower bounds."
        )
    still_open = [trace.path.name for trace in traces if not trace.header.closed]
    if still_open:
        warnings.append(f"not closed: {_names(still_open)}; the process still runs, or ended before close().")
    # The same trouble with many files is one line.
    told: dict[str, list[str]] = {}
    for trace in traces:
        for name, text in trace.warnings:
            told.setdefault(text, []).append(name)
    warnings.extend(f"{_names(names)}: {text}" for text, names in told.items())
    return Run(
        folder, traces[0].header.run_id, world_size, tuple(traces), missing, missing_count, tuple(warnings)
    )


def _find(folder: Path) -> list[Path]:
    """The trace files of a folder, sorted by the number in their names."""
    if folder.is_file() and folder.suffix == SUFFIX:
        raise TraceError(
            f"{folder}: is one rank's trace.", hint=f"Give the folder of all ranks: {folder.parent}"
        )
    if not folder.is_dir():
        raise TraceError(f"{folder}: no such folder.", hint="Give the folder that the Recorder wrote into.")
    try:
        files = [path for path in folder.iterdir() if path.suffix == SUFFIX]
        below = [] if files else sorted({path.parent for path in folder.glob(f"*/rank_*{SUFFIX}")})[:3]
    except OSError as error:
        raise TraceError(f"{folder}: cannot be read: {error.strerror or error}.") from error
    if not files:
        hint = "Did you mean " + " or ".join(map(str, below)) + "?" if below else ""
        raise TraceError(
            f"{folder}: no traces (rank_<N>{SUFFIX}) in this folder.",
            hint=hint or "Record some first: pyddpdiag train --trace DIR, or a Recorder in your script.",
        )
    return sorted(files, key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    # No rank has more than seven digits; a longer number would only cost time.
    found = re.fullmatch(r"rank_(\d{1,9})", path.stem, re.ASCII)
    return int(found[1]) if found else 10**9


def _one_run(traces: list[RankTrace], warnings: list[str]) -> list[RankTrace]:
    """Keep the run with the most ranks (the newest of equals) and say which files belong to which run."""
    runs: dict[str, list[RankTrace]] = {}
    for trace in traces:
        runs.setdefault(trace.header.run_id, []).append(trace)
    if len(runs) == 1:
        return traces
    kept = max(runs, key=lambda run: (len(runs[run]), max(trace.header.wall_ns for trace in runs[run])))
    told = "; ".join(
        f"run {run[:8]}: {_names([trace.path.name for trace in members])}"
        for run, members in list(runs.items())[:8]
    )
    warnings.append(f"traces of {len(runs)} runs are mixed ({told}). Only run {kept[:8]} is reported.")
    return runs[kept]


def _one_per_rank(traces: list[RankTrace], warnings: list[str]) -> list[RankTrace]:
    """Keep one trace per rank: the one whose file name says so."""
    by_rank: dict[int, RankTrace] = {}
    for trace in traces:
        other = by_rank.get(trace.rank)
        if other is None:
            by_rank[trace.rank] = trace
            continue
        kept, left = (trace, other) if _number(trace.path) == trace.rank else (other, trace)
        by_rank[trace.rank] = kept
        warnings.append(f"{left.path.name}: is rank {trace.rank} as {kept.path.name} is, and was left out.")
    for trace in by_rank.values():
        if _number(trace.path) != trace.rank:
            warnings.append(f"{trace.path.name}: holds rank {trace.rank}; it was renamed.")
    return [by_rank[rank] for rank in sorted(by_rank)]


def _world_size(traces: list[RankTrace], warnings: list[str]) -> int:
    """The world size that most ranks had."""
    counts = Counter(trace.header.world_size for trace in traces)
    world_size = max(counts, key=lambda size: (counts[size], size))
    if len(counts) > 1:
        told = "; ".join(
            f"{size} in {_names([t.path.name for t in traces if t.header.world_size == size])}"
            for size in list(counts)[:8]
        )
        warnings.append(f"the ranks disagree about the world size: {told}. {world_size} is used.")
    return world_size


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_RANKS])
    return shown if len(names) <= NAMED_RANKS else f"{shown} and {len(names) - NAMED_RANKS} more"


def _ranks(ranks: tuple[int, ...], count: int) -> str:
    word = "rank" if count == 1 else "ranks"
    return f"{word} {_names([str(rank) for rank in ranks[:NAMED_RANKS]])}" + (
        f" and {count - NAMED_RANKS} more" if count > NAMED_RANKS else ""
    )
