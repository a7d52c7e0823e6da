"""Options that the sub-commands share, and how to parse them."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyddpdiag.cli._options import Force, Table, option, row
from pyddpdiag.errors import UsageError

if TYPE_CHECKING:
    from pyddpdiag.bench.engine import plan

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Stop after this time, such as 90s or 2m; the most telling cases come first."
    ),
]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="Result file. Default: runs/bench-<time>.json.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result file's content instead of tables.")]
Timeout = Annotated[
    float, typer.Option(help="Longest wait for other ranks while a case is set up, in seconds.")
]
SWEEP: Table = (
    option(
        "interface",
        list[str],
        "Interface for Gloo, or several at once; repeat to vary it.",
        metavar="NAME[,NAME]",
    ),
    option(
        "rounds",
        int,
        "Rounds of each case, over all launches. Default: 30; with --budget as many as fit, at least 10 per case.",
    ),
    option(
        "sittings",
        int,
        "Process launches. Timings shift from launch to launch, and `compare` needs that spread. Few --rounds or a "
        "short --budget mean fewer launches.",
        5,
    ),
    row("budget", Budget),
    row("output", Output),
    row("force", Force, False),
    option("resume", bool, "Continue the interrupted sweep in --output."),
    row("timeout", Timeout, 60.0),
    row("as_json", AsJson, False),
)
"""What the sweeps share, as `running.sweep` takes it."""

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def seconds(text: str) -> float:
    """The seconds in 90, 90s, 2m or 1h.

    Raises:
        UsageError: it is not a duration.
    """
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"--budget {text} is not a duration.", hint="write 90s, 2m or 1h.")
    return float(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[match.group(2)]


def limits(rounds: int | None, budget: str | None, started: float) -> tuple[int | None, plan.Budget | None]:
    """The number of rounds and the budget of a sweep; without a budget there is always a number of rounds.

    Raises:
        UsageError: the budget is not a duration.
    """
    from pyddpdiag.bench.engine.plan import USUAL_ROUNDS, Budget

    if budget is None:
        return (USUAL_ROUNDS if rounds is None else rounds), None
    return rounds, Budget(seconds(budget), started)


def sizes(text: str) -> list[int]:
    """The bytes in 4K,1M,16MiB: powers of 1024.

    Raises:
        UsageError: a part is not a size.
    """
    found = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"'{part}' is not a size.", hint="write 4096, 64K or 16M; K is 1024.")
        found.append(int(float(match.group(1)) * 1024 ** " KMG".index(match.group(2).upper() or " ")))
    return found


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers in 1,2,4.

    Raises:
        UsageError: it is not a list of whole numbers.
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text} is not a list of whole numbers.", hint="write 1,2,4.") from None


def caps(text: str) -> list[float | None]:
    """The bucket sizes in 25,1,default; None stands for the default.

    Raises:
        UsageError: a part is not a size.
    """
    found: list[float | None] = []
    for part in text.split(","):
        try:
            value = None if part.strip() == "default" else float(part)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageError(
                f"--bucket-cap-mb: '{part}' is not a size.", hint="write MiB, such as 0.25,1,25, or default."
            )
        found.append(value)
    return found


def words(text: str) -> list[str]:
    """The names in a,b."""
    return [part.strip() for part in text.split(",") if part.strip()]


def interfaces(given: list[str] | None) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The names in all --interface options, and each option as places among them; one empty choice for none.

    Raises:
        UsageError: a name is empty.
    """
    from pyddpdiag.ranks.interfaces import parse

    settings = [parse(text) for text in given or []]
    names = tuple(dict.fromkeys(name for setting in settings for name in setting))
    return names, [tuple(names.index(name) for name in setting) for setting in settings] or [()]


def output_path(given: Path | None, resume: bool) -> Path:
    """Where the result file goes.

    Raises:
        UsageError: there is nothing to resume.
    """
    if given is not None:
        return given
    if resume:
        raise UsageError("--resume needs the --output of the sweep to go on with.")
    return Path("runs", time.strftime("bench-%Y%m%d-%H%M%S.json"))
