"""The JSON file beside a trace: what the fixed records cannot hold (docs/trace-format.md)."""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pyddpdiag import _native
from pyddpdiag._ddp import Description

# Only what changes how DDP or Gloo behave: an environment may hold secrets.
_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "GLOO_DEVICE_TRANSPORT",
    "GLOO_SOCKET_IFNAME",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "RANK",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_GLOO_LAZY_INIT",
    "USE_LIBUV",
    "WORLD_SIZE",
)
_DTYPES = {1: "float32", 2: "float64", 3: "float16", 4: "bfloat16", 5: "complex64", 6: "complex128"}


def _hex(number: int) -> str:
    return f"{number:016x}"


class Sidecar:
    """Writes `rank_<N>.json`, whole and by rename, so that a reader never sees half of it."""

    def __init__(self, path: Path, core: _native.Recorder, run_id: bytes, rank: int, world_size: int) -> None:
        self._path = path
        self._core = core
        self._layouts_found = 0
        self.behind = False
        self._known_groups: dict[int, dict[str, Any]] = {}
        self._fixed: dict[str, Any] = {
            "format": "ddptrace",
            "schema_version": 1,
            "run_id": run_id.hex(),
            "rank": rank,
            "world_size": world_size,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "torch_threads": torch.get_num_threads(),
            "build_config": _native.build_config(),
            "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            "clock": core.clock(),
        }

    def is_due(self) -> bool:
        """Whether to write now that a new bucket layout turned up: the run may hang or be killed with this bucket.

        Past the first 64 only when their number has doubled, as each write grows with it; the rest is then
        `behind`, to be written at the end of the step.
        """
        self._layouts_found += 1
        self.behind = True
        return self._layouts_found <= 64 or self._layouts_found & (self._layouts_found - 1) == 0

    def write(self, modules: Sequence[tuple[_native.Module, Description]], *, closed: bool) -> None:
        """Replaces the file by one that tells what is known now.

        Raises:
            OSError: it cannot be written.
        """
        content = {
            **self._fixed,
            "groups": self._groups(),
            "modules": [_module(module, description) for module, description in modules],
            "buckets": [
                {
                    "id": _hex(identity),
                    "module": module,
                    "index": index,
                    "parameters": parameters,
                    "bytes": size,
                    "dtype": _DTYPES.get(dtype, "other"),
                }
                for identity, module, index, parameters, size, dtype in self._core.layouts()
            ],
            "closed": closed,
        }
        self.behind = False
        self._replace(content)

    def _replace(self, content: dict[str, Any]) -> None:
        temporary = self._path.with_suffix(".json.tmp")
        temporary.unlink(missing_ok=True)
        # For its owner only, as the trace: it tells hosts, paths and the model's structure.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        temporary.replace(self._path)

    def _groups(self) -> list[dict[str, Any]]:
        for identity, name, handle in self._core.groups():
            # Asked once: at the close the group may have been destroyed.
            if identity not in self._known_groups and handle is not None:
                self._known_groups[identity] = _group(identity, name, handle)
        return list(self._known_groups.values())


def _group(identity: int, name: str, handle: dist.ProcessGroup) -> dict[str, Any]:
    return {"id": _hex(identity), "name": name, "backend": handle.name(), "ranks": _ranks(handle)}


def _ranks(handle: dist.ProcessGroup) -> list[int]:
    try:
        return dist.get_process_group_ranks(handle)
    except (KeyError, ValueError):
        # Destroyed meanwhile, or made behind torch.distributed's back.
        return list(range(handle.size()))


def _module(module: _native.Module, description: Description) -> dict[str, Any]:
    return {
        "index": module.index,
        "name": description.name,
        "group": _hex(module.group_id),
        "bucket_cap_mb": description.bucket_cap_mb,
        "parameters": [
            {
                "name": name,
                "shape": list(parameter.shape),
                "dtype": str(parameter.dtype).removeprefix("torch."),
            }
            for name, parameter in zip(description.names, description.parameters, strict=True)
        ],
    }
