"""Lines to paste into a shell: PowerShell, cmd or a POSIX shell."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import psutil

from pyddpdiag import system

HANG: Final = "pyddpdiag hang DIR"
READ_LOGS: Final = "pyddpdiag doctor --log"
"""Commands for a recorded run, and for the logs of a job: who shows them may know the folder and the files."""

# What needs no quotes. In PowerShell a comma makes two arguments.
_BARE: Final = re.compile(r"[\w.:/\\=+-]+", re.ASCII)


class Shell(Enum):
    """The shells that lines are written for."""

    POSIX = "posix"
    POWERSHELL = "powershell"
    CMD = "cmd"

    @property
    def windows(self) -> bool:
        """Whether it belongs to Windows."""
        return self is not Shell.POSIX


@dataclass(frozen=True)
class SetVariable:
    """Sets an environment variable."""

    name: str
    value: str


@dataclass(frozen=True)
class UnsetVariable:
    """Removes an environment variable."""

    name: str


@dataclass(frozen=True)
class RemoveFile:
    """Deletes a file."""

    path: str


@dataclass(frozen=True)
class EndProcess:
    """Ends a process."""

    pid: int


@dataclass(frozen=True)
class Run:
    """A command that is the same in every shell."""

    command: str


@dataclass(frozen=True)
class Command:
    """A program and its arguments, to be quoted."""

    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """A line for the script, in Python: the same on every system."""

    line: str


@dataclass(frozen=True)
class ByShell:
    """A command that has nothing to do with its counterpart on the other system; "" where there is none."""

    posix: str = ""
    windows: str = ""


Line = SetVariable | UnsetVariable | RemoveFile | EndProcess | Run | Command | Code | ByShell


def write(line: Line, shell: Shell) -> str:
    """The line in the words of a shell; "" if it has none for it."""
    match line:
        case SetVariable(name, value):
            texts = (
                f"export {name}={shlex.quote(value)}",
                f"$env:{name} = {_powershell(value)}",
                f'set "{name}={value}"',
            )
        case UnsetVariable(name):
            texts = f"unset {name}", f"Remove-Item Env:{name}", f'set "{name}="'
        case RemoveFile(path):
            texts = (
                f"rm -- {shlex.quote(path)}",
                f"Remove-Item -LiteralPath {_powershell(path)}",
                f'del "{path}"',
            )
        case EndProcess(pid):
            texts = f"kill {pid}", f"Stop-Process -Id {pid}", f"taskkill /PID {pid} /F"
        case Command(words):
            texts = shlex.join(words), _joined(words, _powershell), _joined(words, _cmd)
        case ByShell(posix, windows):
            texts = posix, windows, windows
        case Run(text) | Code(text):
            texts = text, text, text
    return dict(zip(Shell, texts, strict=True))[shell]


def _joined(words: Iterable[str], quote: Callable[[str], str]) -> str:
    return " ".join(each if _BARE.fullmatch(each) else quote(each) for each in words)


def iptables(address: str) -> str:
    """The tool for rules about this address."""
    return "ip6tables" if ":" in address else "iptables"


def shell_on(system_name: str) -> Shell:
    """The shell to write lines for where another machine is meant: its system's, by a name such as Windows-10-SP0."""
    return Shell.POWERSHELL if system_name.startswith("Windows") else Shell.POSIX


def this_shell() -> Shell:
    """The shell that started this process, as far as the names of its parents reveal it."""
    if not system.WINDOWS:
        return Shell.POSIX
    try:
        names = [parent.name().lower() for parent in psutil.Process().parents()]
    except (OSError, psutil.Error):
        names = []
    for name in names:
        if name in ("cmd.exe", "powershell.exe", "pwsh.exe"):
            return Shell.CMD if name == "cmd.exe" else Shell.POWERSHELL
        if name in ("bash.exe", "sh.exe", "zsh.exe"):
            return Shell.POSIX
    return Shell.POWERSHELL


def _powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _cmd(text: str) -> str:
    # It adds quotes for blanks only, and escapes quotes in any case.
    quoted = subprocess.list2cmdline([text])
    return quoted if quoted.startswith('"') else f'"{quoted}"'
