"""Checks an installed wheel from outside the tree: files, metadata, native module, time to import, refusal.

Argument: the wheel's file. Runs in the environment that the wheel was installed into.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LARGEST_BYTES = 2_500_000
# Of `import pyddpdiag` after `import torch`.
LONGEST_IMPORT_MS = 150

IMPORT_TIMES = """
import time, torch
times = [time.perf_counter()]
import pyddpdiag
times.append(time.perf_counter())
pyddpdiag.Recorder
times.append(time.perf_counter())
print(*(1000 * (b - a) for a, b in zip(times, times[1:])))
"""


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own, in this environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


def import_times() -> tuple[float, float]:
    """Milliseconds that `import pyddpdiag`, and then the first use of the native module, add to torch's."""
    outputs = [run(IMPORT_TIMES) for _ in range(6)]
    if problem := next((done.stderr for done in outputs if done.returncode != 0), None):
        raise SystemExit(f"check_wheel.py: cannot import:\n{problem}")
    # The first one reads from the disk and writes bytecode.
    alone, used = zip(*(map(float, done.stdout.split()) for done in outputs[1:]), strict=True)
    return statistics.median(alone), statistics.median(used)


def accepts_another_torch(built_for: str) -> list[str]:
    """What is wrong with the refusal of a torch of another minor version, at import and at first use."""
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        fake = Path(folder, "torch")
        fake.mkdir()
        (fake / "__init__.py").write_text('__version__ = "2.99.0"\n', encoding="utf-8")
        for code in ("import torch, pyddpdiag", "import pyddpdiag; pyddpdiag.Recorder"):
            done = run(code, PYTHONPATH=folder)
            named = f"torch {built_for}" in done.stderr and "torch 2.99.0" in done.stderr
            if done.returncode != 1 or "NativeModuleError" not in done.stderr or not named:
                problems.append(f"'{code}' under torch 2.99 should be refused by name: {done.stderr[-500:]}")
    return problems


def main(wheel: Path) -> list[str]:
    """What is wrong with the wheel, one sentence each."""
    problems = []
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in (
        r"pyddpdiag/_native\.[^/]*(so|pyd)",
        r"pyddpdiag/_native\.pyi",
        r"pyddpdiag/py\.typed",
        r"pyddpdiag/docs/cures\.md",
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
    if not metadata["Version"].endswith(f"+torch{torch_minor}"):
        problems.append(f"the version is {metadata['Version']}, without the label +torch{torch_minor}")
    if wheel.stat().st_size > LARGEST_BYTES:
        problems.append(f"the wheel has {wheel.stat().st_size} bytes, more than {LARGEST_BYTES}")
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
    problems += accepts_another_torch(built_for)
    alone, used = import_times()
    if alone > LONGEST_IMPORT_MS:
        problems.append(f"'import pyddpdiag' takes {alone:.0f} ms, more than {LONGEST_IMPORT_MS}")
    print(f"{wheel.name}: {wheel.stat().st_size / 1000:.0f} kB, {len(names)} files")
    print(f"requires {', '.join(sorted(requires))}")
    print(f"after torch: import {alone:.0f} ms, first use of the native module {used:.0f} ms more")
    return problems


if __name__ == "__main__":
    found = main(Path(sys.argv[1]))
    for problem in found:
        print(f"check_wheel.py: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)
