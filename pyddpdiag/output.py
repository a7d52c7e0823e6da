"""Where text leaves the program; cleans names and messages from elsewhere, which could control a terminal.

Folder and file names, host names and errors from other processes may all hold escape sequences, which set a
window's title or worse, and marks that reverse the direction of the following text. Terminal, report and HTML
page only show text that was cleaned here; a test forbids `print` elsewhere.
"""

from __future__ import annotations

import html
import sys
from typing import Final, TextIO

_UNSHOWN: Final = "\ufffd"


def clean(text: str, limit: int | None = None) -> str:
    """`text` in one line, at most `limit` long: each control, surrogate or direction mark becomes one character."""
    shown = text if limit is None else text[:limit]
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else (" " if c.isspace() else _UNSHOWN) for c in shown)


def clean_lines(text: str) -> str:
    """Like `clean`, but keeps line feeds: for messages of several lines."""
    return "\n".join(clean(line) for line in text.split("\n"))


def as_html(text: str) -> str:
    """Text from elsewhere for an HTML page, also within quotes."""
    return html.escape(clean_lines(text))


def say(text: str = "", file: TextIO | None = None, *, end: str = "\n") -> None:
    """Print for people, to standard output or `file`; replaces characters that its encoding lacks."""
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # One write: lines of several ranks on one terminal must not mix.
    stream.write(clean_lines(text).encode(encoding, "replace").decode(encoding) + end)
