"""Where text leaves the program; cleans names and messages from elsewhere, which could control a terminal.

Folder and file names, host names and errors from other processes may all hold escape sequences, which set a
window's title or worse, and marks that reverse the direction of the following text. Terminal, report and HTML
page only show text that was cleaned here; a test forbids `print` elsewhere.
"""

from __future__ import annotations

import html
import io
import sys
from typing import Final, TextIO

TEXT_LIMIT: Final = 4096
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


def decode(raw: bytes, limit: int = TEXT_LIMIT) -> str:
    """Zero-padded bytes of a record or header as safe text."""
    return clean(raw.split(b"\0", 1)[0].decode("utf-8", "replace"), limit)


def as_html(text: str) -> str:
    """Text from elsewhere for an HTML page, also within quotes."""
    return html.escape(clean_lines(text))


def say(text: str = "", file: TextIO | None = None, *, end: str = "\n") -> None:
    """Print for people, to standard output or `file`; replaces characters that its encoding lacks."""
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    # One write: lines of several ranks on one terminal must not mix.
    stream.write(clean_lines(text).encode(encoding, "replace").decode(encoding) + end)


class Buffer(io.StringIO):
    """Text that is made first and then shown on `target` in one piece: it has the target's encoding.

    A plain `io.StringIO` has none. What is made for it has signs that the target may lack: on a Windows code page the
    rules of a table would be question marks. Without a target it is for a file in UTF-8.
    """

    def __init__(self, target: TextIO | None = None) -> None:
        super().__init__()
        self._encoding: str | None = getattr(target, "encoding", None)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The name of the target's encoding."""
        return self._encoding or "utf-8"
