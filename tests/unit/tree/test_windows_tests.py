"""Tests that no Windows can pass: names that it forbids, signals that it lacks, programs that may not be there.

Found in the text of the tests, since a run shows only what it comes to. What is skipped there may do as it likes.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.posix_names import NAMES

TESTS = Path(__file__).resolve().parents[2]
# Those of faults, bed and attack need Linux as a whole, those of device a GPU.
FILES = sorted(path for folder in ("unit", "integration") for path in (TESTS / folder).rglob("*.py"))
FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.check_output", "subprocess.check_call"}


def unfit(source: str) -> list[str]:
    """What in the tests of a file fails on Windows for the name of a file, a signal or a program."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    marks = {node.targets[0].id for node in tree.body if is_mark(node)}  # type: ignore[attr-defined]
    if "pytestmark" in marks:
        return []
    return sorted(
        {
            found
            for name, function in functions.items()
            if name.startswith("test_") and not is_skipped(function, marks)
            for part in reached(function, functions)
            for found in unfit_parts(part, source)
        }
    )


def is_mark(node: ast.stmt) -> bool:
    """Whether a statement gives a name to a mark that skips tests somewhere."""
    return (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and "skip" in ast.unparse(node)
    )


def is_skipped(function: ast.FunctionDef, marks: set[str]) -> bool:
    """Whether a test is left out somewhere; a reason is taken for one."""
    words = " ".join(map(ast.unparse, function.decorator_list))
    return "skipif" in words or not marks.isdisjoint(re.findall(r"\w+", words))


def reached(function: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """The function, and those of its file that it or they name."""
    found = [function]
    for one in found:
        names = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)} | {
            a.arg for a in one.args.args
        }
        found += [other for name, other in functions.items() if name in names and other not in found]
    return found


def unfit_parts(function: ast.FunctionDef, source: str) -> Iterator[str]:
    """What in one function fails there."""
    if re.search(r"\b(LINUX|WINDOWS|hasattr\((os|signal))\b", ast.unparse(function)):
        return  # it asks before
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            # Only paths are divided by texts.
            yield from (f"the name {text!r}" for text in texts(node.right) if FORBIDDEN.search(text))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "signal":
            if NAMES["signal"].fullmatch(node.attr):
                yield f"signal.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in STARTS and node.args:
            command = node.args[0].elts[:1] if isinstance(node.args[0], (ast.List, ast.Tuple)) else []
            programs = [one.value for one in command if isinstance(one, ast.Constant)]
            yield from (f"starts {one}" for one in programs if f'which("{one}")' not in source)


def texts(node: ast.expr) -> list[str]:
    """The constant parts of a text."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return [one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_windows_can_pass() -> None:
    assert {path: found for path in FILES if (found := unfit(path.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('write(tmp_path / "<img src=x>")', ["the name '<img src=x>'"]),
        ('(tmp_path / f"{name}?.json").touch()', ["the name '?.json'"]),
        ("os.kill(pid, signal.SIGKILL)", ["signal.SIGKILL"]),
        ('subprocess.run(["git", "ls-files"], check=True)', ["starts git"]),
        ("helper(tmp_path)", ["signal.SIGSTOP"]),
    ],
)
def test_the_check_finds(body: str, found: list[str]) -> None:
    helper = "def helper(folder):\n    os.kill(1, signal.SIGSTOP)\n"
    assert unfit(f"{helper}def test_one(tmp_path):\n    {body}\n") == found
    assert (
        unfit(f"{helper}@pytest.mark.skipif(WINDOWS, reason='')\ndef test_one(tmp_path):\n    {body}\n") == []
    )
    assert (
        unfit(f"{helper}POSIX = pytest.mark.skipif(W)\n@POSIX\ndef test_one(tmp_path):\n    {body}\n") == []
    )


@pytest.mark.parametrize(
    "body",
    [
        'write(tmp_path / "rank_0.ddptrace")',
        'end(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)',
        'git = shutil.which("git")\n    subprocess.run(["git"])',
        "subprocess.run([sys.executable, name])",
    ],
)
def test_the_check_lets_pass(body: str) -> None:
    assert unfit(f"def test_one(tmp_path):\n    {body}\n") == []
