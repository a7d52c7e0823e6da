"""Puts a rank's events into the trace that torch.profiler wrote of the same process, on the profiler's time line."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path, PurePath
from typing import Any, Final

from pyddpdiag.errors import UsageError
from pyddpdiag.export.chrome import rank_events, written, zero_ns
from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun
from pyddpdiag.output import clean

_LIMIT: Final = 2**31
_APART: Final = 1_000_000_000
"""Added to the rank: no process of the profiler's trace has such a number."""


def read_profile(path: Path) -> dict[str, Any]:
    """A trace of torch.profiler: `export_chrome_trace`, as JSON or gzip.

    Raises:
        UsageError: it cannot be read, or is no such trace.
    """
    name = clean(str(path))
    hint = "give what torch.profiler's export_chrome_trace wrote."
    try:
        if path.stat().st_size > _LIMIT:
            raise UsageError(f"'{name}' is larger than {_LIMIT >> 30} GiB.", hint="profile fewer steps.")
        data = path.read_bytes()
        profile = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"cannot read '{name}': {getattr(error, 'strerror', None) or error}.", hint=hint
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"'{name}' is not complete JSON.", hint=hint) from error
    if not isinstance(profile, dict) or not isinstance(profile.get("traceEvents"), list):
        raise UsageError(f"'{name}' holds no traceEvents.", hint=hint)
    return profile


def output(run: ExportedRun, profile: dict[str, Any], path: Path) -> Output:
    """The file with both: errors as for `rank_of` and `merged`."""
    rank = rank_of(profile, run, path)
    return Output(PurePath("merged", f"rank_{rank}.json"), lambda: written(merged(run, profile, rank)))


def rank_of(profile: dict[str, Any], run: ExportedRun, path: Path) -> int:
    """Whose trace it is: by its `distributedInfo`, or by the only rank that there is.

    Raises:
        UsageError: it does not tell, or the run has no such rank.
    """
    ranks = [line.rank for line in run.timelines]
    about = profile.get("distributedInfo")
    rank = about.get("rank") if isinstance(about, dict) else None
    if rank is None and len(ranks) == 1:
        return ranks[0]
    if rank not in ranks:
        problem = (
            "does not say of which rank it is" if rank is None else f"is of rank {clean(str(rank))[:20]}"
        )
        raise UsageError(
            f"'{clean(str(path))}' {problem}; the run has {len(ranks)} ranks.",
            hint="profile after init_process_group, so that the profiler writes distributedInfo.",
        )
    return int(rank)


def merged(run: ExportedRun, profile: dict[str, Any], rank: int) -> dict[str, Any]:
    """The profile with our events of this rank.

    The profiler tells the wall clock of its time 0 (`baseTimeNanoseconds`), the trace's header one moment on both of
    its clocks. So both are on one line as exactly as the wall clock ran evenly.

    Raises:
        UsageError: the profile's times are not those of this run.
    """
    line = next(line for line in run.timelines if line.rank == rank)
    base = run.bases[rank]
    profile_zero = profile.get("baseTimeNanoseconds")
    start = int(profile_zero) if isinstance(profile_zero, (int, float)) else 0
    # Ours: ns on the common clock since `zero`; the rank's own clock is that without its offset.
    wall_at_zero = zero_ns(run) - base.offset_ns - base.monotonic_ns + base.wall_ns
    shift = (wall_at_zero - start) / 1e3
    events = []
    for event in rank_events(run, line):
        moved = {**event, "pid": rank + _APART}
        if "ts" in moved:
            moved["ts"] += shift
        if moved["name"] == "process_name":
            moved["args"] = {"name": f"pyddpdiag: {moved['args']['name']}"}
        events.append(moved)
    _check(profile["traceEvents"], events)
    return {**profile, "traceEvents": [*profile["traceEvents"], *events]}


def _check(theirs: list[Any], ours: list[dict[str, Any]]) -> None:
    known = [
        e["ts"]
        for e in theirs
        if isinstance(e, dict) and e.get("ph") == "X" and isinstance(e.get("ts"), (int, float))
    ]
    mine = [e["ts"] for e in ours if e.get("ph") == "X"]
    if known and mine and (min(known) > max(mine) + 6e7 or max(known) < min(mine) - 6e7):
        apart = (min(known) - max(mine)) if min(known) > max(mine) else (min(mine) - max(known))
        raise UsageError(
            f"the profile is of another time: {apart / 6e7:.0f} minutes lie between it and the run.",
            hint="give the profile that was taken while this run was recorded.",
        )
