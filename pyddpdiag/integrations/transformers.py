"""Hugging Face's Trainer: `Trainer(..., callbacks=[pyddpdiag.integrations.transformers.DiagnosticsCallback()])`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyddpdiag.errors import PackageMissingError
from pyddpdiag.integrations.recorded_training import Session
from pyddpdiag.record.ddp_modules import find

try:
    from transformers import TrainerCallback
    from transformers.utils import logging
except ImportError as _error:
    raise PackageMissingError(
        f"pyddpdiag.integrations.transformers needs transformers, which cannot be imported: {_error}",
        hint="pip install transformers accelerate",
    ) from _error

_logger = logging.get_logger("transformers.pyddpdiag")


class DiagnosticsCallback(TrainerCallback):
    """Records a training of the Trainer under DDP: steps, waiting for data, evaluations, checkpoints; logs the verdict.

    A step is an optimizer step, with all its micro-batches. The verdict is also in the Trainer's `state.log_history`,
    under "pyddpdiag". `trainer.log(callback.numbers)` after `trainer.train()`
    gives the numbers of the report's summary to what `report_to` names (wandb, MLflow, TensorBoard); a callback has no
    way to it.

    Args:
        folder: of the run; None: a new one, and for each training another.
        options: of `pyddpdiag.Recorder`.
    """

    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self._session: Session | None = None
        self.numbers: dict[str, float] = {}
        """Of the report's summary, on the first rank once the training has ended; empty: before, and elsewhere."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Attaches the recorder to the module that wraps the model, which no callback is given."""
        model = given["model"]
        ddp = find([parameter for parameter in model.parameters() if parameter.requires_grad])
        if ddp is None:
            if state.is_world_process_zero:
                _logger.warning(
                    f"pyddpdiag records nothing: no DistributedDataParallel wraps the {type(model).__name__}. Start "
                    "several processes, with TrainingArguments(ddp_backend='gloo', use_cpu=True)."
                )
            return
        self._session = Session(self._folder, self._options, "transformers")
        self._session.recorder.attach(ddp)
        self._session.step_ends()  # it waits for its first batches

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """A step begins, after its batches came."""
        if self._session is not None:
            self._session.step_begins()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """It ends; an evaluation or a checkpoint may follow."""
        if self._session is not None:
            self._session.step_ends()
            self._follows(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """An evaluation or a checkpoint may follow."""
        self._follows(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """An evaluation has ended; a checkpoint may follow."""
        if self._session is not None:
            self._session.phase_ends()
            if control.should_save:
                self._session.phase("checkpoint")

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """A checkpoint has been written."""
        if self._session is not None:
            self._session.phase_ends()

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Logs the verdict. The module is not recorded any more."""
        session, self._session = self._session, None
        line = session.verdict() if session is not None else None
        if session is not None and line is not None:
            _logger.warning(line)
            self.numbers = session.numbers
            state.log_history.append({"pyddpdiag": line, "step": state.global_step})

    def _follows(self, control: Any) -> None:
        if self._session is not None and (control.should_evaluate or control.should_save):
            self._session.phase("evaluation" if control.should_evaluate else "checkpoint")


__all__ = ["DiagnosticsCallback"]
