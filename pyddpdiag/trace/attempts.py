"""Finds the attempts of a job in the folder that its script names."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.errors import UsageError
from pyddpdiag.model.attempts import attempt_folder, numbers
from pyddpdiag.model.words import listed
from pyddpdiag.trace.folder import folder_of, number_of


def choose_attempt(folder: Path, number: int | None = None) -> tuple[Path, str]:
    """The folder of one attempt, by default the newest, and a sentence about the others.

    The sentence is empty where there are no others. A folder that cannot be read is its own only attempt: whoever
    reads its traces says what is wrong with it. `folder`: the folder that the script names, or one rank's trace.
    `number`: of the attempt, from 0; None: the newest.

    Raises:
        UsageError: there is no such attempt.
    """
    folder = folder_of(folder)
    try:
        entries = list(folder.iterdir())
        # A rank that has nothing more to tell of its start leaves an empty folder.
        found = numbers(entry.name for entry in entries if entry.is_dir() and any(entry.iterdir()))
    except OSError:
        return folder, ""
    if not found and not number:
        return folder, ""
    first = [0] if any(number_of(entry) is not None for entry in entries) else []
    known = first + found
    if number is not None and number not in known:
        raise UsageError(
            f"{folder}: there is no attempt {number}.",
            hint=f"there are: {listed(known, 16)}." if known else "",
        )
    shown = known[-1] if number is None else number
    others = [other for other in known if other != shown]
    if not others:
        return attempt_folder(folder, shown), ""
    which = "the newest" if shown == known[-1] else "an earlier one"
    return attempt_folder(folder, shown), (
        f"the launcher restarted the ranks: this is attempt {shown}, {which}; "
        f"--attempt shows another: {listed(others, 16)}."
    )
