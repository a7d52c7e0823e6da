"""What the doctor's page takes from the catalog of messages when the site is built."""

from __future__ import annotations

import re

from pyddpdiag.messages.catalog import CATALOG

LIST = re.compile(r"(?:^- `\w+`: .+\n)+", re.MULTILINE)
_HEAD = "| kind | printed as | role | behind it, and what to do |\n|---|---|---|---|\n"
_MESSAGES = {message.kind: message for message in CATALOG}


def completed(page: str) -> str:
    """The page with its list of messages as a table: role, cause and fix of each beside what is printed."""
    return LIST.sub(lambda found: _HEAD + "".join(map(_row, found[0].splitlines())), page, count=1)


def _row(line: str) -> str:
    kind, printed = line.removeprefix("- `").split("`: ", 1)
    message = _MESSAGES[kind]
    words = f"{message.cause} {message.fix}".replace("|", "\\|").replace("<", "&lt;")
    return f"| `{kind}` | {printed} | {message.role.name.lower()} | {words} |\n"
