"""What a result file says of the machine it was made on."""

from __future__ import annotations

import importlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil


def machine_info() -> dict[str, Any]:
    """System, processor, versions; the keys that pytest-benchmark uses where it has one for it."""
    system = platform.uname()
    return {
        "node": system.node,
        "system": system.system,
        "release": system.release,
        "machine": system.machine,
        "processor": system.processor,
        "python_implementation": platform.python_implementation(),
        "python_version": platform.python_version(),
        "cpu": {"brand_raw": cpu_name(), "count": psutil.cpu_count() or 0},
        "memory_bytes": psutil.virtual_memory().total,
        "torch": torch_version(),
    }


def cpu_name() -> str:
    """The processor as its system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or _registered_name() or platform.processor() or platform.machine()


def _registered_name() -> str:
    """The processor's name in Windows' registry, whose other names for it are a family and a model; "" elsewhere."""
    try:
        winreg = importlib.import_module("winreg")
        place = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, place) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except (ImportError, OSError):
        return ""


def torch_version() -> str:
    """The version of the installed torch, without importing it; "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def load_before() -> float | None:
    """Processes that want a processor, mean over the last minute: what else this machine does, before we begin.

    None on Windows, which keeps no such mean: psutil begins to count there with its first call, so that it returns 0
    or, where performance counters are off, fails.
    """
    if not hasattr(os, "getloadavg"):
        return None
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def link_speed(names: str) -> list[int | None]:
    """Mbit/s of each interface in `NAME[,NAME]` as the system states it; None where it does not."""
    stats = psutil.net_if_stats()
    return [stats[n].speed or None if n in stats else None for n in names.split(",") if n]
