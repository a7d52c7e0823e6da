"""Checks an installed wheel from outside the tree: its files, its metadata and its native module.

Argument: the wheel's file. Runs in the environment that the wheel was installed into.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import zipfile
from pathlib import Path


def main(wheel: Path) -> list[str]:
    """What is wrong with the wheel, one sentence each."""
    problems = []
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in (
        r"pyddpdiag/_native\.[^/]*(so|pyd)",
        r"pyddpdiag/_native\.pyi",
        r"pyddpdiag/py\.typed",
        r"pyddpdiag-[^/]*\.dist-info/licenses/LICENSE",
    ):
        if sum(re.fullmatch(pattern, name) is not None for name in names) != 1:
            problems.append(f"the wheel should have one file like {pattern}")
    if strays := [name for name in names if not re.match(r"pyddpdiag(/|-[^/]*\.dist-info/)", name)]:
        problems.append(f"the wheel has files that don't belong there: {strays[:5]}")

    torch_minor = ".".join(importlib.metadata.version("torch").split(".")[:2])
    metadata = importlib.metadata.metadata("pyddpdiag")
    requires = metadata.get_all("Requires-Dist") or []
    if [r for r in requires if re.match(r"torch\b", r)] != [f"torch=={torch_minor}.*"]:
        problems.append(f"Requires-Dist should pin torch=={torch_minor}.* and has {requires}")
    if metadata["License-Expression"] != "MIT":
        problems.append(f"License-Expression is {metadata['License-Expression']}")

    package = importlib.import_module("pyddpdiag")
    folder = Path(package.__file__ or "").parent
    if Path(sys.prefix).resolve() not in folder.resolve().parents:
        problems.append(f"imported from {folder}, which is not in this environment")
    # As the package does it: torch brings the libraries that the module needs.
    importlib.import_module("torch")
    native = importlib.import_module("pyddpdiag._native")
    if Path(native.__file__ or "").parent != folder:
        problems.append(f"the native module comes from {native.__file__}")
    built_for = package.build_config()["torch"]
    if built_for != torch_minor:
        problems.append(f"build_config() says torch {built_for}, and torch {torch_minor} is installed")
    print(f"{wheel.name}: {len(names)} files, {', '.join(sorted(requires))}")
    return problems


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    for problem in found:
        print(f"check_wheel.py: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)
