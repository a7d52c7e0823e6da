"""What Windows does otherwise and Python can show anywhere: its paths and URLs, its names, its missing modules.

Needs neither torch nor the native module; `python3 dev.py windows` runs it with the other checks.
"""

from __future__ import annotations

import ast
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import python, ran
from support.ranks import receive

from pyddpdiag.ranks.rendezvous import FileTarget, Place, file_path, join_url
from pyddpdiag.ranks.stale import fresh_file
from pyddpdiag.train.start import default_folder

ROOT = Path(__file__).resolve().parents[3]
# What Windows refuses in a name; a point or a blank at the end it takes away silently.
FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f]|[. ]$')
NAME = st.text(
    st.characters(exclude_characters='<>:"/\\|?*', exclude_categories=("Cc", "Cs")), min_size=1, max_size=20
).filter(lambda name: name.strip(". ") == name)

FEW = settings(max_examples=40, deadline=None)

# Everything from elsewhere first: the standard library has its own branches. Then what Windows lacks goes away.
PRETEND = """
import importlib, os, pkgutil, signal, sys
import hashlib, json, multiprocessing.connection, shutil, socket, subprocess, tempfile, urllib.parse
import numpy, psutil, rich.console, rich.progress, rich.table, typer, typer.testing
sys.modules["torch"] = None
sys.path.insert(0, "tests")
from support import posix_names
for name in posix_names.MODULES:
    sys.modules[name] = None
for module in (os, signal):
    for name in filter(posix_names.NAMES[module.__name__].fullmatch, dir(module)):
        delattr(module, name)
sys.platform = "win32"
import pyddpdiag
imported = 0
for found in pkgutil.walk_packages(pyddpdiag.__path__, "pyddpdiag."):
    if found.name in ("pyddpdiag.__main__", "pyddpdiag._native"):
        continue
    try:
        importlib.import_module(found.name)
        imported += 1
    except ImportError as error:
        # What stands on torch or the native module is left to test_style.py, which reads it.
        if not any(word in str(error) for word in ("torch", "native module", "'_native'")):
            raise
from pyddpdiag import system
print(imported, system.STORE_HAS_LIBUV, system.REUSE_ADDRESS_IS_SAFE)
"""


def test_everything_imports_where_windows_names_are_all_there_is() -> None:
    done = python("-c", PRETEND, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    imported, *facts = done.stdout.split()
    assert int(imported) > 30
    assert facts == ["False", "False"]


def test_that_check_finds_what_windows_lacks() -> None:
    broken = PRETEND.replace("import pyddpdiag\nimported", "signal.SIGKILL\nimport pyddpdiag\nimported")
    done = python("-c", broken, cwd=ROOT)
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr


def neutral_defaults(source: str) -> list[str]:
    """Default arguments that are the class `Path` itself, which is of no system: only `Path()` is."""
    return [
        ast.unparse(node.args)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for default in [*node.args.defaults, *node.args.kw_defaults]
        if default is not None
        and ast.unparse(default) in {"Path", "PurePath", "pathlib.Path", "pathlib.PurePath"}
    ]


def test_no_default_is_a_path_of_no_system() -> None:
    sources = [p for folder in ("pyddpdiag", "tools", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    assert [p.name for p in sources if neutral_defaults(p.read_text(encoding="utf-8"))] == []
    assert neutral_defaults("def file_path(url, flavour: type[PurePath] = Path): ...") != []
    assert neutral_defaults("def f(parent: Path = Path('runs'), *, kind=type(Path())): ...") == []


@FEW
@given(st.sampled_from("CDz"), st.lists(NAME, min_size=1, max_size=4))
def test_a_drive_path_survives_its_url(drive: str, names: list[str]) -> None:
    path = PureWindowsPath(f"{drive}:\\", *names)
    assert file_path(path.as_uri(), PureWindowsPath) == path


@FEW
@given(st.lists(NAME, min_size=3, max_size=4))
def test_a_network_path_survives_its_url(names: list[str]) -> None:
    path = PureWindowsPath("\\\\server\\" + "\\".join(names))
    assert file_path(path.as_uri(), PureWindowsPath) == path


@FEW
@given(st.lists(NAME, min_size=1, max_size=4))
def test_a_posix_path_survives_its_url(names: list[str]) -> None:
    path = PurePosixPath("/", *names)
    assert file_path(path.as_uri(), PurePosixPath) == path


def test_the_article_url_names_its_place() -> None:
    """`--dist-url file:///D:/pg --world-size 2 --rank 1`, as a user of Windows writes it."""
    assert file_path("file:///D:/pg", PureWindowsPath) == PureWindowsPath("D:/pg")
    url = (Path(tempfile.gettempdir()).resolve() / "pg").as_uri()
    expected = FileTarget(str(Path(tempfile.gettempdir()).resolve() / "pg"))
    assert join_url(url, 2, 1) == Place(1, 2, 2, expected)


def valid_on_windows(name: str) -> bool:
    """Whether Windows takes this as the name of a file or folder."""
    reserved = re.fullmatch(r"(CON|PRN|AUX|NUL|COM\d|LPT\d)(\..*)?", name, re.IGNORECASE)
    return not FORBIDDEN.search(name) and reserved is None


def test_the_check_of_names_knows_bad_ones() -> None:
    assert not any(map(valid_on_windows, ["12:30", "a?", "con", "nul.txt", "point.", "blank ", "a\\b"]))
    assert valid_on_windows("rank_0.ddptrace")


def test_names_that_are_made_up_here_are_names_on_windows() -> None:
    with fresh_file() as meeting:
        names = [default_folder().name, meeting.name, meeting.parent.name]
    assert [name for name in names if not valid_on_windows(name)] == []


@pytest.mark.skipif(sys.platform != "win32", reason="others take such names, and have the signals")
def test_windows_refuses_a_name_and_lacks_signals(tmp_path: Path) -> None:
    """So a test that cannot pass there is found by support/windows_form.py."""
    with pytest.raises(OSError, match="<img src=x>"):
        (tmp_path / "<img src=x>").mkdir()
    assert not (tmp_path / "<img src=x>").exists()
    assert 9 not in [int(one) for one in signal.Signals] and not hasattr(signal, "SIGKILL")


@pytest.mark.parametrize("way", ["poll", "recv"])
def test_a_dead_rank_of_a_test_has_ended_whatever_its_pipe_says(way: str) -> None:
    """Windows: PeekNamedPipe finds a pipe broken that its other end has left."""
    broken = BrokenPipeError(109, "The pipe has been ended")
    with pytest.raises(EOFError):
        receive(MagicMock(**{f"{way}.side_effect": broken}), 1)


def tracked() -> list[PurePath]:
    if shutil.which("git") is None:
        pytest.skip("no git here")
    done = ran("git", "ls-files", cwd=ROOT)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [PurePosixPath(line) for line in done.stdout.splitlines()]


def test_the_tree_can_be_checked_out_on_windows() -> None:
    paths = tracked()
    assert [str(p) for p in paths if not all(map(valid_on_windows, p.parts))] == []
    folded = [str(p).casefold() for p in paths]
    assert len(folded) == len(set(folded)), "two files differ only in case"


def test_nothing_built_is_kept() -> None:
    """A wheel that was downloaded beside the sources would go into every clone and every source archive."""
    paths = [path for path in tracked() if ROOT.joinpath(path).is_file()]
    built = {".whl", ".so", ".pyd", ".dll", ".o", ".a", ".zip", ".gz", ".exe"}
    assert len(paths) > 100
    assert [str(p) for p in paths if p.suffix in built or ROOT.joinpath(p).stat().st_size > 2**20] == []


def test_processes_are_spawned_and_text_files_have_their_encoding_named() -> None:
    """Windows cannot fork, and its own encoding is not UTF-8."""
    problems = []
    for path in sorted((ROOT / "pyddpdiag").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            call, keywords = ast.unparse(node.func), {k.arg for k in node.keywords}
            where = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
            if call.endswith("get_context") and [ast.unparse(a) for a in node.args] != ["'spawn'"]:
                problems.append(f"{where}: {ast.unparse(node)}")
            if call in {"multiprocessing.Process", "multiprocessing.Pool"}:
                problems.append(f"{where}: {call} takes the system's way to start")
            if call.endswith((".read_text", ".write_text")) and "encoding" not in keywords:
                problems.append(f"{where}: {call} without an encoding")
            plain = call in {"open", "os.fdopen"} and "encoding" not in keywords
            if plain and "b" not in "".join(ast.unparse(a) for a in node.args[1:2]):
                problems.append(f"{where}: {call} without an encoding")
    assert problems == []
