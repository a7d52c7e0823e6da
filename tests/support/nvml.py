"""A stand-in for `pynvml` on machines without a GPU: its names, arguments and errors, over GPUs of our own making."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace


class NVMLError(Exception):
    """As the real one."""


@dataclass
class Gpu:
    """What a GPU of the stand-in tells; an exception is raised instead."""

    uuid: str
    percent: int | Exception = 0
    used: int | Exception = 0
    total: int = 80_000_000_000
    looks: int = 0
    before_each: Callable[[Gpu], None] = field(default=lambda gpu: None)


class Nvml(ModuleType):
    """The functions that are used. Handles are the GPUs themselves."""

    def __init__(self, *gpus: Gpu, broken: str = "") -> None:
        super().__init__("pynvml")
        self.NVMLError = NVMLError
        self.open = 0
        self._gpus = gpus
        self._broken = broken

    def nvmlInit(self) -> None:  # noqa: N802
        if self._broken:
            raise NVMLError(self._broken)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Gpu:  # noqa: N802
        for gpu in self._gpus:
            if gpu.uuid == uuid:
                return gpu
        raise NVMLError("Not Found")

    def nvmlDeviceGetUtilizationRates(self, handle: Gpu) -> SimpleNamespace:  # noqa: N802
        assert self.open == 1
        handle.looks += 1
        handle.before_each(handle)
        if isinstance(handle.percent, Exception):
            raise handle.percent
        return SimpleNamespace(gpu=handle.percent, memory=0)

    def nvmlDeviceGetMemoryInfo(self, handle: Gpu) -> SimpleNamespace:  # noqa: N802
        assert self.open == 1
        if isinstance(handle.used, Exception):
            raise handle.used
        return SimpleNamespace(used=handle.used, total=handle.total, free=0)
