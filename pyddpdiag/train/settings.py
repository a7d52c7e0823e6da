"""The settings of a training run: one frozen record that every rank receives."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from pyddpdiag.cures.options import Cures
from pyddpdiag.errors import UsageError
from pyddpdiag.paths.averaging import Averaging, HookKind
from pyddpdiag.paths.options import Compress, SharedMemory
from pyddpdiag.workloads.archs import arch_of, check_data

Device = Literal["auto", "cpu", "cuda"]

# Paths and limits may differ from machine to machine; the rest must not.
_PRIVATE = {
    "trace",
    "force",
    "interfaces",
    "lanes",
    "threads",
    "timeout_s",
    "data",
    "script",
    "workers",
    "checkpoint",
    "watchdog_s",
}


@dataclass(frozen=True)
class TrainSettings:
    """Settings of one run, equal on all its ranks.

    Attributes:
        epochs: passes over the training set.
        batch_size: samples per step, summed over all ranks; with `scale_lr`, per rank.
        lr: peak learning rate; with `scale_lr`, multiplied by the number of ranks. Left out: that of `arch`.
        seed: decides the first weights and the order of the samples.
        bucket_cap_mb: DDP's bucket size in MiB. Left out: that of `arch`.
        bucket_cap_mb_list: a size for each bucket instead, in MiB; empty: `bucket_cap_mb` for all.
        gradient_as_bucket_view: as in `DistributedDataParallel`.
        threads: of torch in each rank; None: the cores of the machine, shared by its ranks.
        pin_ranks: whether each rank keeps to its own share of its host's cores.
        hook, compress, error_feedback, shared_memory, lanes: how gradients are averaged (`Averaging`).
        trace: folder of the trace; None asks for `runs/<time>`, or for none if the hook records nothing.
        force: replace a trace that is already in that folder.
        interfaces: network interfaces for Gloo; empty leaves the choice to `pyddpdiag.ranks.interfaces`.
        timeout_s: longest wait for the other ranks, at the start and in every collective, in seconds.
        arch: a name in `pyddpdiag.workloads.archs`.
        data: folder of images or file of text, as the network needs it.
        script: `FILE` or `FILE:FUNCTION` to train by instead of the built-in loop.
        image_size: images are cut to this many pixels on each side.
        workers: threads per rank that read samples ahead; 0 reads them in the training loop.
        scale_lr: give each rank a batch of its own instead of a share of one.
        checkpoint: file that is written after each epoch.
        resume: checkpoint to continue from; rank 0 reads it.
        evaluate: only test the checkpoint in `resume`.
        amp: bfloat16 in forward and backward (torch.autocast); weights and gradients stay float32.
        device: "auto" takes a GPU per rank if there are enough, else the CPU.
        watchdog_s: a rank without progress for so many seconds says what `pyddpdiag hang` would; None = never.
        ddp: False trains the bare module, for a world of one.

    Raises:
        UsageError: a value is out of its range, or options exclude each other.
    """

    epochs: int = 10
    batch_size: int = 64
    # None stands for what __post_init__ takes from the table of networks: nobody sees it.
    lr: float = None  # type: ignore[assignment]
    seed: int = 0
    bucket_cap_mb: float = None  # type: ignore[assignment]
    bucket_cap_mb_list: tuple[float, ...] = ()
    gradient_as_bucket_view: bool = False
    threads: int | None = None
    pin_ranks: bool = False
    hook: HookKind = HookKind.NATIVE
    compress: Compress | None = None
    error_feedback: bool = False
    shared_memory: SharedMemory = "off"
    lanes: tuple[str, ...] = ()
    trace: str | None = None
    force: bool = False
    interfaces: tuple[str, ...] = ()
    timeout_s: float = 300.0
    arch: str = "digits-cnn"
    data: str | None = None
    script: str | None = None
    image_size: int = 224
    workers: int = 0
    scale_lr: bool = False
    checkpoint: str | None = None
    resume: str | None = None
    evaluate: bool = False
    amp: bool = False
    device: Device = "auto"
    watchdog_s: float | None = None
    ddp: bool = True

    def __post_init__(self) -> None:
        _ = self.averaging  # checks it
        Cures(bucket_cap_mb_list=self.bucket_cap_mb_list, threads=self.threads)  # likewise
        usual = arch_of(self.arch)
        for name in ("lr", "bucket_cap_mb"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(usual, name))
        for option, count, least in (
            ("epochs", self.epochs, 1),
            ("batch-size", self.batch_size, 1),
            ("image-size", self.image_size, 8),
            ("workers", self.workers, 0),
        ):
            if count < least:
                raise UsageError(f"--{option} is {count}, but at least {least} is needed.")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed is {self.seed}, but it must be from 0 to 2^63 - 1.")
        for name, value in (
            ("lr", self.lr),
            ("bucket-cap-mb", self.bucket_cap_mb),
            ("timeout", self.timeout_s),
        ):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"--{name} is {value}, but it must be a number above 0.")
        if self.watchdog_s is not None and not (math.isfinite(self.watchdog_s) and self.watchdog_s >= 1):
            raise UsageError(f"--watchdog is {self.watchdog_s}, but it must be at least 1 s.")
        if self.trace is not None and not self.hook.records:
            raise UsageError(
                f"--hook {self.hook.value} records nothing, so there is no trace to write to {self.trace}.",
                hint="leave --trace out, or use --hook native or --hook timed.",
            )
        if self.evaluate and self.resume is None:
            raise UsageError("--evaluate tests a checkpoint.", hint="name it by --resume FILE.")
        if self.script is None:
            check_data(self.arch, self.data)
        elif self.checkpoint or self.resume:
            raise UsageError(
                "--checkpoint and --resume belong to the built-in loop, not to --script.",
                hint="save and load in the script itself (examples/checkpoint.py).",
            )

    @property
    def averaging(self) -> Averaging:
        """How gradients are averaged."""
        return Averaging(self.hook, self.compress, self.error_feedback, self.shared_memory, self.lanes)

    @property
    def ddp_arguments(self) -> dict[str, Any]:
        """What DistributedDataParallel gets."""
        wanted: dict[str, Any] = {"gradient_as_bucket_view": True} if self.gradient_as_bucket_view else {}
        if self.bucket_cap_mb_list:
            return {**wanted, "bucket_cap_mb_list": list(self.bucket_cap_mb_list)}
        return {**wanted, "bucket_cap_mb": self.bucket_cap_mb}

    def without_hook(self, **changes: Any) -> TrainSettings:
        """The same with DDP's own averaging, which is not recorded, and these other changes."""
        plain = asdict(Averaging(HookKind.PLAIN))
        return replace(self, **plain, **changes)

    def total_batch(self, world_size: int) -> int:
        """Samples per step of all ranks together."""
        return self.batch_size * world_size if self.scale_lr else self.batch_size

    def peak_lr(self, world_size: int) -> float:
        """The peak learning rate that is really used."""
        return self.lr * world_size if self.scale_lr else self.lr

    def check_world(self, world_size: int, train_samples: int | None = None) -> None:
        """Refuses a number of ranks that the batch cannot be split over.

        Raises:
            UsageError: some rank would get too few samples, the batch exceeds the data, or several ranks would train
                without DDP.
        """
        if self.script is not None:
            return
        if not self.ddp and world_size != 1:
            raise UsageError(f"{world_size} ranks cannot train together without DDP.")
        total = self.total_batch(world_size)
        if total < world_size:
            raise UsageError(
                f"--batch-size is {total} for {world_size} ranks: some would get no sample.",
                hint=f"--batch-size counts the samples of all ranks together: give at least {world_size}.",
            )
        if arch_of(self.arch).normalises and total < 2 * world_size:
            raise UsageError(
                f"--batch-size is {total} for {world_size} ranks: some would get a single sample, which "
                f"{self.arch} cannot normalise.",
                hint=f"give at least {2 * world_size}.",
            )
        if train_samples is not None and total > train_samples:
            raise UsageError(
                f"--batch-size is {total}, but the training set has only {train_samples} samples.",
                hint="choose a smaller batch.",
            )

    def shared(self) -> dict[str, str]:
        """The settings that all ranks must agree on, by the name of their option."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _PRIVATE}
        named = {
            "--" + name.replace("_", "-"): value.value if isinstance(value, HookKind) else repr(value)
            for name, value in values.items()
        }
        return {**named, "--lanes": f"{len(self.lanes)} interfaces"}
