"""Builds and runs the core's tests with Clang and its libc++, in which iterators of arrays are classes.

They are in MSVC's library, too; in libstdc++ they are pointers, so what takes them for pointers compiles there and not
on Windows. CMake's preset `libcxx` has the options; arguments are not needed. Exit code 77: this machine cannot check.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from windows_torch import CANNOT, ROOT, CannotCheckError

# atomic_ref and the iterators came with libc++ 19; it is linked, too.
PROBE = """
#include <array>
#include <atomic>
#include <type_traits>
static_assert(!std::is_pointer_v<std::array<char, 1>::iterator>);
static_assert(std::atomic_ref<long>::is_always_lock_free);
int main() {}
"""


def flags() -> list[str]:
    """The preset's options for the compiler."""
    presets = json.loads((ROOT / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]
    [found] = [preset for preset in presets if preset["name"] == "libcxx"]
    return str(found["cacheVariables"]["CMAKE_CXX_FLAGS"]).split()


def candidates(path: str) -> list[str]:
    """Clang under its own name, then every clang++-N on the search path, the newest first."""
    numbered = {
        int(match[1])
        for folder in path.split(os.pathsep)
        if Path(folder).is_dir()
        for file in Path(folder).iterdir()
        if (match := re.fullmatch(r"clang\+\+-(\d+)", file.name))
    }
    return ["clang++", *(f"clang++-{number}" for number in sorted(numbered, reverse=True))]


def compiler() -> str:
    """The first that compiles and links the probe.

    Raises:
        CannotCheckError: none does.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(PROBE, encoding="utf-8")
        for name in candidates(os.environ.get("PATH", "")):
            if (found := shutil.which(name)) is None:
                continue
            command = [found, "-std=c++20", *flags(), str(source), "-o", str(Path(folder, "probe"))]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return found
    raise CannotCheckError(
        "there is no Clang with libc++ 19 or newer here; "
        "on Debian and Ubuntu: apt-get install clang-19 libc++-19-dev libc++abi-19-dev"
    )


def main() -> int:
    """Configures, builds, tests."""
    try:
        found = compiler()
    except CannotCheckError as error:
        print(f"libcxx.py: the core's tests with libc++ are left out: {error}", file=sys.stderr)
        return CANNOT
    steps = (
        ["cmake", "--preset", "libcxx", "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={found}"],
        ["cmake", "--build", "--preset", "libcxx"],
        ["ctest", "--preset", "libcxx", "--output-junit", str(ROOT / "build" / "libcxx" / "tests.xml")],
    )
    for step in steps:
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"libcxx.py: {' '.join(step)}\n{done.stdout}{done.stderr}", file=sys.stderr)
            return 1
    print(f"the core's tests pass with {found} and libc++, whose iterators of arrays are classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
