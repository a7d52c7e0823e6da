"""Runs `pyddpdiag doctor` as a user does, and pastes what it says into a shell."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyddpdiag.doctor import check
from pyddpdiag.doctor.check import Check, Outcome, Situation
from pyddpdiag.messages.shells import Shell
from pyddpdiag.ranks.rendezvous import Target
from support.commands import ran

TIMEOUT_S = 60
#: What a rank of another job would leave in the environment of the tests.
RANK_VARIABLES = (
    *(
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "GLOO_SOCKET_IFNAME",
    ),
    *("GLOO_DEVICE_TRANSPORT", "TORCH_GLOO_LAZY_INIT", "USE_LIBUV", "OMP_NUM_THREADS"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
)


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without anything that a launcher set, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
    kept["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    kept["NO_COLOR"] = "1"
    return {**kept, **(variables or {})}


def situation(
    environ: dict[str, str] | None = None, target: Target | None = None, **options: int
) -> Situation:
    """What the checks look at: these variables, this place to meet, and the options of the command."""
    batch_size = options.pop("batch_size", None)
    place = check.read(environ or {}, **options)
    return Situation(environ or {}, place, target, "", Shell.POSIX, batch_size=batch_size)


def bad(check: Check, where: Situation) -> list[Outcome]:
    """What a check finds that did not pass."""
    return [outcome for outcome in check(where) if outcome.status]


def command(*arguments: object) -> list[str]:
    """The command line of the doctor."""
    return [sys.executable, "-m", "pyddpdiag", "doctor", *map(str, arguments)]


def doctor(
    *arguments: object,
    variables: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    said: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of one run. `prefix`: before the command, such as `ip netns exec`."""
    done = ran(
        *prefix,
        *command("--json", *arguments),
        env=environment(variables),
        input=said or "",
        timeout_s=TIMEOUT_S,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def found(answer: dict[str, Any], *statuses: str) -> dict[str, dict[str, Any]]:
    """The checks with one of these statuses, by name."""
    return {one["name"]: one for one in answer["checks"] if one["status"] in (statuses or ("warn", "fail"))}


def _in_a_shell(
    lines: Sequence[str], variables: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs lines in a POSIX shell that has these variables and no others."""
    return ran("/bin/sh", "-c", "\n".join(lines), env=dict(variables), cwd=folder, timeout_s=TIMEOUT_S)


def variables_after(lines: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """What `variables` are in a POSIX shell after lines were pasted there, those that the lines set included."""
    show = f"exec {shlex.quote(sys.executable)} -c 'import os; print(dict(os.environ))'"
    done = _in_a_shell([*lines, show], variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = ast.literal_eval(done.stdout)
    # The shell's own.
    return {
        name: value
        for name, value in found.items()
        if name not in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE")
    }


def paste(lines: Sequence[str], then: Sequence[str], variables: Mapping[str, str], folder: Path) -> str:
    """Pastes lines into a shell, and then runs a command there; its output. For POSIX shells."""
    done = _in_a_shell([*lines, shlex.join(then)], environment(variables), folder)
    assert done.stderr == "" or done.stdout, done.stderr
    return done.stdout
