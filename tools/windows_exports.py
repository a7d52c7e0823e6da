"""Holds the torch symbols that the native module needs against what torch's Windows DLLs export.

Arguments: torch versions that tools/windows_syntax.py compiled for. The objects come from mingw-w64 and the
DLLs from Microsoft's compiler: both manglings are undone and the signatures compared. Exit code 77: this
machine cannot check.
"""

from __future__ import annotations

import argparse
import mmap
import re
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from windows_torch import CANNOT, ROOT, CannotCheckError, fetch, program

OURS = re.compile(r"(vtable for |typeinfo for |VTT for )?(c10|c10d|at|torch|caffe2|pybind11)::")
# A module that uses torch needs far more; fewer means that the objects are not what they should be.
FEWEST = 20
# Symbols that are needed on Windows under no exported name, with the reason why they are no problem. An
# entry that is not used fails, too.
ALLOWED: dict[str, str] = {}


def exports(dll: Path) -> Iterator[str]:
    """The names in a DLL's export table."""
    with dll.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def u16(at: int) -> int:
            return int(struct.unpack_from("<H", data, at)[0])

        def u32(at: int) -> int:
            return int(struct.unpack_from("<I", data, at)[0])

        header = u32(0x3C)
        if data[:2] != b"MZ" or data[header : header + 4] != b"PE\0\0" or u16(header + 24) != 0x20B:
            raise SystemExit(f"windows_exports.py: {dll} is not a 64-bit DLL")
        first_section = header + 24 + u16(header + 20)
        # Per section: where it lies in memory, how long it is, where it lies in the file.
        sections = [
            (u32(at + 12), max(u32(at + 8), u32(at + 16)), u32(at + 20))
            for at in range(first_section, first_section + 40 * u16(header + 6), 40)
        ]

        def offset(address: int) -> int:
            for start, size, in_file in sections:
                if start <= address < start + size:
                    return address - start + in_file
            raise SystemExit(f"windows_exports.py: {dll} has an address outside its sections")

        directory = u32(header + 24 + 112)
        if directory == 0:
            return
        count, names = u32(offset(directory) + 24), offset(u32(offset(directory) + 32))
        for index in range(count):
            start = offset(u32(names + 4 * index))
            yield data[start : data.find(b"\0", start)].decode("ascii")


def parts(text: str, separator: str) -> list[str]:
    """`text` split at those separators that no bracket encloses."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        # An arrow or a shift is no bracket.
        if letter in "<(" and not text.startswith(("operator<", "perator<"), max(0, at - 8)):
            depth += 1
        elif letter in ">)" and text[max(0, at - 1) : at] != "-" and depth > 0:
            depth -= 1
        elif depth == 0 and text.startswith(separator, at):
            found.append(text[start:at])
            start = at + len(separator)
    return [*found, text[start:]]


def signature(demangled: str) -> str:
    """One spelling for what both demanglers say: qualified name and parameters, no return type, no spaces.

    Takes `public: static bool __cdecl c10::A::f(class std::vector<int>, unsigned __int64)` as well as
    `c10::A::f(std::vector<int>, unsigned long long)`.
    """
    text = demangled
    if match := re.fullmatch(r"const (.+)::`vftable'(?:\{.*\})?", text):
        return f"vtable for {signature(match[1])}"
    if match := re.fullmatch(r"vtable for (.+)", text):
        return f"vtable for {signature(match[1])}"
    if " __cdecl " in text:
        text = parts(text, " __cdecl ")[-1]
    elif "(" not in text:
        # Data: the type stands before the name.
        text = parts(text, " ")[-1]
    for pattern, plain in (
        (r"\b(class|struct|enum|union) ", ""),
        (r"\b__cdecl\b|\b__ptr64\b|\[abi:cxx11\]", ""),
        (r"\bstd::(__cxx11|__exception_ptr)::", "std::"),
        # The type of a number in a template's argument.
        (r"\b(\d+)ll\b", r"\1"),
        (r"\b__int64\b", "long long"),
        (r"\(void\)", "()"),
        (r"\s+(?=\W)|(?<=\W)\s+", ""),
    ):
        text = re.sub(pattern, plain, text)
    return text


def demangle(command: list[str], names: Iterable[str]) -> list[str]:
    """The demangler's words, one line for each name."""
    # What cannot be demangled is echoed, with a complaint and an exit code that are of no interest.
    done = subprocess.run(command, input="\n".join(names) + "\n", capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def exported(dlls: Iterable[Path]) -> dict[str, str]:
    """Signature to DLL, for all C++ names of the DLLs."""
    undname = program("llvm-undname", "llvm")
    found = {}
    for dll in dlls:
        names = [name for name in exports(dll) if name.startswith("?")]
        # The answer to each name: the name itself, what it means, an empty line.
        lines = [line for line in demangle([undname], names) if line and not line.startswith("?")]
        found.update({signature(line): dll.name for line in lines})
    return found


def needed(objects: Path) -> list[str]:
    """What the objects use of torch and don't define, demangled."""
    nm = program("x86_64-w64-mingw32-nm", "binutils-mingw-w64-x86-64")
    filt = program("x86_64-w64-mingw32-c++filt", "binutils-mingw-w64-x86-64")
    undefined: set[str] = set()
    defined: set[str] = set()
    for file in sorted(objects.glob("*.o")):
        done = subprocess.run([nm, str(file)], capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            *_, kind, name = line.split()
            (undefined if kind in "Uvw" else defined).add(name.removeprefix("__imp_"))
    return sorted(line for line in demangle([filt], sorted(undefined - defined)) if OURS.match(line))


def audit(symbols: Iterable[str], available: dict[str, str], allowed: dict[str, str]) -> dict[str, str]:
    """What became of each symbol: the DLL it is in, `allowed: ...`, or `MISSING` and what comes near it."""
    namesakes = defaultdict(list)
    for found in available:
        namesakes[found.partition("(")[0]].append(found)
    result = {}
    for symbol in symbols:
        wanted = signature(symbol)
        near = namesakes.get(wanted.partition("(")[0], [])
        if wanted in available:
            result[symbol] = available[wanted]
        elif symbol.startswith("typeinfo for "):
            # Microsoft's compiler writes type information into every module that asks for it.
            result[symbol] = "header-only"
        elif symbol in allowed:
            result[symbol] = f"allowed: {allowed[symbol]}"
        else:
            result[symbol] = f"MISSING; exported by that name: {near or 'nothing'}"
    return result


def main() -> int:
    """Audits each torch of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".nox" / "windows-torch")
    parser.add_argument("--verbose", action="store_true", help="say where each symbol was found")
    parser.add_argument("versions", nargs="+", help="exact torch versions, such as 2.13.0")
    arguments = parser.parse_args()
    failed = False
    used: set[str] = set()
    try:
        for version in arguments.versions:
            torch = fetch(version, arguments.cache)
            result = audit(needed(torch.objects), exported(torch.dlls), ALLOWED)
            missing = {symbol: what for symbol, what in result.items() if what.startswith("MISSING")}
            used |= {symbol for symbol, what in result.items() if what.startswith("allowed")}
            print(f"torch {version} for Windows: {len(result)} symbols needed, {len(missing)} missing")
            for symbol, what in (result if arguments.verbose else missing).items():
                print(f"  {symbol}: {what}")
            if len(result) < FEWEST:
                print(f"  fewer than {FEWEST} cannot be: run tools/windows_syntax.py {version} first")
            failed |= bool(missing) or len(result) < FEWEST
    except CannotCheckError as error:
        print(f"windows_exports.py: {error}", file=sys.stderr)
        return CANNOT
    for symbol in sorted(set(ALLOWED) - used):
        print(f"windows_exports.py: allowed and not needed: {symbol}")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
