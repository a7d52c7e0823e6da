"""What a training reports while it runs: plain data, for a pipe or directly for a display."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyddpdiag.model.gpu import GpuUse


@dataclass(frozen=True)
class Planned:
    """What is about to be trained; sent by rank 0.

    Attributes:
        shares: samples per step of each rank.
        threads: of each rank.
        lr: the peak learning rate that is really used.
        first_epoch: above 0 in a run that was resumed.
    """

    world_size: int
    train_samples: int
    test_samples: int
    shares: tuple[int, ...]
    epochs: int
    steps_per_epoch: int
    parameters: int
    threads: int
    trace: str | None
    dataset: str = "handwritten digits"
    lr: float = math.nan
    device: str = "cpu"
    first_epoch: int = 0


@dataclass(frozen=True)
class StepDone:
    """Rank 0 finished a step; `loss` is its own. Sent at most a few times a second."""

    epoch: int
    step: int
    loss: float


@dataclass(frozen=True)
class EpochDone:
    """An epoch ended on all ranks. Losses are means over all samples of all ranks, accuracy is in 0..1."""

    epoch: int
    train_loss: float
    test_loss: float
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a run.

    Attributes:
        buckets: DDP's after its rebuild; 0 without DDP.
        history: one entry per epoch, also of those before a resume; a script may have none.
        seconds: of this run's epochs, without the start.
        dataset: the training data, for people.
        batch_size: samples per step of all ranks together.
        lr: the peak learning rate that was really used.
        data_wait_s: how long this rank waited for its batches.
        steps: that this rank trained in this run.
        gpus: the use of the ranks' GPUs, without ranks that had none or could not sample it.
    """

    world_size: int
    hook: str
    trace: str | None
    parameters: int
    buckets: int
    history: tuple[EpochDone, ...]
    seconds: float
    dataset: str = ""
    batch_size: int = 0
    lr: float = math.nan
    data_wait_s: float = 0.0
    steps: int = 0
    gpus: tuple[GpuUse, ...] = ()

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last epoch, in 0..1; NaN if a script reported none."""
        return self.history[-1].accuracy if self.history else math.nan
