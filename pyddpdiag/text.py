"""Text in a trace file."""

from __future__ import annotations

from typing import Final

from pyddpdiag.output import clean

__all__ = ["TEXT_LIMIT", "clean", "decode"]

TEXT_LIMIT: Final = 4096


def decode(raw: bytes, limit: int = TEXT_LIMIT) -> str:
    """Zero-padded bytes of a record or header as safe text."""
    return clean(raw.split(b"\0", 1)[0].decode("utf-8", "replace"), limit)
