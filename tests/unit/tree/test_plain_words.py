"""Words that say nothing to a newcomer stay out of names and texts. Where a word means what it says, it may stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = {
    *("told", "hearsay", "patience", "patient", "sitting", "seat", "keeper", "doubt", "doubted"),
    "flying",
} | {"adopted", "adopt", "stranger", "strangers"}
PHRASES = re.compile(r"\b(come what may|anew|in earnest|told apart|hearsay|in good order)\b", re.IGNORECASE)
FOLDERS = ("pyddpdiag", "csrc", "tests", "accuracy", "tools", "benchmarks", "examples", "docs")
NOT_CODE = re.compile(r"//.*|\"(?:[^\"\\\n]|\\.)*\"")


def parts(identifier: str) -> set[str]:
    """The words of a name: `told_of`, `_PATIENCE_S`, `BucketKeeper`."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().split("_"))


def python_names(source: str) -> Iterator[str]:
    """What a file calls its things; the names of tests are sentences."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("test_"):
            yield node.name


def native_names(source: str) -> Iterator[str]:
    yield from re.findall(r"\w+", NOT_CODE.sub("", source))


def private_words(path: Path, text: str) -> set[str]:
    if not re.search("|".join(NAMES), text, re.IGNORECASE):
        return set()
    names = python_names(text) if path.suffix == ".py" else native_names(text)
    return {word for word in set(names) if parts(word) & NAMES}


def files(*endings: str) -> list[Path]:
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    return [path for path in paths if path.suffix in endings and path.is_file() and path != Path(__file__)]


def test_names_say_what_things_are() -> None:
    sources = files(".py", ".cpp", ".hpp")
    assert len(sources) > 100
    found = {path.name: private_words(path, path.read_text(encoding="utf-8")) for path in sources}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("file", "text"),
    [("a.py", "def f(told): return told"), ("a.py", "_PATIENCE_S = 2"), ("a.hpp", "class BucketKeeper;")],
)
def test_the_check_of_names_finds(file: str, text: str) -> None:
    assert private_words(Path(file), text)


@pytest.mark.parametrize(
    ("file", "text"), [("a.py", '"""Ends when it is told to."""'), ("a.cpp", "int held;  // until told\n")]
)
def test_the_check_of_names_lets_pass(file: str, text: str) -> None:
    assert private_words(Path(file), text) == set()


def test_texts_are_in_plain_words() -> None:
    texts = files(".py", ".cpp", ".hpp", ".md", ".js", ".toml", ".yml")
    found = {path.name: PHRASES.findall(path.read_text(encoding="utf-8")) for path in texts}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}
