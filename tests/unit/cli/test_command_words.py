"""Which words of `pyddpdiag run` and `try` are theirs, and which belong to the command that they start."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyddpdiag.cli import main
from pyddpdiag.integrations import recorded_command, tried_command

TORCHRUN = ["torchrun", "--nproc-per-node", "2", "train.py"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Path, Any]]:
    """The command, the folder and the ranks to start, of each command that was started."""
    found: list[tuple[list[str], Path, Any]] = []

    def start(command: Sequence[str], folder: Path, *_: Any, **options: Any) -> int:
        found.append((list(command), folder, options["start"]))
        return 0

    monkeypatch.setattr(recorded_command, "run", start)
    monkeypatch.setattr(tried_command, "in_one_run", start)
    monkeypatch.setattr(tried_command, "by_starts", start)
    return found


@pytest.mark.parametrize("verb", [["run"], ["try"], ["try", "--restart"]], ids=" ".join)
@pytest.mark.parametrize("between", [[], ["--"]], ids=["without --", "with --"])
@pytest.mark.parametrize(
    "command",
    [
        TORCHRUN,
        ["torchrun", "--help"],
        ["torchrun", "-h"],
        ["train.py", "--trace", "theirs", "--nproc", "3", "--lr=0.1"],
        ["env", "--", "A=1", "train.py", "--", "more"],
    ],
    ids=" ".join,
)
def test_what_follows_the_first_word_is_the_commands(
    started: list[Any], verb: list[str], between: list[str], command: list[str]
) -> None:
    assert main([*verb, "--trace", "ours", "--nproc", "2", *between, *command]) == 0
    [(words, folder, start)] = started
    assert (words, folder, start.nproc) == (command, Path("ours"), 2)


def test_without_options_of_ours(started: list[Any]) -> None:
    assert main(["run", *TORCHRUN]) == 0
    assert (started[0][0], started[0][2]) == (TORCHRUN, None)


def test_before_the_first_word_an_option_must_be_ours(
    started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--nproc-per-node", "2", "train.py"]) == 2
    assert "--nproc-per-node" in capsys.readouterr().err
    assert main(["run", "--nproc", "2", "--", "-m", "package.train", "--lr", "1"]) == 0
    assert started[0][0] == ["-m", "package.train", "--lr", "1"]
    assert len(started) == 1


def test_other_commands_take_options_after_their_arguments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["report", str(tmp_path / "none"), "--json"]) == 2
    assert "No such option" not in capsys.readouterr().err
