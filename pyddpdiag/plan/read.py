"""From a trace folder to a plan."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from os import PathLike
from typing import Final

from pyddpdiag.analyse.view import RunView
from pyddpdiag.output import say
from pyddpdiag.plan.plan import plan
from pyddpdiag.plan.ring import Path
from pyddpdiag.plan.settings import Link, Plan, caps_of, latency_ms_of, ms_per_byte_of, ranks_of
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.run import IN_PART, open_run

_MEMORY_GB: Final = 0.05
"""What the records of all ranks may take, which are there at once; of more, the newest are read."""


def plan_folder(
    folder: str | PathLike[str],
    *,
    ranks: str = "",
    bandwidth: str = "",
    latency: str = "",
    bucket_cap_mb: str = "",
    paths: Sequence[Path] = (),
) -> Plan:
    """The plan for a run; the options are as they are typed, empty: as recorded. `paths`: of the buckets, beside Gloo.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: an option is not what it should be.
    """
    link = Link(ms_per_byte_of(bandwidth) if bandwidth else None, latency_ms_of(latency) if latency else None)
    counts = ranks_of(ranks) if ranks else ()
    caps = caps_of(bucket_cap_mb) if bucket_cap_mb else ()
    chosen, _ = choose_attempt(pathlib.Path(folder))
    run = open_run(chosen, memory_gb=_MEMORY_GB)
    for line in run.warnings:
        if line.startswith(IN_PART):
            # What follows is about an option that this command does not have.
            say(f"{line.partition(';')[0]}.", sys.stderr)
    return plan(RunView(run), str(chosen), counts, caps, link, paths)
