"""Files that are replaced while somebody has them open."""

import ast
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.files_in_use import ACCESS_DENIED, SHARING_VIOLATION, in_use, in_use_error

import pyddpdiag
from pyddpdiag.doctor.mesh import place
from pyddpdiag.integrations.node_beat import NodeBeat
from pyddpdiag.model.node import note_name
from pyddpdiag.ranks.rendezvous import FileTarget
from pyddpdiag.record.owners_file import replace_file
from pyddpdiag.system import replaced_files, result_files
from pyddpdiag.system.regular_file import RegularFile
from pyddpdiag.trace import collect

PACKAGE = Path(pyddpdiag.__file__).parent


def written(folder: Path) -> tuple[Path, Path]:
    """A file with new content, and one with the old."""
    new, old = folder / "new", folder / "old"
    new.write_text("new")
    old.write_text("old")
    return new, old


@pytest.mark.parametrize("number", [SHARING_VIOLATION, ACCESS_DENIED])
def test_a_file_that_somebody_reads_is_replaced_when_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    new, old = written(tmp_path)
    failed = in_use(monkeypatch, 5)
    replaced_files.replace(new, old, 60.0)
    assert (len(failed), old.read_text(), new.exists()) == (5, "new", False)


def test_who_reads_for_ever_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = written(tmp_path)
    in_use(monkeypatch, 10**9)
    began = time.monotonic()
    with pytest.raises(PermissionError):
        replaced_files.replace(new, old, 0.1)
    assert time.monotonic() - began >= 0.1
    assert (old.read_text(), new.read_text()) == ("old", "new")


def test_what_is_not_allowed_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(error: OSError) -> Callable[[], None]:
        def act() -> None:
            asked.append(1)
            raise error

        return act

    wrong: Any = PermissionError(13, "Permission denied")
    other: Any = in_use_error("x", 1224)
    for error in (wrong, other, FileNotFoundError(2, "No such file")):
        asked.clear()
        with pytest.raises(OSError):
            replaced_files.patiently(refuse(error), 60.0)
        assert len(asked) == 1


def _copied(folder: Path) -> Path:
    (folder / "from").write_text("new")
    collect._copy(folder / "from", folder / "to")
    return folder / "to"


def _published(folder: Path) -> Path:
    target = FileTarget(str(folder / "meeting"))
    place.publish(target, 7, time.monotonic() + 60)
    return place._file(target)


def _noted(folder: Path) -> Path:
    beat = NodeBeat(folder)
    beat.end(7)
    path = folder / note_name(beat.node)
    assert json.loads(path.read_text())["exit_code"] == 7
    return path


def _whole(folder: Path) -> Path:
    result_files.write_whole(folder / "whole", "new", force=True, option="--output")
    return folder / "whole"


def _owners(folder: Path) -> Path:
    replace_file(folder / "owners", "new")
    return folder / "owners"


@pytest.mark.parametrize(
    "write", [_copied, _published, _noted, _whole, _owners], ids=lambda each: each.__name__
)
def test_writers_survive_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], Path]
) -> None:
    failed = in_use(monkeypatch, 3)
    path = write(tmp_path)
    assert path.exists() and failed == [path] * 3


def replacements(source: str) -> list[int]:
    """Lines that give a file another's name: `path.replace(other)`, `os.rename(...)`. A text's `replace` has two
    arguments."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            single = len(node.args) == 1 and not node.keywords
            of_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
            if (node.func.attr in ("replace", "rename") and (single or of_os)) or node.func.attr == "renames":
                found.append(node.lineno)
    return found


def test_one_place_replaces_files() -> None:
    found = [
        path.name for path in sorted(PACKAGE.rglob("*.py")) if replacements(path.read_text(encoding="utf-8"))
    ]
    assert found == ["replaced_files.py"]
    assert replacements("a.replace(b)\nos.replace(a, b)\np.rename(q)\ns.replace('a', 'b')\nreplace(a)") == [
        1,
        2,
        3,
    ]


class Kernel:
    """What `open_shared` calls of Windows."""

    def __init__(self, answer: int) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.closed: list[int | None] = []
        self._answer = answer

        def create(*arguments: Any) -> int:
            self.asked.append(arguments)
            return self._answer

        self.CreateFileW: Any = create
        self.CloseHandle: Any = lambda handle: self.closed.append(handle.value)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kernel]:
    """Lets this system answer as Windows does."""

    def become(handle: int, opened: Callable[[int, int], int]) -> Kernel:
        kernel = Kernel(handle)
        monkeypatch.setattr(ctypes, "WinDLL", lambda *_, **__: kernel, raising=False)
        monkeypatch.setattr(ctypes, "get_last_error", lambda: SHARING_VIOLATION, raising=False)
        monkeypatch.setattr(ctypes, "WinError", lambda code: in_use_error("", code), raising=False)
        monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(open_osfhandle=opened))
        return kernel

    return become


def test_readers_share_deletion_on_windows(tmp_path: Path, windows: Callable[..., Kernel]) -> None:
    path = tmp_path / "rank_0.json"
    path.write_text("content")
    descriptor = os.open(path, os.O_RDONLY)
    kernel = windows(77, lambda handle, _: descriptor if handle == 77 else -1)
    with RegularFile(path) as file:
        assert file.read(0, 100) == b"content"
    [(name, access, share, security, creation, attributes, template)] = kernel.asked
    assert (name, access, share, creation) == (str(path), 0x80000000, 7, 3)
    assert (security, attributes, template) == (None, 0x80, None)


def test_a_file_that_windows_does_not_open(tmp_path: Path, windows: Callable[..., Kernel]) -> None:
    path = tmp_path / "rank_0.json"
    path.write_text("content")
    windows(ctypes.c_void_p(-1).value or 0, lambda *_: 0)
    with pytest.raises(PermissionError) as caught:
        RegularFile(path)
    assert caught.value.winerror == SHARING_VIOLATION  # type: ignore[attr-defined,unused-ignore]

    def refuse(*_: int) -> int:
        raise OSError(24, "Too many open files")

    kernel = windows(77, refuse)
    with pytest.raises(OSError, match="Too many"):
        RegularFile(path)
    assert kernel.closed == [77]
