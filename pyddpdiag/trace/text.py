"""Text that came from a file, made safe to show: a name must not be able to drive a terminal."""

from __future__ import annotations

from typing import Final

TEXT_LIMIT: Final = 4096


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text` with control, surrogate and direction-changing characters replaced, at most `limit` long."""
    shown = text[:limit]
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else (" " if c in "\n\r\t" else "\ufffd") for c in shown)


def decode(raw: bytes, limit: int = TEXT_LIMIT) -> str:
    """Zero-padded bytes of a record or header as safe text."""
    return clean(raw.split(b"\0", 1)[0].decode("utf-8", "replace"), limit)
