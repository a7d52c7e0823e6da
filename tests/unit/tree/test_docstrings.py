"""Docstrings say which errors a function raises, in a section "Raises:"."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "pyddpdiag"
FILES = sorted(PACKAGE.rglob("*.py"))

CONSTRUCTORS = {"__init__", "__post_init__"}
# A sentence such as "Raises `UsageError` if ...": the section is where people and tools look.
PROSE = re.compile(r"\braises? `?\w+Error\b", re.IGNORECASE)


def own_errors(function: ast.AST) -> set[str]:
    """Errors that a function raises by name itself; those of the functions inside of it are theirs."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(function):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(error).rpartition(".")[2]
            if re.fullmatch(r"[A-Z]\w*Error", name):
                found.add(name)
        found |= own_errors(node)
    return found


def public(tree: ast.AST, owner: ast.ClassDef | None = None) -> Iterator[tuple[str, ast.AST, str]]:
    """Name, node and docstring of each public function; a constructor is documented by its class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node, node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            made = owner is not None and node.name in CONSTRUCTORS
            if made or not node.name.startswith("_"):
                text = ast.get_docstring(owner if made and owner is not None else node) or ""
                yield f"{owner.name}.{node.name}" if owner else node.name, node, text


def undocumented(source: str) -> list[str]:
    """Public functions, each with an error that it raises and its section "Raises:" does not name."""
    found = []
    for name, node, text in public(ast.parse(source)):
        section = re.search(r"^Raises:\n((?: .*\n?|\n)+)", text, re.MULTILINE)
        named = section.group(1) if section else ""
        found += [f"{name}: {e}" for e in sorted(own_errors(node)) if not re.search(rf"\b{e}\b", named)]
    return found


def in_prose(source: str) -> list[str]:
    """Public functions and classes that tell their errors in a sentence."""
    return [name for name, _, text in public(ast.parse(source)) if PROSE.search(text)]


def is_command(path: Path, name: str) -> bool:
    """Whether that is a command of the command line, whose docstring is its help."""
    return path.is_relative_to(PACKAGE / "cli") and name == path.stem


def test_raised_errors_are_in_the_docstring() -> None:
    found = []
    for path in FILES:
        if any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(PACKAGE).parts):
            continue
        source = path.read_text(encoding="utf-8")
        for line in [*undocumented(source), *in_prose(source)]:
            if not is_command(path, line.partition(":")[0]):
                found.append(f"{path.relative_to(PACKAGE).as_posix()}: {line}")
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Does."""\n    raise UsageError("a")',
        'def f():\n    """Raises `UsageError`."""\n    raise UsageError("a")',
        'def f():\n    """Does.\n\n    Raises:\n        TraceError: no.\n    """\n    raise errors.UsageError("a")',
        'class A:\n    """Holds."""\n    def __init__(self):\n        if self:\n            raise UsageError',
        'class A:\n    """Holds."""\n    def f(self):\n        """Does."""\n        raise ValueError from None',
    ],
)
def test_the_check_finds(source: str) -> None:
    assert undocumented(source) != []


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Does.\n\n    Raises:\n        UsageError: no.\n    """\n    raise UsageError("a")',
        'def _f():\n    raise UsageError("a")',
        'class _A:\n    def f(self):\n        raise UsageError("a")',
        'def f():\n    """Does."""\n    def g():\n        raise UsageError("a")\n    return g',
        'def f(error):\n    """Does."""\n    raise error',
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert undocumented(source) == []


def test_the_check_of_prose_finds() -> None:
    assert in_prose('def f():\n    """Does. Raises `UsageError` for less."""') == ["f"]
    assert in_prose('def f():\n    """Does.\n\n    Raises:\n        UsageError: no.\n    """') == []
