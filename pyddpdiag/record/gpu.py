"""Looks at a rank's own GPU while it trains, through NVML, NVIDIA's management library (package nvidia-ml-py).

Nothing here may disturb the training: NVML is only called on a separate thread, and any failure is one
sentence. torch's device numbers differ from NVML's (CUDA_VISIBLE_DEVICES renumbers them), so the GPU is found
by its UUID.

A process looks at each GPU once, however many ask: a recorder does for the modules it knows, and `pyddpdiag train` for
the whole training.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.record.side_thread import Over, SideThread

_INTERVAL_S = 0.5
# After this many samples every second one is dropped and the interval doubled: a long run needs no more.
_MOST_SAMPLES = 2048

_lock = threading.Lock()
_shared: dict[str, Watch] = {}


class Watch:
    """Samples one GPU until the last of those who share it stops.

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
        self._owners = 1
        self._said = False
        # Per sample: utilisation in percent, memory used and in total in bytes; None where it could not be read.
        self._samples: list[tuple[int | None, int | None, int | None]] = []
        self._side = SideThread("pyddpdiag-gpu", self._run)

    def share(self) -> Watch:
        """The same watch for one more owner, who stops it for itself."""
        self._owners += 1
        return self

    def stop(self) -> None:
        """Ends the sampling if nobody else needs it; returns after a moment even if NVML does not."""
        with _lock:
            self._owners -= 1
            if self._owners > 0:
                return
            if _shared.get(self._uuid) is self:
                del _shared[self._uuid]
        self._side.close()

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

    def _run(self, over: Over) -> None:
        try:
            self._nvml.nvmlInit()
            try:
                handle = self._find()
                while not over.wait(self._interval_s):
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
        """One reading; None if it fails, as each may by itself (a part of a GPU reports no utilisation)."""
        try:
            return function(handle)
        except self._nvml.NVMLError as error:
            self._problem(error)
            return None

    def _problem(self, error: Exception) -> None:
        if not self._said:
            self._said = True
            self._tell(f"GPU use is not sampled in full: NVML says '{error}'.")


def watch(device: torch.device, tell: Callable[[str], None] = lambda text: None) -> Watch | None:
    """Begins to sample a GPU, or shares the watch that does so already; None: it is no GPU, or cannot be sampled.

    On the CPU nothing is imported.

    Args:
        device: that the rank trains on.
        tell: takes a sentence if the use cannot be sampled.
    """
    if device.type != "cuda":
        return None
    try:
        import pynvml
    except ImportError:
        tell("GPU use is not sampled: nvidia-ml-py is not installed (pip install 'pyddpdiag[gpu]').")
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    with _lock:
        known = _shared.get(uuid)
        if known is not None:
            return known.share()
        _shared[uuid] = begun = Watch(pynvml, uuid, tell)
        return begun
