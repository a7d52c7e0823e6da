"""Which versions meet here: this tool, the torch that its native module was built for, and the torch there is."""

from __future__ import annotations

import importlib.metadata
import platform

import pyddpdiag
from pyddpdiag._loader import built_with
from pyddpdiag.errors import NativeModuleError


def versions() -> str:
    """One line per version. Imports neither torch nor the native module, so it works where they don't load."""
    lines = [f"pyddpdiag {pyddpdiag.__version__}"]
    try:
        needs = built_with()
        lines.append(f"native module: built for torch {needs}")
    except NativeModuleError:
        needs = ""
        lines.append("native module: not built; traces can be read, training cannot be recorded")
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        lines.append("torch: not installed" + (f"; 'pip install torch=={needs}.*' fits" if needs else ""))
    else:
        fits = not needs or torch.startswith(f"{needs}.")
        lines.append(
            f"torch {torch}" + ("" if fits else f": does not fit; 'pip install torch=={needs}.*' does")
        )
    lines.append(f"Python {platform.python_version()}, {platform.platform(terse=True)}")
    return "\n".join(lines)
