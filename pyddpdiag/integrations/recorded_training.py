"""A recorder in a training that others wrote: its steps and phases by what they call, the verdict in the end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from pyddpdiag.model.launch import Launch
from pyddpdiag.model.lines import lines_beside
from pyddpdiag.record import agreement
from pyddpdiag.record.recorder import Recorder
from pyddpdiag.record.steps import LoopMarks

WAIT: Final = timedelta(seconds=30)
"""For the other ranks to close their traces, before the first rank reads them."""


class Session:
    """A recorder, opened here.

    Args:
        folder: of the run; None: a new one.
        options: of the Recorder.
        recorded_by: "run" or the framework's name, for the sidecar.
        launch: the command of `pyddpdiag run`, for the sidecar.
        framework: that made the DDP module; empty: the script did, or what recorded this.
    """

    def __init__(
        self,
        folder: str | Path | None,
        options: Mapping[str, Any],
        recorded_by: str,
        launch: Launch | None = None,
        framework: str = "",
    ) -> None:
        self._name = recorded_by
        # Whoever starts a job by one command per machine or rank need not give all of them the same folder.
        # `pyddpdiag run` reads the folder that it gave to them.
        with agreement.named(recorded_by, exactly=recorded_by == "run"):
            self.recorder = Recorder(folder, **options)
        self.recorder.modules.set_recorded_by(recorded_by, launch, framework)
        self.steps = LoopMarks(self.recorder.core, self.recorder.modules)
        self._phase = ExitStack()
        self.summary: dict[str, float | str] = {}
        """Of the report, on the first rank, once there is a verdict."""

    @property
    def numbers(self) -> dict[str, float]:
        """Those of the summary, as a logger takes them."""
        return {
            f"pyddpdiag/{name}": value for name, value in self.summary.items() if not isinstance(value, str)
        }

    def step_begins(self) -> None:
        """The batch of a step is there."""
        self.steps.batch()
        self.steps.begin()

    def step_ends(self) -> None:
        """From here on the loop waits for the next batch, or does something else that `phase` names."""
        self.steps.waits()

    def phase(self, name: str) -> None:
        """Something that is not training begins; the phase before it ends. Its time is no wait for data."""
        self.steps.end()
        self._phase.close()
        self._phase.enter_context(self.recorder.phase(name))

    def phase_ends(self) -> None:
        """Of the phase that has begun; from here on the loop waits for the next batch."""
        self._phase.close()
        self.steps.forget()
        self.steps.waits()

    def close(self) -> None:
        """Ends the recording, in the process that records."""
        if self.recorder.is_ours() and not self.recorder.closed:
            self._phase.close()
            self.steps.close()
            self.recorder.close()

    def discard(self) -> None:
        """Ends the recording, of which nothing stays."""
        self.close()
        path = self.recorder.path
        for each in (path, path.with_suffix(".json"), lines_beside(path)):
            # Windows keeps what is in use; a new recorder then writes over it.
            with suppress(OSError):
                each.unlink()
        agreement.discarded(self._name)

    def verdict(self) -> str | None:
        """Ends the recording. What the log of the first rank says about the run; None on all others."""
        self.close()
        # Through the store, and not by a collective in the middle of somebody's program.
        store = distributed_c10d._get_default_store()
        run = f"pyddpdiag/closed/{self.recorder.folder}"
        store.set(f"{run}/{self.recorder.rank}", "closed")
        if self.recorder.rank != 0:
            return None
        try:
            store.wait([f"{run}/{rank}" for rank in range(self.recorder.world_size)], WAIT)
        except (RuntimeError, dist.DistError):
            pass  # a rank is late or gone: the verdict says it
        folder = self.recorder.folder
        # Not with the rank: the analysis takes longer to import than many a step.
        from pyddpdiag.pipeline import load_report

        # The training is done, and must not fail for its report.
        try:
            report = load_report(folder)
        except Exception as error:
            return f"pyddpdiag: no verdict over {folder}: {error}"
        self.summary = report.summary()
        return f"pyddpdiag: {report.verdict.line} More: pyddpdiag report {folder}"
