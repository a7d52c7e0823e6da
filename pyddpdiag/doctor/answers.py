"""The doctor's answers, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TextIO

from rich.text import Text

from pyddpdiag.doctor.check import Outcome, Status
from pyddpdiag.messages.explain import UNKNOWN, Explanation
from pyddpdiag.messages.logs import NO_ERROR, LogVerdict
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell, write
from pyddpdiag.output import clean
from pyddpdiag.report.screen import INDENT, Screen, screen_for

SCHEMA_VERSION: Final = 1
_STYLE: Final = {Status.PASS: "green", Status.WARN: "bold yellow", Status.FAIL: "bold red"}
_COLOURS: Final = {NO_ERROR: "bold green", UNKNOWN: "bold magenta"}


def lines_of(outcome: Outcome, shell: Shell) -> list[str]:
    """The lines to paste of an outcome."""
    return [text for text in (write(line, shell) for line in outcome.lines) if text]


def outcomes_to_json(outcomes: Sequence[Outcome], shell: Shell, exit_code: int, seconds: float) -> str:
    """The checks as one JSON object (docs/doctor.md). ASCII only."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "exit_code": exit_code,
            "seconds": round(seconds, 3),
            "shell": shell.value,
            "checks": [
                {
                    "name": outcome.name,
                    "status": outcome.status.word,
                    "text": outcome.text,
                    "fix": outcome.fix,
                    "lines": lines_of(outcome, shell),
                }
                for outcome in outcomes
            ],
        },
        indent=2,
    )


def print_outcomes(outcomes: Sequence[Outcome], shell: Shell, file: TextIO) -> None:
    """Print the table of checks, and what to do about those that did not pass."""
    screen = screen_for(file)
    width = max((len(outcome.name) for outcome in outcomes), default=0)
    indent = INDENT + 4 + 2 + width + 2
    for outcome in outcomes:
        head = Text.assemble(
            " " * INDENT,
            (outcome.status.word, _STYLE[outcome.status]),
            f"  {screen.text(clean(outcome.name)):<{width}}  ",
        )
        text = Text(screen.text(clean(outcome.text)))
        for place, line in enumerate(text.wrap(screen.console, max(20, screen.console.width - indent))):
            line.rstrip()
            screen.console.print((head if place == 0 else Text(" " * indent)) + line, soft_wrap=True)
    screen.console.print()
    bad = sorted((o for o in outcomes if o.status), key=lambda o: -o.status)
    if not bad:
        screen.print(Text("Nothing to mend.", "bold green"), INDENT)
    for outcome in bad:
        screen.print(Text(f"{outcome.name}: {outcome.fix}", "bold"), INDENT)
        _lines(screen, lines_of(outcome, shell))


def _lines(screen: Screen, lines: Sequence[str]) -> None:
    for line in lines:
        # Never wrapped: it is to be pasted.
        screen.console.print(Text(" " * (2 * INDENT) + screen.text(clean(line))), soft_wrap=True)


def verdict_to_json(verdict: LogVerdict, exit_code: int) -> str:
    """What the logs say as one JSON object (docs/doctor.md). ASCII only."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "exit_code": exit_code,
            "sentence": verdict.sentence,
            "culprits": list(verdict.culprits),
            "explanation": explanation_fields(verdict.explanation),
            "logs": [
                {"name": log.name, "rank": log.rank, "found": [explanation_fields(one) for one in log.found]}
                for log in verdict.logs
            ],
        },
        indent=2,
    )


def explanation_fields(one: Explanation) -> dict[str, object]:
    """One explanation for JSON."""
    return {
        "kind": one.kind,
        "role": one.role.name.lower(),
        "cause": one.cause,
        "fix": one.fix,
        "lines": list(one.lines),
        "line": one.line,
        "facts": one.facts,
    }


def print_verdict(verdict: LogVerdict, notes: Sequence[str], file: TextIO) -> None:
    """Print what the logs say; `notes` are further sentences about this machine."""
    screen = screen_for(file)
    one = verdict.explanation
    screen.print(Text(verdict.sentence, _COLOURS.get(one.kind, "bold red")), INDENT)
    if one.line:
        screen.print(Text(one.line, "dim"), 2 * INDENT)
    screen.print(Text(one.cause), INDENT)
    for note in notes:
        screen.print(Text(note), INDENT)
    if one.fix:
        screen.print(Text(one.fix, "bold"), INDENT)
    _lines(screen, one.lines)
    # What only says that something ended adds nothing to a reason.
    others = {
        o.kind: o
        for log in verdict.logs
        for o in log.found
        if o.kind != one.kind and o.role is not Role.SUMMARY
    }
    if others:
        screen.console.print()
    for other in others.values():
        screen.print(Text(f"Also there ({other.kind}): {other.cause}", "dim"), INDENT)
    if len(verdict.logs) > 1:
        screen.console.print()
        for log in verdict.logs:
            kinds = ", ".join(o.kind for o in log.found) or "no known message"
            screen.print(Text(f"{clean(log.name)}: {kinds}", "dim"), INDENT)
