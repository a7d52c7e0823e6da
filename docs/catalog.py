"""What the doctor's page takes from the catalog of messages when the site is built."""

from __future__ import annotations

import re

from pyddpdiag.messages.catalog import CATALOG

HEAD = "| kind | printed as |\n|---|---|\n"
ROW = re.compile(r"^\| `(\w+)` \| ([^|\n]+) \|$", re.MULTILINE)
_MESSAGES = {message.kind: message for message in CATALOG}


def completed(page: str) -> str:
    """The page with role, cause and fix of each message that its table lists."""
    return ROW.sub(_row, page).replace(
        HEAD, "| kind | printed as | role | behind it, and what to do |\n|---|---|---|---|\n"
    )


def _row(row: re.Match[str]) -> str:
    message = _MESSAGES.get(row[1])
    if message is None:
        return row[0]
    words = f"{message.cause} {message.fix}".replace("|", "\\|").replace("<", "&lt;")
    return f"| `{row[1]}` | {row[2]} | {message.role.name.lower()} | {words} |"
