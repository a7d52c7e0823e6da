"""Python runs this as it starts, in every process below `pyddpdiag run`, before the script.

It waits for torch's DistributedDataParallel to be imported, and lets pyddpdiag watch it. A sitecustomize of the
environment's own is run as if this one were not there. Nothing here may fail: the process may be any Python program.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _watch() -> None:
    try:
        from pyddpdiag.integrations.unchanged import watch_imports
    except ImportError:
        return  # another Python than that of `pyddpdiag run`, which says in the end that nothing was recorded
    watch_imports()


def _run_the_other() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    found = PathFinder.find_spec("sitecustomize", sys.path)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)


_watch()
_run_the_other()
