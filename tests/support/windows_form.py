"""A pytest plugin that shows Windows to our modules and tests, as far as Python can show it anywhere.

    python -m pytest -p support.windows_form tests/unit/ranks/test_ranks_rendezvous.py

The modules of this project, and the tests, get an `os`, `sys`, `signal`, `pathlib` and the like of their own: by name
and paths those of Windows, without what Windows lacks. Drive Z: is the root of this machine, as under Wine; no other
drive is there. Everybody else, pytest above all, keeps the real ones: it is whoever imports that decides.
"""

from __future__ import annotations

import builtins
import enum
import errno
import importlib
import io
import ntpath
import os
import re
import signal
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis  # noqa: F401
import numpy  # noqa: F401
import psutil  # noqa: F401
import pytest
import typer.main  # noqa: F401

from support import posix_names

OURS = ("pyddpdiag", "test_", "support.")
# Functions of `os` by how many of their first arguments are paths.
WITH_PATHS = {
    **dict.fromkeys(
        (
            *("stat", "lstat", "open", "listdir", "scandir", "mkdir", "makedirs", "rmdir"),
            *("unlink", "remove", "readlink"),
        ),
        1,
    ),
    **dict.fromkeys(("utime", "chdir", "access", "chmod", "truncate", "walk"), 1),
    **dict.fromkeys(("rename", "replace", "link", "symlink"), 2),
}
# Windows' own modules, of which there is nothing here.
GHOSTS = ("nt", "_winapi")
# What Windows refuses in a name, wherever it stands.
FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
# In the order in which one needs the other.
REMADE = ("genericpath", "ntpath", "fnmatch", "glob", "shutil", "tempfile", "pathlib")


class Stand(ModuleType):
    """Stands for a module: other values for some of its names, some missing, the rest as they are."""

    def __init__(self, real: ModuleType, **changed: object) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(changed)
        self.__dict__["_behind"] = real

    def __getattr__(self, name: str) -> Any:
        real = self.__dict__["_behind"]
        hidden = posix_names.NAMES.get(real.__name__)
        if hidden is not None and hidden.fullmatch(name):
            raise AttributeError(f"Windows has no {real.__name__}.{name}")
        return getattr(real, name)


def _behind_drive(path: Any) -> Any:
    """The file of this machine that a Windows path means."""
    if path is None or isinstance(path, int):
        return path
    text = os.fspath(path)
    plain = os.fsdecode(text)
    drive, rest = ntpath.splitdrive(plain)
    if drive.upper() not in ("", "Z:"):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), plain)
    if FORBIDDEN.search(rest):
        refused = OSError(
            errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", plain
        )
        refused.winerror = 123  # type: ignore[attr-defined]
        raise refused
    plain = rest.replace("\\", "/")
    return os.fsencode(plain) if isinstance(text, bytes) else plain


def _translated(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    def on_windows(*arguments: Any, **keywords: Any) -> Any:
        return function(*map(_behind_drive, arguments[:count]), *arguments[count:], **keywords)

    return on_windows


def _realpath(path: Any, *, strict: bool = False) -> Any:
    del strict
    return WINDOWS["ntpath"].abspath(path)


def _signals() -> Any:
    """The signals that Windows has, by the numbers that it has for them."""
    names = ("SIGINT", "SIGILL", "SIGFPE", "SIGSEGV", "SIGTERM")
    return enum.IntEnum("Signals", {**{name: getattr(signal, name) for name in names}, "SIGABRT": 22})


def _make() -> dict[str, ModuleType]:
    """What our modules get, by the name that they ask for."""
    functions = {name: _translated(getattr(os, name), count) for name, count in WITH_PATHS.items()}
    windows = Stand(
        os,
        name="nt",
        sep="\\",
        altsep="/",
        pathsep=";",
        linesep="\r\n",
        devnull="nul",
        O_BINARY=0,
        O_NOINHERIT=0,
        getcwd=lambda: "Z:" + str(Path.cwd()).replace("/", "\\"),
        **functions,
    )
    made: dict[str, ModuleType] = {
        "os": windows,
        "sys": Stand(sys, platform="win32"),
        "signal": Stand(signal, Signals=_signals()),
        "io": Stand(io, open=_translated(io.open, 1)),
    }
    with _swapped(made):
        for name in REMADE:
            # shutil wants them to be there; the others try for them, and have a way without.
            for ghost in GHOSTS:
                if name == "shutil":
                    sys.modules[ghost] = ModuleType(ghost)
                else:
                    sys.modules.pop(ghost, None)
            for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
                del sys.modules[loaded]
            made[name] = importlib.import_module(name)
            if name == "ntpath":
                windows.__dict__["path"] = made["os.path"] = sys.modules["os.path"] = made[name]
                # Without Windows beneath it, its own lacks an argument; there are no links on Z: to follow.
                made[name].__dict__["realpath"] = _realpath
    made["tempfile"].tempdir = "Z:" + made["tempfile"].gettempdir().replace("/", "\\")  # type: ignore[attr-defined]
    return made


@contextmanager
def _swapped(modules: dict[str, ModuleType]) -> Iterator[None]:
    before = dict(sys.modules)
    sys.modules.update(modules)
    try:
        yield
    finally:
        sys.modules.clear()
        sys.modules.update(before)


WINDOWS = _make()
_import = builtins.__import__


def _import_for(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    who = str((globals or {}).get("__name__", ""))
    if level == 0 and who.startswith(OURS):
        top = name.partition(".")[0]
        if top in posix_names.MODULES:
            raise ModuleNotFoundError(f"Windows has no module {top}", name=top)
        if top in WINDOWS:
            return WINDOWS[name] if fromlist and name in WINDOWS else WINDOWS[top]
    return _import(name, globals, locals, fromlist, level)


assert not [name for name in sys.modules if name.startswith("pyddpdiag.")], (
    "loaded before Windows was put in place"
)
builtins.__import__ = _import_for
# What reads a command line for us makes paths of it.
for _name, _module in list(sys.modules.items()):
    if _name.startswith("typer") and getattr(_module, "Path", None) is Path:
        _module.__dict__["Path"] = WINDOWS["pathlib"].Path


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> typing.Any:
    real: Path = tmp_path_factory.mktemp("windows")
    return WINDOWS["pathlib"].Path(f"Z:{real}")
