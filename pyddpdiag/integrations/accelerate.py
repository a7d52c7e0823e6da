"""Accelerate: `Diagnostics(accelerator, "runs/today")`, one line before the loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyddpdiag.errors import PackageMissingError
from pyddpdiag.integrations import unchanged
from pyddpdiag.integrations.watched import Watched

try:
    from accelerate.logging import get_logger
except ImportError as _error:
    raise PackageMissingError(
        f"pyddpdiag.integrations.accelerate needs Accelerate, which cannot be imported: {_error}",
        hint="pip install accelerate",
    ) from _error

START: Final = "torchrun --nproc-per-node 2 SCRIPT"
"""Starts two ranks. `accelerate launch --cpu` starts one process, whatever --num_processes says (Accelerate 1.15)."""

_logger = get_logger("accelerate.pyddpdiag")


class Diagnostics:
    """Records what an Accelerator trains under DDP: steps, waiting for data, checkpoints; logs the verdict.

    A step is a batch of a loader that a training pass uses. `accelerator.end_training()` ends the recording and logs
    the verdict; without it the recording ends with the process.

    Args:
        accelerator: the Accelerator, before or after `prepare`.
        folder: of the run; None: a new one.
        options: of `pyddpdiag.Recorder`.
    """

    def __init__(self, accelerator: Any, folder: str | Path | None = None, **options: Any) -> None:
        self._processes = accelerator.num_processes
        self._watched = Watched(folder, options, "accelerate")
        unchanged.watch(self._watched)
        for name in ("save_state", "save_model"):
            setattr(accelerator, name, self._as_checkpoint(getattr(accelerator, name)))
        accelerator.end_training = self._at_the_end(accelerator.end_training)

    def close(self) -> None:
        """Ends the recording and logs the verdict, on the first rank."""
        session = self._watched.session
        if session is None:
            reason = "no DistributedDataParallel module ran with gradients."
            if self._watched.left_alone:
                reason = f"a DistributedDataParallel module was left alone: {self._watched.left_alone}"
            elif self._processes < 2:
                reason = f"there is one process. Start several: {START}"
            _logger.warning(f"pyddpdiag recorded nothing: {reason}")
        elif not session.recorder.closed:
            line = session.verdict()
            if line is not None:
                _logger.warning(line)

    def _as_checkpoint(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def saving(*arguments: Any, **options: Any) -> Any:
            session = self._watched.session
            if session is None or session.recorder.closed:
                return save(*arguments, **options)
            session.phase("checkpoint")
            try:
                return save(*arguments, **options)
            finally:
                session.phase_ends()

        return saving

    def _at_the_end(self, end: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(end)
        def ending(*arguments: Any, **options: Any) -> Any:
            self.close()
            return end(*arguments, **options)

        return ending


__all__ = ["Diagnostics"]
