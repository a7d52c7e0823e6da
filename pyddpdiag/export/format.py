"""What an export format is, files made of a run; and all formats that `pyddpdiag export` writes."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, cast

from pyddpdiag.errors import UsageError

if TYPE_CHECKING:
    from pyddpdiag.export.run import ExportedRun


@dataclass(frozen=True)
class Output:
    """One file: its path below the folder of the export, and what makes its content, as a whole or piece by piece."""

    path: PurePath
    content: Callable[[], str | bytes | Iterable[str]]


@dataclass(frozen=True)
class Format:
    """One format that `pyddpdiag export` writes.

    Attributes:
        name: of its option.
        help: of its option.
        made_by: `module:function`; the function takes an `ExportedRun` and gives its `Output`s. A text, so that the
            command line knows all formats before it loads any.
        timelines: it shows single events.
        folder: all that lies in there is of this format, and an earlier export's files (`stale`, a pattern) would be
            taken for those of this one.
        stale: pattern of files below `folder`.
        needs: a package of the extra `frames`.
    """

    name: str
    help: str
    made_by: str
    timelines: bool = False
    folder: str = ""
    stale: str = ""
    needs: str = ""

    def require(self) -> None:
        """Looks before the work begins.

        Raises:
            UsageError: the package that it needs is not installed.
        """
        if self.needs and importlib.util.find_spec(self.needs) is None:
            raise UsageError(
                f"--{self.name} is written by {self.needs}, which is not installed.",
                hint="pip install 'pyddpdiag[frames]'",
            )

    def outputs(self, run: ExportedRun) -> list[Output]:
        """The files of this run."""
        module, _, function = self.made_by.partition(":")
        make = getattr(importlib.import_module(f"pyddpdiag.export.{module}"), function)
        return list(cast("Callable[[ExportedRun], Iterable[Output]]", make)(run))


FORMATS: Final = (
    Format(
        "chrome",
        "Time lines for Perfetto, chrome://tracing and Holistic Trace Analysis.",
        "chrome:outputs",
        timelines=True,
    ),
    Format("csv", "Steps, buckets and more as CSV.", "frames:csv_outputs"),
    Format("parquet", "The same as Parquet.", "frames:parquet_outputs", needs="pyarrow"),
    Format(
        "tensorboard",
        "Scalars for TensorBoard.",
        "tensorboard:outputs",
        folder="tensorboard",
        stale="*/events.out.tfevents.*",
    ),
    Format(
        "openmetrics",
        "Gauges for Prometheus: a text file for the node exporter's folder.",
        "openmetrics:outputs",
    ),
    Format("stacks", "The ranks' Python stacks, for speedscope and flamegraph.pl.", "stacks:outputs"),
)
