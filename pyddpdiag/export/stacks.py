"""The ranks' stacks as text for speedscope and flamegraph.pl: one line for each, with how many looks saw it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from pyddpdiag.export.format import Output
from pyddpdiag.export.run import ExportedRun


def outputs(run: ExportedRun) -> Iterator[Output]:
    """The one file of all ranks."""
    yield Output(PurePath("stacks.txt"), lambda: "".join(f"{line}\n" for line in run.stacks))
