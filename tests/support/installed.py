"""Keeps a source tree without the native module from hiding an installed package.

`python -m pytest` puts the current folder first in sys.path. In a clone that is the source tree, whose package has no
native module unless it was built there.
"""

import importlib.util
import sys
from pathlib import Path


def prefer_installed(root: Path) -> bool:
    """Takes `root` out of sys.path if its package has no native module and another one has.

    Call it before the package is imported; spawned processes get the same sys.path.

    Returns:
        Whether the package that will be imported has its native module.
    """
    tree = root / "pyddpdiag"
    if _has_native(tree):
        return True
    before = list(sys.path)
    if tree.is_dir():
        sys.path[:] = [entry for entry in before if Path(entry).resolve() != root]
    spec = importlib.util.find_spec("pyddpdiag")
    # What an editable install leaves in site-packages is a native module in a folder that is no package: no origin.
    if spec is not None and spec.origin is not None and _has_native(Path(spec.origin).parent):
        return True
    # There is no other: what needs no native module still runs with the tree's.
    sys.path[:] = before
    return False


def _has_native(package: Path) -> bool:
    """Whether a package in this folder would find its native module: there, or by the hook of an editable install."""
    return any(
        finder.find_spec("pyddpdiag._native", [str(package)]) is not None
        for finder in sys.meta_path
        if hasattr(finder, "find_spec")
    )
