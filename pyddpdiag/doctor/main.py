"""The doctor's three jobs, from the options of the command to its exit code."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyddpdiag.doctor import answers, check, local
from pyddpdiag.doctor.check import Situation
from pyddpdiag.errors import RendezvousError, UsageError
from pyddpdiag.messages import logs
from pyddpdiag.messages.logs import LogVerdict
from pyddpdiag.messages.shells import Shell, this_shell
from pyddpdiag.output import say
from pyddpdiag.ranks.rendezvous import Target, TcpTarget, parse_url
from pyddpdiag.ranks.tcp import holder

STANDARD_INPUT: Final = "-"
_MOST = 64 * 1024 * 1024


def read_logs(names: Sequence[str], shell: Shell) -> LogVerdict:
    """What the logs of these names say; "-" is standard input.

    Raises:
        UsageError: a file cannot be read.
    """
    return logs.read({name: _log_text(name) for name in dict.fromkeys(names)}, lines_for=shell)


def _log_text(name: str) -> str:
    if name == STANDARD_INPUT:
        return sys.stdin.read(_MOST)
    try:
        with Path(name).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MOST))
            content = file.read()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the log {name} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint="give files, or - for standard input.",
        ) from error
    # PowerShell's redirection writes UTF-16.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return content.decode(encoding, "replace")


def log_notes(verdict: LogVerdict) -> list[str]:
    """What this machine adds to the logs: who holds the port that was taken."""
    found = verdict.explanation
    if found.kind != "port_in_use" or not found.facts.get("port", "").isdigit():
        return []
    port = int(found.facts["port"])
    who = holder(port)
    return [
        f"Port {port} of this machine is now held by {who}."
        if who
        else f"Port {port} of this machine is free now."
    ]


def log_exit_code(verdict: LogVerdict) -> int:
    """0: no error is in them. 1: explained. 2: an error that is not known."""
    if verdict.explanation.kind == logs.NO_ERROR:
        return 0
    return 1 if verdict.explanation.known else 2


@dataclass(frozen=True)
class Asked:
    """What the command line asks for; each part None where it does not."""

    rendezvous: str | None = None
    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    batch_size: int | None = None
    shell: str | None = None


def check_machine(asked: Asked, *, as_json: bool) -> int:
    """Runs the checks of this machine and prints them; returns the exit code.

    Raises:
        UsageError: an option is not understood.
    """
    begin = time.monotonic()
    situation = situation_of(asked)
    outcomes = local.run(situation)
    code = local.worst(outcomes)
    if as_json:
        say(answers.outcomes_to_json(outcomes, situation.shell, code, time.monotonic() - begin))
    else:
        answers.print_outcomes(outcomes, situation.shell, sys.stdout)
    return code


def explain_logs(names: Sequence[str], shell: str | None, *, as_json: bool) -> int:
    """Explains the errors in logs; returns the exit code.

    Raises:
        UsageError: a file cannot be read, or the shell is unknown.
    """
    verdict = read_logs(names, shell_of(shell))
    code = log_exit_code(verdict)
    if as_json:
        say(answers.verdict_to_json(verdict, code))
    else:
        answers.print_verdict(verdict, log_notes(verdict), sys.stdout)
    return code


def check_mesh(asked: Asked, timeout_s: float, *, as_json: bool) -> int:
    """Tries all pairs of ranks, as one of them; returns the exit code.

    Raises:
        UsageError: an option is missing or not understood.
    """
    from pyddpdiag.doctor.mesh.run import main

    return main(situation_of(asked), timeout_s, as_json=as_json)


def situation_of(asked: Asked) -> Situation:
    """What the checks look at.

    Raises:
        UsageError: the shell is unknown.
    """
    environ = dict(os.environ)
    place = check.read(environ, asked.rank, asked.world_size, asked.local_world_size)
    target: Target | None = None
    problem = ""
    try:
        target = parse_url(asked.rendezvous) if asked.rendezvous else None
    except RendezvousError as error:
        problem = error.message
    if asked.rendezvous in (None, "env://"):
        target = _from_environment(environ, agent=place.agent)
    return Situation(environ, place, target, problem, shell_of(asked.shell), batch_size=asked.batch_size)


def _from_environment(environ: dict[str, str], *, agent: bool) -> TcpTarget | None:
    port = check.number(environ, "MASTER_PORT")
    host = environ.get("MASTER_ADDR")
    return TcpTarget(host, port, agent) if host and port is not None and 0 < port < 65536 else None


def shell_of(name: str | None) -> Shell:
    """The shell of this name, or the one that started this process.

    Raises:
        UsageError: there is none of this name.
    """
    if name is None:
        return this_shell()
    try:
        return Shell(name.lower())
    except ValueError:
        raise UsageError(
            f"--shell {name} is not known.", hint=f"use {', '.join(shell.value for shell in Shell)}."
        ) from None
