"""Every line to paste is one that the command takes, whatever the run had: its own parser reads them here."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main

import pyddpdiag
from pyddpdiag import cli
from pyddpdiag.analyse.advice import Advice
from pyddpdiag.analyse.tried import tried_of
from pyddpdiag.cures.options import Cures, from_options
from pyddpdiag.cures.trial_candidates import KINDS, Run, candidates, wanted_of
from pyddpdiag.errors import UsageError
from pyddpdiag.integrations import recorded_command
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.messages.shells import Shell
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.run_options import excluded
from pyddpdiag.model.tried import AS_IT_IS, Tried, TriedCure
from pyddpdiag.ranks import interfaces

PACKAGE: Final = Path(pyddpdiag.__file__).parent

# Each that a run can have, with a value, and what it needs beside it.
OPTIONS: Final[tuple[Mapping[str, str], ...]] = (
    {"--shared-memory": "require"},
    {"--compress": "fp16"},
    {"--compress": "bf16", "--error-feedback": ""},
    *[{"--lanes": "eth0,lo"}, {"--lanes": "eth0=100,lo=300"}, {"--connections": "4"}],
    *[{"--bucket-cap-mb": "0.25"}, {"--bucket-cap-mb-list": "1,4.5,25"}],
    *[{"--gradient-as-bucket-view": ""}, {"--interface": "eth0,eth1"}, {"--threads": "2"}],
    *[{"--pin-ranks": ""}, {"--num-workers": "4"}],
)
COMMAND: Final = ("train.py", "--lr", "0.1")
STARTS: Final = (None, Start(2), Start(2, 3, 1, "10.0.0.1:29500"))
# What findings advise; the test below finds the options in their sources.
ADVISED: Final = {
    "--shared-memory": "auto",
    "--compress": "bf16",
    "--bucket-cap-mb": "1e+05",
    "--interface": "eth1",
    "--threads": "1",
}

Taken = Callable[[str], tuple[Cures, Start | None]]


def of_runs() -> Iterator[dict[str, str]]:
    """The options of runs that the command accepts: none, each alone, and each pair."""
    yield {}
    for one, other in itertools.combinations_with_replacement(OPTIONS, 2):
        both = {**one, **other}
        try:
            from_options(both)
        except UsageError:
            # That is known here, too; both ways to give bucket sizes are one thing, of which the later one counts.
            assert excluded(both) or {"--bucket-cap-mb", "--bucket-cap-mb-list"} <= both.keys()
        else:
            assert not excluded(both)
            yield both


def commands() -> dict[str, Any]:
    """The commands with their parameters, by name."""
    group: Any = typer.main.get_command(cli.build_app(cli.commands()))
    return dict(group.commands)


def test_every_option_of_a_run_that_cures_is_tried_here() -> None:
    named = {name for each in OPTIONS for name in each}
    assert named == {
        each.opts[0]
        for each in commands()["run"].params
        if (getattr(each, "rich_help_panel", None) or "").startswith("Cures, applied to")
    }


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """What the command makes of a line, instead of running it."""
    calls: list[tuple[Sequence[str], Cures, Start | None]] = []

    def run(command: Sequence[str], _: Path, cures: Cures, *, start: Start | None, **__: object) -> int:
        calls.append((command, cures, start))
        return 0

    monkeypatch.setattr(recorded_command, "run", run)
    monkeypatch.setattr(interfaces, "check", lambda *_: None)  # this machine has others
    parser: Any = typer.main.get_command(cli.build_app(["run"]))

    def parse(line: str) -> tuple[Cures, Start | None]:
        program, *words = shlex.split(line)
        assert program == "pyddpdiag"
        parser.main(words, prog_name=program, standalone_mode=False)
        command, cures, start = calls.pop()
        assert list(command) == list(COMMAND)
        return cures, start

    return parse


def advice(options: Mapping[str, str], start: Start | None) -> Advice:
    launch = Launch(COMMAND, options, start.options() if start is not None else {})
    return Advice("run", launch, Shell.POSIX)


def test_the_options_that_findings_advise_are_those_of_this_test() -> None:
    sources = "".join(
        each.read_text(encoding="utf-8") for each in sorted((PACKAGE / "analyse").rglob("*.py"))
    )
    assert set(re.findall(r'advice\.(?:line|fits)\(\s*"(--[a-z-]+)"', sources)) == ADVISED.keys()


def test_a_line_is_taken_by_the_command_and_has_all_that_the_run_had(taken: Taken) -> None:
    lines = 0
    for options, start, (option, value) in itertools.product(of_runs(), STARTS, ADVISED.items()):
        said = advice(options, start)
        line = said.line(option, value)
        if not line:
            assert options.get(option) == value or not said.fits(option)
            continue
        cures, parsed_start = taken(line)
        wanted = {**options, option: value}
        if option == "--bucket-cap-mb":
            wanted.pop("--bucket-cap-mb-list", None)
        assert cures == from_options(wanted)
        assert parsed_start == start
        lines += 1
    assert lines > 500


@pytest.mark.parametrize("option", ["--compress", "--shared-memory"])
def test_what_excludes_what_a_run_has_is_not_advised(option: str) -> None:
    for had in ({"--lanes": "eth0,lo"}, {"--lanes": "eth0,lo", "--threads": "1"}):
        assert not advice(had, None).line(option, ADVISED[option])
        assert not advice(had, None).fits(option)
    # Nor where the script's own recorder has lanes.
    assert not Advice(lanes=True).fits(option)
    assert Advice().fits(option) and Advice(lanes=True).fits("--bucket-cap-mb")
    several = Advice(launch=Launch(COMMAND, {"--connections": "4"}), lanes=True)
    assert several.fits("--bucket-cap-mb") and not several.fits(option)


def test_lines_of_trials_are_taken_by_the_command(taken: Taken) -> None:
    lines = 0
    for options in of_runs():
        had = from_options(options)
        path = ("compress", "error_feedback", "shared_memory", "lanes", "connections")
        run = Run(
            Cures(**{name: getattr(had, name) for name in path}),
            ranks=2,
            in_run=True,
            gradient_bytes=8 * 2**20,
            bucket_cap_mb=had.bucket_cap_mb or 25,
            default_cap=had.bucket_cap_mb is None,
            views=had.gradient_as_bucket_view,
        )
        names = [name for name, kind in KINDS.items() if not kind.needs_start]
        names += ["buckets=4", "buckets=1:4:25", "views+buckets=4+compress"]
        offered = candidates([wanted_of(name, in_run=True) for name in names], run)
        trial = Tried("in_run", "decided", TriedCure(AS_IT_IS, run.today.options()), tuple(offered))
        launch = advice(options, None).launch
        for cure in tried_of(trial, launch, Shell.POSIX, {}).cures:
            if not cure.line:
                assert cure.left  # for the lanes that the run has
                continue
            cures, _ = taken(cure.line)
            assert cure.options.items() <= cures.options().items()
            # All else stays as it was.
            assert (cures.threads, cures.interfaces) == (had.threads, had.interfaces)
            lines += 1
    assert lines > 300


def test_commands_in_texts_are_commands_with_their_options() -> None:
    """Lines that stand in the sources: `pyddpdiag report --memory 0`."""
    known = {
        name: {
            option
            for one in (command, *getattr(command, "commands", {}).values())
            for each in one.params
            for option in each.opts
        }
        for name, command in commands().items()
    }
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        # Texts go on in the next line.
        text = re.sub(r'"\n\s*f?"', "", path.read_text(encoding="utf-8"))
        for name, rest in re.findall(r"pyddpdiag ([a-z]+)((?: [^\s\"'`,;()]+)*)", text):
            options = re.findall(r"(?<= )--[a-z-]+", rest.partition(" -- ")[0])
            if options:
                assert set(options) <= known[name], (path.name, name, rest)
                found += 1
    assert found > 20
