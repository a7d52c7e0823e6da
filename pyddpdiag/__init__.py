"""Why a DistributedDataParallel run over Gloo is slow, stuck or wrong.

Three lines in a training script record everything that is needed to tell::

    recorder = pyddpdiag.Recorder("runs/demo")      # after init_process_group
    recorder.attach(ddp)                            # or ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    for batch in recorder.steps(loader): ...        # optional: data wait and step boundaries

and `pyddpdiag report runs/demo` tells it. Names that need torch are loaded at first use, so that traces can be
read on a machine without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyddpdiag import errors
from pyddpdiag._loader import check_early, load

if TYPE_CHECKING:
    from pyddpdiag.build import build_config
    from pyddpdiag.flattening import flatten, unflatten_
    from pyddpdiag.hooks import timed, timed_allreduce, timed_bf16_allreduce, timed_fp16_allreduce
    from pyddpdiag.recorder import Recorder
    from pyddpdiag.reducer import GradientReducer

__version__ = "0.1.0"

__all__ = [
    "GradientReducer",
    "Recorder",
    "__version__",
    "build_config",
    "errors",
    "flatten",
    "timed",
    "timed_allreduce",
    "timed_bf16_allreduce",
    "timed_fp16_allreduce",
    "unflatten_",
]

_HOME = {
    "GradientReducer": "pyddpdiag.reducer",
    "Recorder": "pyddpdiag.recorder",
    "build_config": "pyddpdiag.build",
    "flatten": "pyddpdiag.flattening",
    "timed": "pyddpdiag.hooks",
    "timed_allreduce": "pyddpdiag.hooks",
    "timed_bf16_allreduce": "pyddpdiag.hooks",
    "timed_fp16_allreduce": "pyddpdiag.hooks",
    "unflatten_": "pyddpdiag.flattening",
}

check_early()


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'pyddpdiag' has no attribute {name!r}")
    # First, so that what is missing is told as such and not as some module's failed import.
    load()
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
