"""Options that the sub-commands share, and how their texts are read."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Annotated

import typer

from pyddpdiag.errors import UsageError

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Stop after this time, such as 90s or 2m; measures what is worth it most."
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        help="Rounds of each case, in all sittings together; with --budget as many as fit, and no case below 10."
    ),
]
Sittings = Annotated[
    int,
    typer.Option(
        help="Start the ranks anew so many times: one set of processes is faster than the next by chance, and "
        "`compare` needs to know by how much. Fewer if there are few --rounds or a short --budget."
    ),
]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="Result file.  [default: runs/bench-<time>.json]")
]
Force = Annotated[bool, typer.Option("--force", help="Replace a result file that is there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted sweep in --output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result file's content instead of tables.")]
Timeout = Annotated[
    float, typer.Option(help="Longest wait for other ranks while a case is set up, in seconds.")
]
Interface = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[,NAME]", help="Interface for Gloo, or several at once; repeat to vary it."),
]

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)


def seconds(text: str | None) -> float | None:
    """The seconds in 90, 90s, 2m or 1h. Raises `UsageError`."""
    if text is None:
        return None
    match = _TIME.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"--budget {text} is no time.", hint="write 90s, 2m or 1h.")
    return float(match.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600}[match.group(2)]


def sizes(text: str) -> list[int]:
    """The bytes in 4K,1M,16MiB: powers of 1024. Raises `UsageError`."""
    found = []
    for part in text.split(","):
        match = _SIZE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"'{part}' is no size.", hint="write 4096, 64K or 16M; K is 1024.")
        found.append(int(float(match.group(1)) * 1024 ** " KMG".index(match.group(2).upper() or " ")))
    return found


def whole_numbers(text: str, option: str) -> list[int]:
    """The numbers in 1,2,4. Raises `UsageError`."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} {text} is no list of whole numbers.", hint="write 1,2,4.") from None


def caps(text: str) -> list[float | None]:
    """The bucket sizes in 25,1,default. Raises `UsageError`."""
    found: list[float | None] = []
    for part in text.split(","):
        try:
            value = None if part.strip() == "default" else float(part)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise UsageError(
                f"--bucket-cap-mb: '{part}' is no size.", hint="write MiB, such as 0.25,1,25, or default."
            )
        found.append(value)
    return found


def words(text: str) -> list[str]:
    """The names in a,b."""
    return [part.strip() for part in text.split(",") if part.strip()]


def interfaces(given: list[str] | None) -> tuple[tuple[str, ...], list[tuple[int, ...]]]:
    """The names in all --interface options, and each option as places among them; one empty choice for none."""
    from pyddpdiag.train.interfaces import parse

    settings = [parse(text) for text in given or []]
    names = tuple(dict.fromkeys(name for setting in settings for name in setting))
    return names, [tuple(names.index(name) for name in setting) for setting in settings] or [()]


def output_path(given: Path | None, resume: bool) -> Path:
    """Where the result file goes. Raises `UsageError` if there is nothing to resume."""
    if given is not None:
        return given
    if resume:
        raise UsageError("--resume needs the --output of the sweep to go on with.")
    return Path("runs", time.strftime("bench-%Y%m%d-%H%M%S.json"))
