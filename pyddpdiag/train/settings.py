"""What a training run is told to do: one frozen record that is handed to every rank."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from pyddpdiag.errors import UsageError


class HookKind(str, Enum):
    """How the gradients of a bucket are averaged, and whether that is recorded."""

    NATIVE = "native"
    TIMED = "timed"
    PLAIN = "plain"
    BUILTIN = "builtin"

    @property
    def records(self) -> bool:
        """Whether this hook writes a trace."""
        return self in (HookKind.NATIVE, HookKind.TIMED)


@dataclass(frozen=True)
class TrainSettings:
    """Settings of one run, equal on all its ranks. A value that cannot be right raises `UsageError`.

    Attributes:
        epochs: passes over the training set.
        batch_size: samples per step, summed over all ranks.
        lr: peak learning rate.
        seed: decides the first weights and the order of the samples.
        bucket_cap_mb: DDP's bucket size in MiB.
        hook: see `HookKind`.
        trace: folder of the trace; None asks for `runs/<time>`, or for none if the hook records nothing.
        force: replace a trace that is in that folder already.
        interfaces: network interfaces for Gloo; empty leaves the choice to `pyddpdiag.train.interfaces`.
        timeout_s: longest wait for the other ranks, at the start and in every collective, in seconds.
    """

    epochs: int = 10
    batch_size: int = 64
    lr: float = 0.03
    seed: int = 0
    bucket_cap_mb: float = 0.25
    hook: HookKind = HookKind.NATIVE
    trace: str | None = None
    force: bool = False
    interfaces: tuple[str, ...] = ()
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"--epochs is {self.epochs}, but at least 1 is needed.")
        if self.batch_size < 1:
            raise UsageError(f"--batch-size is {self.batch_size}, but at least 1 is needed.")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed is {self.seed}, but it must be from 0 to 2^63 - 1.")
        for name, value in (
            ("lr", self.lr),
            ("bucket-cap-mb", self.bucket_cap_mb),
            ("timeout", self.timeout_s),
        ):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--{name} is {value}, but it must be a number above 0.")
        if self.trace is not None and not self.hook.records:
            raise UsageError(
                f"--hook {self.hook.value} records nothing, so there is no trace to write to {self.trace}.",
                hint="leave --trace out, or use --hook native or --hook timed.",
            )

    def check_world(self, world_size: int, train_samples: int | None = None) -> None:
        """Raises `UsageError` if the batch cannot be split over `world_size` ranks or exceeds the data."""
        if self.batch_size < world_size:
            raise UsageError(
                f"--batch-size is {self.batch_size} for {world_size} ranks: some would get no sample.",
                hint=f"--batch-size counts the samples of all ranks together: give at least {world_size}.",
            )
        if train_samples is not None and self.batch_size > train_samples:
            raise UsageError(
                f"--batch-size is {self.batch_size}, but the training set has only {train_samples} samples.",
                hint="choose a smaller batch.",
            )

    def shared(self) -> dict[str, str]:
        """The settings that all ranks must agree on, by the name of their option."""
        private = {"trace", "force", "interfaces", "timeout_s"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in private}
        return {
            "--" + name.replace("_", "-"): value.value if isinstance(value, HookKind) else repr(value)
            for name, value in values.items()
        }
