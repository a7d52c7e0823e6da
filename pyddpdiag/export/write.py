"""Writes the files that other tools open."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from pyddpdiag.errors import UsageError
from pyddpdiag.export import merge
from pyddpdiag.export.format import Format
from pyddpdiag.export.formats import FORMATS
from pyddpdiag.export.read import read_run
from pyddpdiag.model.words import listed
from pyddpdiag.output import say
from pyddpdiag.system.result_files import refuse_existing, write_whole
from pyddpdiag.trace.budget import USUAL_GB
from pyddpdiag.trace.run import IN_PART

_OPTION: Final = "--output-dir"


@dataclass(frozen=True)
class Wanted:
    """Which files to write. `profiles`: traces of torch.profiler to merge with. `steps`: only these in time lines."""

    formats: Sequence[Format] = ()
    profiles: Sequence[Path] = ()
    steps: range | None = None

    @property
    def timelines(self) -> bool:
        """Whether single events are needed."""
        return bool(self.profiles) or any(wanted.timelines for wanted in self.formats)


def write_exports(
    source: str | PathLike[str],
    folder: Path,
    wanted: Wanted,
    *,
    attempt: int | None = None,
    memory_gb: float = USUAL_GB,
    force: bool = False,
) -> list[Path]:
    """Write the wanted files into `folder`; `memory_gb` as in `open_run`. Returns what was written.

    Raises:
        TraceError: there are no traces, or none can be read.
        UsageError: nothing is wanted, a package is missing, a profile is of another run, or there is too much to show.
        ResultExistsError: a file exists, and `force` is not given.
        ResultWriteError: a file cannot be written.
    """
    if not wanted.formats and not wanted.profiles:
        options = listed(f"--{known.name}" for known in FORMATS)
        raise UsageError("nothing is to be exported.", hint=f"give one or more of --merge, {options}.")
    # Read before the traces, which take longer.
    profiles = [(path, merge.read_profile(path)) for path in wanted.profiles]
    run = read_run(
        source, timelines=wanted.timelines, steps=wanted.steps, attempt=attempt, memory_gb=memory_gb
    )
    for line in run.report.warnings:
        if line.startswith(IN_PART):
            say(line, sys.stderr)
    outputs = [output for format in wanted.formats for output in format.outputs(run)]
    outputs += [merge.output(run, profile, path) for path, profile in profiles]
    owned = [folder / known.folder for known in wanted.formats if known.folder]
    refuse_existing([*owned, *(folder / output.path for output in outputs)], force, _OPTION)
    for stale in [
        old for known in wanted.formats if known.stale for old in (folder / known.folder).glob(known.stale)
    ]:
        stale.unlink(missing_ok=True)
    for output in outputs:
        write_whole(folder / output.path, output.content(), force=force, option=_OPTION)
    return [folder / output.path for output in outputs]
