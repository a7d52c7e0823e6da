"""Why a DistributedDataParallel run over Gloo is slow, stuck or wrong.

Three lines in a training script record everything that is needed to explain it::

    recorder = pyddpdiag.Recorder("runs/demo")      # after init_process_group
    recorder.attach(ddp)                            # or ddp.register_comm_hook(recorder, pyddpdiag.timed_allreduce)
    for batch in recorder.steps(loader): ...        # optional: data wait and step boundaries

and `pyddpdiag report runs/demo` explains it. Names that need torch are loaded at first use, so that traces
can be read on a machine without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyddpdiag import _loader, errors

if TYPE_CHECKING:
    from pyddpdiag._loader import build_config
    from pyddpdiag.cures.trial_options import Trial
    from pyddpdiag.export.notebook import load
    from pyddpdiag.gradients.flattening import flatten, unflatten_
    from pyddpdiag.gradients.reducer import GradientReducer
    from pyddpdiag.messages.explain import explain
    from pyddpdiag.pipeline import load_report
    from pyddpdiag.ranks.init import init_process_group
    from pyddpdiag.record.hooks import timed, timed_allreduce, timed_bf16_allreduce, timed_fp16_allreduce
    from pyddpdiag.record.recorder import Recorder

__version__ = "0.2.0"

__all__ = [
    "GradientReducer",
    "Recorder",
    "Trial",
    "__version__",
    "build_config",
    "errors",
    "explain",
    "flatten",
    "init_process_group",
    "load",
    "load_report",
    "timed",
    "timed_allreduce",
    "timed_bf16_allreduce",
    "timed_fp16_allreduce",
    "unflatten_",
]

_HOME = {
    "GradientReducer": "pyddpdiag.gradients.reducer",
    "Recorder": "pyddpdiag.record.recorder",
    "Trial": "pyddpdiag.cures.trial_options",
    "build_config": "pyddpdiag._loader",
    "explain": "pyddpdiag.messages.explain",
    "flatten": "pyddpdiag.gradients.flattening",
    "init_process_group": "pyddpdiag.ranks.init",
    "load": "pyddpdiag.export.notebook",
    "load_report": "pyddpdiag.pipeline",
    "timed": "pyddpdiag.record.hooks",
    "timed_allreduce": "pyddpdiag.record.hooks",
    "timed_bf16_allreduce": "pyddpdiag.record.hooks",
    "timed_fp16_allreduce": "pyddpdiag.record.hooks",
    "unflatten_": "pyddpdiag.gradients.flattening",
}

_WITHOUT_NATIVE = {
    "pyddpdiag.export.notebook",
    "pyddpdiag.messages.explain",
    "pyddpdiag.pipeline",
    "pyddpdiag.ranks.init",
}

_loader.check_early()


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'pyddpdiag' has no attribute {name!r}")
    if home not in _WITHOUT_NATIVE:
        # First, so that a missing part is reported as such and not as some module's failed import.
        _loader.load()
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
