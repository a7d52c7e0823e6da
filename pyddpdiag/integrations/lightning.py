"""Lightning: `Trainer(callbacks=[pyddpdiag.integrations.lightning.Diagnostics("runs/today")])`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from pyddpdiag.errors import PackageMissingError
from pyddpdiag.integrations.recorded_training import Session

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
except ImportError as _error:
    raise PackageMissingError(
        f"pyddpdiag.integrations.lightning needs Lightning, which cannot be imported: {_error}",
        hint="pip install lightning",
    ) from _error


class Diagnostics(Callback):
    """Records a fit under DDPStrategy: steps, waiting for data, validations, checkpoints; logs the verdict.

    Args:
        folder: of the run; None: a new one, and for each fit another.
        options: of `pyddpdiag.Recorder`.
    """

    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        super().__init__()
        self._folder = folder
        self._options = options
        self._session: Session | None = None
        self._save: Callable[..., Any] | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attaches the recorder to the strategy's module."""
        ddp = trainer.strategy.model
        if not isinstance(ddp, DistributedDataParallel):
            rank_zero_warn(
                f"pyddpdiag records nothing: the strategy's module is a {type(ddp).__name__} and no "
                "DistributedDataParallel. Trainer(strategy=DDPStrategy(process_group_backend='gloo'), devices=2)"
            )
            return
        self._session = Session(self._folder, self._options, "lightning")
        self._session.recorder.attach(ddp)
        self._session.step_ends()  # it waits for its first batch
        self._save = trainer.save_checkpoint
        trainer.save_checkpoint = self._saving

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins."""
        if self._session is not None:
            self._session.step_begins()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """It ends."""
        if self._session is not None:
            self._session.step_ends()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """An evaluation begins."""
        if self._session is not None:
            self._session.phase("evaluation")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """It ends."""
        if self._session is not None:
            self._session.phase_ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs the verdict, and the numbers of the report's summary with the trainer's loggers."""
        if self._session is None or (line := self._session.verdict()) is None:
            return
        rank_zero_info(line)
        for logger in trainer.loggers:
            # The training is done, whatever becomes of its last numbers.
            try:
                logger.log_metrics(self._session.numbers, trainer.global_step)
            except Exception as error:
                rank_zero_warn(
                    f"pyddpdiag: {type(logger).__name__} did not take the report's numbers: {error}"
                )

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the recording also of a fit that failed. The module is not recorded any more."""
        if self._save is not None:
            trainer.save_checkpoint = self._save
            self._save = None
        if self._session is not None:
            self._session.close()
            self._session = None

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the recording."""
        self.teardown(trainer, pl_module, "fit")

    def _saving(self, *arguments: Any, **options: Any) -> Any:
        assert self._save is not None
        if self._session is None or self._session.recorder.closed:
            return self._save(*arguments, **options)
        self._session.phase("checkpoint")
        try:
            return self._save(*arguments, **options)
        finally:
            self._session.phase_ends()


__all__ = ["Diagnostics"]
