"""Writes the files that other tools open."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from pyddpdiag.errors import UsageError
from pyddpdiag.export import merge
from pyddpdiag.export.format import FORMATS, Format
from pyddpdiag.export.run import read_run
from pyddpdiag.model.words import listed
from pyddpdiag.output import say
from pyddpdiag.system.result_files import refuse_existing, write_whole
from pyddpdiag.trace.budget import USUAL_GB
from pyddpdiag.trace.run import IN_PART

_OPTION: Final = "--output-dir"


def write_exports(
    source: str | PathLike[str],
    folder: Path,
    formats: Sequence[Format],
    profiles: Sequence[Path] = (),
    *,
    steps: range | None = None,
    attempt: int | None = None,
    memory_gb: float = USUAL_GB,
    force: bool = False,
) -> list[Path]:
    """Write these formats into `folder`, and traces of torch.profiler merged with the run. Returns what was written.

    `steps`: only these in time lines. `memory_gb`: as in `open_run`.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: nothing is wanted, a package is missing, a profile is of another run, or there is too much to show.
        ResultExistsError: a file exists, and `force` is not given.
        ResultWriteError: a file cannot be written.
    """
    if not formats and not profiles:
        options = listed(f"--{known.name}" for known in FORMATS)
        raise UsageError("nothing is to be exported.", hint=f"give one or more of --merge, {options}.")
    # Read before the traces, which take longer.
    read = [(path, merge.read_profile(path)) for path in profiles]
    timelines = bool(profiles) or any(known.timelines for known in formats)
    run = read_run(source, timelines=timelines, steps=steps, attempt=attempt, memory_gb=memory_gb)
    for line in run.report.warnings:
        if line.startswith(IN_PART):
            say(line, sys.stderr)
    outputs = [output for format in formats for output in format.outputs(run)]
    outputs += [merge.output(run, profile, path) for path, profile in read]
    owned = [folder / known.folder for known in formats if known.folder]
    refuse_existing([*owned, *(folder / output.path for output in outputs)], force, _OPTION)
    for stale in [
        old for known in formats if known.stale for old in (folder / known.folder).glob(known.stale)
    ]:
        stale.unlink(missing_ok=True)
    for output in outputs:
        write_whole(folder / output.path, output.content(), force=force, option=_OPTION)
    return [folder / output.path for output in outputs]
