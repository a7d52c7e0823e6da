"""What a newcomer sees first: --help and --version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import python

import pyddpdiag
from pyddpdiag import cli
from pyddpdiag.cli import main
from pyddpdiag.cli.help import documentation

GROUPS = (
    *("run", "try", "train", "report", "watch", "hang", "compare", "doctor", "bench", "plan"),
    *("collect", "export"),
)
MOST = {"run": 12, "try": 10, "train": 15}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")


def shown(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(command) == 0
    return capsys.readouterr().out


def names(text: str) -> list[str]:
    return re.findall(r"^\W{1,3}(--[a-z-]+)", text, flags=re.MULTILINE)


def test_commands_stand_in_groups_and_the_first_says_where_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(["--help"], capsys)
    commands = re.findall(r"^\W{1,2}([a-z]+) {2,}", text, flags=re.MULTILINE)
    assert commands == [*GROUPS, "help"] == cli.commands()
    assert [group for group in cli.GROUPS if f" {group} " in text] == list(cli.GROUPS)
    assert text.index("Start here") < text.index(" run ")


@pytest.mark.parametrize("command", MOST)
def test_the_first_help_is_short_and_the_second_has_all(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = set(names(shown([command, "--help"], capsys))) - {"--help"}
    every = set(names(shown([command, "--help-all"], capsys)))
    assert "--help-all" in first < every
    assert len(first) <= MOST[command]


@pytest.mark.parametrize("more", ["--help", "--help-all"])
@pytest.mark.parametrize("command", GROUPS)
def test_no_title_and_no_name_of_an_option_is_cut(
    command: str, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = "--help" if more == "--help" or command not in MOST else more
    # A rounded border ends a title that was cut.
    assert not re.search(r"\u2026|[^\u2500 ]\u2500\u256e", shown([command, known], capsys))


def test_help_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert "pyddpdiag help cures\n" in shown(["help"], capsys)
    assert shown(["help", "cures"], capsys) == (documentation() / "cures.md").read_text(encoding="utf-8")
    assert main(["help", "nothing"]) == 2
    assert "choose among: " in capsys.readouterr().err


def test_every_page_that_the_program_names_is_there() -> None:
    package = Path(pyddpdiag.__file__).parent
    sources = [file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))]
    named = {page for text in sources for page in re.findall(r"pyddpdiag help ([a-z-]+)", text)}
    assert named
    assert named <= {file.stem for file in documentation().glob("*.md")}


def test_version_names_the_tool_and_both_torches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pyddpdiag {pyddpdiag.__version__}"
    assert lines[1].startswith("native module: ")
    assert lines[2].startswith("torch")


def test_version_imports_no_torch() -> None:
    program = (
        "import sys; from pyddpdiag.cli import main; code = main(['--version']); "
        "assert 'torch' not in sys.modules and code == 0"
    )
    done = python("-c", program, timeout_s=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("native", "torch", "said"),
    [
        ("2.13", "2.13.0+cpu", "torch 2.13.0+cpu"),
        ("2.13", "2.12.1", "torch 2.12.1: does not fit; 'pip install torch==2.13.*' does"),
        ("2.13", None, "torch: not installed; 'pip install torch==2.13.*' fits"),
        (None, "2.13.0", "torch 2.13.0"),
        (None, None, "torch: not installed"),
    ],
)
def test_version_says_what_does_not_fit(
    native: str | None, torch: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.metadata

    from pyddpdiag.cli import _versions
    from pyddpdiag.errors import NativeModuleError

    def built_with() -> str:
        if native is None:
            raise NativeModuleError("none")
        return native

    def version(name: str) -> str:
        if torch is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return torch

    monkeypatch.setattr(_versions, "built_with", built_with)
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert _versions.versions().splitlines()[2] == said
