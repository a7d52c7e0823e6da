"""Looks at a rank's own GPU while it trains, through NVML, NVIDIA's management library (package nvidia-ml-py).

Nothing here may disturb the training: NVML is only called on a separate thread, and any failure is one
sentence. torch's device numbers differ from NVML's (CUDA_VISIBLE_DEVICES renumbers them), so the GPU is found
by its UUID.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag.model import GpuUse
from pyddpdiag.ranks.rendezvous import Place
from pyddpdiag.train.evaluate import total

_INTERVAL_S = 0.5
# After this many samples every second one is dropped and the interval doubled: a long run needs no more.
_MOST_SAMPLES = 2048
# The thread checks for its stop order between two calls; a thread that NVML blocks longer is left behind.
_LEAVE_S = 2.0


class Watch:
    """Samples one GPU until it is told to stop.

    Args:
        nvml: the module `pynvml`, or one with its functions.
        uuid: of the GPU, as torch reports it: without NVML's prefix.
        tell: takes a sentence for the user; called at most once, from the watch's own thread.
        interval_s: between two samples, at first.
    """

    def __init__(
        self, nvml: ModuleType, uuid: str, tell: Callable[[str], None], interval_s: float = _INTERVAL_S
    ) -> None:
        self._nvml: Any = nvml
        self._uuid = uuid
        self._tell = tell
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._warned = False
        # Per sample: utilisation in percent, memory used and in total in bytes; None where it could not be read.
        self._samples: list[tuple[int | None, int | None, int | None]] = []
        self._thread = threading.Thread(target=self._run, name="pyddpdiag-gpu", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the sampling; returns within `_LEAVE_S` even if NVML does not."""
        self._stop.set()
        self._thread.join(_LEAVE_S)

    def use(self, rank: int) -> GpuUse | None:
        """The medians, None without any sample."""
        samples = list(self._samples)
        if not samples:
            return None
        percent, used, whole = (
            [value for value in column if value is not None] for column in zip(*samples, strict=True)
        )
        return GpuUse(
            rank,
            len(samples),
            float(statistics.median(percent)) if percent else None,
            int(statistics.median(used)) if used else None,
            whole[-1] if whole else None,
        )

    def _run(self) -> None:
        try:
            self._nvml.nvmlInit()
            try:
                handle = self._find()
                while not self._stop.wait(self._interval_s):
                    self._sample(handle)
            finally:
                self._nvml.nvmlShutdown()
        except Exception as error:
            # Any error: this thread cannot raise to anybody, and the training goes on.
            self._problem(error)

    def _find(self) -> Any:
        """NVML's handle of the GPU; a part of one (MIG) has another prefix."""
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(f"GPU-{self._uuid}")
        except self._nvml.NVMLError as error:
            try:
                return self._nvml.nvmlDeviceGetHandleByUUID(f"MIG-{self._uuid}")
            except self._nvml.NVMLError:
                raise error from None

    def _sample(self, handle: Any) -> None:
        rates = self._read(self._nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._read(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        if rates is None and memory is None:
            return
        self._samples.append(
            (
                int(rates.gpu) if rates is not None else None,
                int(memory.used) if memory is not None else None,
                int(memory.total) if memory is not None else None,
            )
        )
        if len(self._samples) > _MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._interval_s *= 2

    def _read(self, function: Callable[[Any], Any], handle: Any) -> Any:
        """One reading; None if it fails, as each may for itself (a part of a GPU tells no utilisation)."""
        try:
            return function(handle)
        except self._nvml.NVMLError as error:
            self._problem(error)
            return None

    def _problem(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            self._tell(f"GPU use is not sampled in full: NVML says '{error}'.")


@contextmanager
def watched(device: torch.device, tell: Callable[[str], None]) -> Iterator[Callable[[int], GpuUse | None]]:
    """Watches the device during the block; gives a function that tells a rank's use after it.

    On the CPU nothing is done, and nothing is imported.

    Args:
        device: that the rank trains on.
        tell: takes a sentence if the use cannot be sampled.
    """
    watch = _begin(device, tell)
    try:
        yield watch.use if watch is not None else lambda rank: None
    finally:
        if watch is not None:
            watch.stop()


def _begin(device: torch.device, tell: Callable[[str], None]) -> Watch | None:
    if device.type != "cuda":
        return None
    try:
        import pynvml
    except ImportError:
        tell("GPU use is not sampled: nvidia-ml-py is not installed (pip install 'pyddpdiag[gpu]').")
        return None
    return Watch(pynvml, str(torch.cuda.get_device_properties(device).uuid), tell)


def gather(mine: GpuUse | None, place: Place) -> tuple[GpuUse, ...]:
    """The use of all ranks' GPUs, in the order of ranks without those that have none; all ranks must call it."""
    if not dist.is_initialized():  # a script may have destroyed the process group
        return (mine,) if mine is not None else ()
    width = 4
    row = [0.0] * width
    if mine is not None:
        known = (mine.utilisation_percent, mine.memory_used_bytes, mine.memory_total_bytes)
        row = [float(mine.samples), *(-1.0 if value is None else float(value) for value in known)]
    # Each rank fills only its own row, so the sum holds all rows.
    before, after = place.rank, place.world_size - place.rank - 1
    sums = total(*[0.0] * (before * width), *row, *[0.0] * (after * width))
    found = []
    for rank in range(place.world_size):
        samples, percent, used, whole = sums[rank * width : (rank + 1) * width]
        if samples > 0:
            found.append(
                GpuUse(
                    rank,
                    int(samples),
                    percent if percent >= 0 else None,
                    int(used) if used >= 0 else None,
                    int(whole) if whole >= 0 else None,
                )
            )
    return tuple(found)
