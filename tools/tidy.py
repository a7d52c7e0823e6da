"""Runs clang-tidy over our C++, one job per core, with the compile database of the CMake preset `tidy`.

Arguments: files, to check only these. Without them the native module is checked in its two units: reading torch's
headers is most of the work of each file. Without torch, `--core` leaves the native module out.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"
# GCC options that clang would complain about, and headers that are not ours to check.
EXTRA = [
    "--extra-arg=-Wno-unknown-warning-option",
    f"--header-filter=^{ROOT.as_posix()}/(csrc|tests/native)/",
]
# In a unit, the names of one file shadow those of another.
UNIT = ["--extra-arg=-Wno-shadow"]


def configure(python: str, core: bool, units: bool) -> None:
    """Writes build/tidy/compile_commands.json."""
    command = ["cmake", "--preset", "tidy", "-G", "Ninja", f"-DPython_EXECUTABLE={python}"]
    command += [
        f"-DPYDDPDIAG_MODULE={'OFF' if core else 'ON'}",
        f"-DPYDDPDIAG_UNITY={'ON' if units else 'OFF'}",
    ]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"tidy.py: cannot configure:\n{done.stdout}")


def is_unit(file: Path) -> bool:
    """Whether it is no file of ours, but includes some."""
    return BUILD in file.parents


def check(file: Path) -> tuple[Path, int, str]:
    """Runs clang-tidy on one file: the file, the exit code, and what it had to say."""
    unit = UNIT if is_unit(file) else []
    command = ["clang-tidy", "-p", str(BUILD), "--quiet", "--warnings-as-errors=*", *EXTRA, *unit, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # stderr counts suppressed warnings; it matters only when clang-tidy itself failed.
    return file, done.returncode, done.stdout if done.stdout or done.returncode == 0 else done.stderr


def main() -> int:
    """Checks every file of the compile database, or those given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    parser.add_argument("--core", action="store_true", help="without the native module")
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    configure(arguments.python, arguments.core, units=not arguments.files)
    database = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    # The units first: they take longest.
    files = sorted({Path(entry["file"]) for entry in database}, key=lambda file: (not is_unit(file), file))
    if arguments.files:
        wanted = {file.resolve() for file in arguments.files}
        files = [file for file in files if file in wanted]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, text in pool.map(check, files):
            print(f"{'ok  ' if code == 0 else 'FAIL'} {file.relative_to(ROOT)}", flush=True)
            if code != 0:
                failed += 1
                print(text, flush=True)
    print(f"clang-tidy: {len(files)} files, {failed} failed")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
