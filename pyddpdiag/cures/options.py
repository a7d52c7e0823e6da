"""The cures that a run was asked for: checked, named as the options of `pyddpdiag run`, without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pyddpdiag.errors import UsageError
from pyddpdiag.paths.options import Compress, SharedMemory, path_request


@dataclass(frozen=True)
class Cures:
    """What is applied to every DDP module of a run, and to its ranks' processes.

    Attributes:
        shared_memory, compress, error_feedback, lanes: as in `Recorder.attach`.
        bucket_cap_mb, gradient_as_bucket_view: as in `DistributedDataParallel`; None, False: as the script has it.
        bucket_cap_mb_list: a size for each bucket in MiB; empty: as the script has it.
        interfaces: for Gloo (GLOO_SOCKET_IFNAME); empty: as the environment has it.
        threads: of torch in each rank; None: as the script has it.
        pin_ranks: whether each rank keeps to its own share of its host's cores.
        num_workers: of every DataLoader over a map-style data set; None: as the script has it.

    Raises:
        UsageError: a value is out of its range, or options exclude each other.
    """

    shared_memory: SharedMemory = "off"
    compress: Compress | None = None
    error_feedback: bool = False
    lanes: tuple[str, ...] = ()
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()
    gradient_as_bucket_view: bool = False
    interfaces: tuple[str, ...] = ()
    threads: int | None = None
    pin_ranks: bool = False
    num_workers: int | None = None

    def __post_init__(self) -> None:
        path_request(self.compress, self.error_feedback, self.shared_memory, self.lanes)
        if self.bucket_cap_mb is not None and self.bucket_cap_mb_list:
            raise UsageError(
                "--bucket-cap-mb and --bucket-cap-mb-list exclude each other.",
                hint="the first is one size for all buckets, the second one for each.",
            )
        sizes = [("--bucket-cap-mb", self.bucket_cap_mb)] if self.bucket_cap_mb is not None else []
        for name, value in [*sizes, *(("--bucket-cap-mb-list", each) for each in self.bucket_cap_mb_list)]:
            if not (math.isfinite(value) and 0 < value < 2**20):
                raise UsageError(
                    f"{name} {value:g} cannot be right.", hint="give MiB, such as 0.25, 1 or 25."
                )
        if self.threads is not None and not 1 <= self.threads <= 2**16:
            raise UsageError(f"--threads is {self.threads}, but at least 1 is needed.")
        # Without workers, torch refuses other arguments that the script may give.
        if self.num_workers is not None and not 1 <= self.num_workers <= 2**10:
            raise UsageError(
                f"--num-workers is {self.num_workers}, but at least 1 is needed.",
                hint="leave the option out to keep the script's own number.",
            )

    @property
    def path(self) -> dict[str, Any]:
        """What `Recorder.attach` gets; empty: its defaults."""
        return path_request(self.compress, self.error_feedback, self.shared_memory, self.lanes).arguments

    @property
    def ddp_arguments(self) -> dict[str, Any]:
        """What DistributedDataParallel gets in place of the script's values."""
        wanted: dict[str, Any] = {}
        if self.bucket_cap_mb is not None:
            wanted["bucket_cap_mb"] = self.bucket_cap_mb
        if self.bucket_cap_mb_list:
            wanted["bucket_cap_mb_list"] = list(self.bucket_cap_mb_list)
        if self.gradient_as_bucket_view:
            wanted["gradient_as_bucket_view"] = True
        return wanted

    def environment(self) -> dict[str, str]:
        """The variables of the launch command's environment that it sets."""
        found = {"GLOO_SOCKET_IFNAME": ",".join(self.interfaces)} if self.interfaces else {}
        return found if self.threads is None else {**found, "OMP_NUM_THREADS": str(self.threads)}

    def options(self) -> dict[str, str]:
        """The options of `pyddpdiag run` that ask for it, with their values; "" for a flag."""
        values = {
            "--shared-memory": "" if self.shared_memory == "off" else self.shared_memory,
            "--compress": self.compress or "",
            "--lanes": ",".join(self.lanes),
            "--bucket-cap-mb": "" if self.bucket_cap_mb is None else f"{self.bucket_cap_mb:g}",
            "--bucket-cap-mb-list": ",".join(f"{each:g}" for each in self.bucket_cap_mb_list),
            "--interface": ",".join(self.interfaces),
            "--threads": "" if self.threads is None else str(self.threads),
            "--num-workers": "" if self.num_workers is None else str(self.num_workers),
        }
        flags = {
            "--error-feedback": self.error_feedback,
            "--gradient-as-bucket-view": self.gradient_as_bucket_view,
            "--pin-ranks": self.pin_ranks,
        }
        return {
            **{name: value for name, value in values.items() if value},
            **{name: "" for name, on in flags.items() if on},
        }

    def changed_bits(self, world_size: int) -> list[str]:
        """Why the training's bits differ from those of the run without it; empty: they do not."""
        why = []
        if self.compress is not None:
            why.append("gradients travel in 16 bits")
        if (self.bucket_cap_mb is not None or self.bucket_cap_mb_list) and world_size > 2:
            why.append("another bucket layout sums in another order at 3 or more ranks")
        divides = self.shared_memory != "off" or self.lanes or self.gradient_as_bucket_view
        if divides and not divides_exactly(world_size):
            why.append(f"gradients are divided by {world_size}, where DDP may multiply")
        if self.threads is not None:
            why.append("another number of threads may add in another order")
        if self.num_workers is not None:
            why.append("other worker processes may draw other random numbers")
        return why


def divides_exactly(ranks: int) -> bool:
    """Whether dividing by the number of ranks, as hooks do, gives the bits of DDP's own multiplying by its inverse."""
    return ranks.bit_count() == 1


def from_options(options: Mapping[str, str]) -> Cures:
    """The reverse of `Cures.options`, for the ranks.

    Raises:
        UsageError, ValueError: it was not made by that.
    """
    cap, threads = options.get("--bucket-cap-mb"), options.get("--threads")
    workers = options.get("--num-workers")
    return Cures(
        shared_memory=cast(SharedMemory, options.get("--shared-memory", "off")),
        compress=cast("Compress | None", options.get("--compress")),
        error_feedback="--error-feedback" in options,
        lanes=tuple(filter(None, options.get("--lanes", "").split(","))),
        bucket_cap_mb=None if cap is None else float(cap),
        bucket_cap_mb_list=sizes_of(options.get("--bucket-cap-mb-list", "")),
        gradient_as_bucket_view="--gradient-as-bucket-view" in options,
        interfaces=tuple(filter(None, options.get("--interface", "").split(","))),
        threads=None if threads is None else int(threads),
        pin_ranks="--pin-ranks" in options,
        num_workers=None if workers is None else int(workers),
    )


def sizes_of(text: str) -> tuple[float, ...]:
    """The sizes in `A,B,...`.

    Raises:
        UsageError: one is no number.
    """
    try:
        return tuple(float(each) for each in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(
            f"--bucket-cap-mb-list {text} holds something that is no number.",
            hint="give MiB, such as 1,4,25.",
        ) from None


def layout_of(value: str) -> tuple[float, ...]:
    """The bucket sizes in `4`, or `1:4:25` for a size of each bucket, in MiB.

    Raises:
        UsageError: it holds no size, or one that is out of its range.
    """
    try:
        sizes = sizes_of(value.replace(":", ","))
        with_layout(Cures(), sizes)  # checks them
    except (UsageError, IndexError):
        raise UsageError(
            f"buckets={value}: that is no value of buckets.",
            hint="write buckets=4, or buckets=1:4:25 for a size of each bucket, in MiB.",
        ) from None
    return sizes


def with_layout(today: Cures, sizes: tuple[float, ...]) -> Cures:
    """These cures with a bucket size in MiB, or with several, one for each bucket.

    Raises:
        UsageError: a size is out of its range.
    """
    if len(sizes) > 1:
        return replace(today, bucket_cap_mb=None, bucket_cap_mb_list=sizes)
    return replace(today, bucket_cap_mb=sizes[0], bucket_cap_mb_list=())


__all__ = ["Cures", "divides_exactly", "from_options", "layout_of", "sizes_of", "with_layout"]
