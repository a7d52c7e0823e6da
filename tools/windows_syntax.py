"""Compiles the native module's sources with mingw-w64 against the headers of the real Windows torch.

Where there is a Clang with libc++ (tools/libcxx.py), it reads them as well: its library is stricter, as MSVC's is.
Arguments: torch versions. The objects are kept for tools/windows_exports.py; unchanged sources are not
compiled again. Exit code 77: this machine cannot check.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import libcxx
from windows_torch import CANNOT, ROOT, SHIMS, CannotCheckError, WindowsTorch, fetch, program, python_headers

COMPILER = "x86_64-w64-mingw32-g++-posix"
# Optimised a little: what inlining removes needs no export either.
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def definitions(version: str) -> list[str]:
    """The macros that the real build defines, from its own files, as it defines them on Windows."""
    found: list[str] = []
    for file, target in (("module.cmake", "_native"), ("warnings.cmake", r"\$\{target\}")):
        text = (ROOT / "cmake" / file).read_text(encoding="utf-8")
        match = re.search(rf"target_compile_definitions\(\s*{target}\s+PRIVATE\s+([^)]*)\)", text)
        if match is None:
            raise SystemExit(f"windows_syntax.py: no target_compile_definitions of {target} in cmake/{file}")
        found += re.findall(r'[^\s"]+(?:"[^"]*")?', match[1])
    values = {"torch_version": version, "torch_minor": version.rpartition(".")[0]}
    return ["-D" + re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], m[1]), d) for d in found]


def fingerprint(command: list[str], compiler: str) -> str:
    """Changes with anything that the objects are made from."""
    digest = hashlib.sha256(repr(command).encode())
    digest.update(subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout)
    for folder in (ROOT / "csrc", SHIMS):
        for file in sorted(folder.rglob("*.[ch]*")):
            digest.update(f"\0{file.relative_to(ROOT).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def compile_all(torch: WindowsTorch, cache: Path) -> list[str]:
    """Compiles every source; what the compiler said about each that failed."""
    compiler = program(COMPILER, "g++-mingw-w64-x86-64-posix")
    includes = [
        argument
        for folder in (python_headers(cache), *torch.includes)
        for argument in ("-isystem", str(folder))
    ]
    command = [compiler, *FLAGS, *definitions(torch.version), "-include", str(SHIMS / "shims.hpp"), *includes]
    command += ["-I", str(ROOT / "csrc"), "-c"]
    strict = strict_command(torch)
    stamp = torch.objects / "made-with.txt"
    wanted = fingerprint([*command, *strict], compiler)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        print(f"torch {torch.version} for Windows: nothing changed since it compiled")
        return []
    shutil.rmtree(torch.objects, ignore_errors=True)
    torch.objects.mkdir()
    sources = native_sources()
    started = time.monotonic()
    # All in one is four times quicker, since torch's headers are nearly all the work. One by one when that
    # fails: the message names a file of ours, and two files that use one local name are no error.
    together = torch.objects / "together.cpp"
    together.write_text("".join(f'#include "{file.as_posix()}"\n' for file in sources), encoding="utf-8")
    failed = []
    if build(command, together) is not None:
        together.with_suffix(".o").unlink(missing_ok=True)
        for source in sources:
            if (message := build(command, source, torch.objects / f"{source.stem}.o")) is not None:
                failed.append(f"{source.relative_to(ROOT)}:\n{message}")
    elif strict and (message := build(strict, together, Path(os.devnull))) is not None:
        failed.append(f"with libc++:\n{message}")
    if not failed:
        stamp.write_text(wanted, encoding="utf-8")
    print(
        f"torch {torch.version} for Windows: {len(sources) - len(failed)} of {len(sources)} files compile"
        f"{' with libstdc++ and libc++' if strict else ''} ({time.monotonic() - started:.0f} s)",
        flush=True,
    )
    return failed


def strict_command(torch: WindowsTorch) -> list[str]:
    """How Clang reads a source with libc++ for this system, nothing more; empty where there is none."""
    try:
        command = [libcxx.compiler(), "-std=c++20", *libcxx.flags(), "-fsyntax-only"]
    except CannotCheckError:
        return []
    includes = [Path(sysconfig.get_paths()["include"]), *torch.includes]
    command += [argument for folder in includes for argument in ("-isystem", str(folder))]
    return [*command, *definitions(torch.version), "-I", str(ROOT / "csrc")]


def native_sources() -> list[Path]:
    """Every file of the native module, in whatever room it is."""
    return sorted(p for room in ("torch", "python") for p in (ROOT / "csrc" / room).rglob("*.cpp"))


def build(command: list[str], source: Path, output: Path | None = None) -> str | None:
    """Compiles one file: the compiler's words if it failed."""
    output = output or source.with_suffix(".o")
    done = subprocess.run(
        [*command, str(source), "-o", str(output)], capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stderr


def main() -> int:
    """Compiles against each torch of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".nox" / "windows-torch")
    parser.add_argument("versions", nargs="+", help="exact torch versions, such as 2.13.0")
    arguments = parser.parse_args()
    failed = []
    try:
        for version in arguments.versions:
            failed += compile_all(fetch(version, arguments.cache), arguments.cache)
    except CannotCheckError as error:
        print(f"windows_syntax.py: {error}", file=sys.stderr)
        return CANNOT
    for message in failed:
        print(message, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
