"""Files into which a rank saved something with `torch.save`: a part of its sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pyddpdiag.model.fields import Key, Limit
from pyddpdiag.model.untrusted import LATEST_NS

FILES: Final = 32
"""Files that are kept, the first ones; a training may write one per epoch."""

SPANS: Final = 32
"""Saves of a file that are kept with their times, the first ones."""


@dataclass(frozen=True)
class Saved:
    """A file, and when this rank saved into it.

    Attributes:
        file: equal on two ranks of one machine if path and file are the same.
        name: of the file, without its folder.
        where: the line of the script that saved it first; empty: not known.
        times: how often it was saved.
        spans: begin and end of the first saves, nanoseconds of the recorder's clock.
    """

    file: str
    name: str
    where: str = ""
    times: int = 0
    spans: Annotated[tuple[tuple[int, int], ...], Key("spans_ns"), Limit(SPANS)] = ()

    @property
    def sound(self) -> bool:
        """Whether it names a file, and each span ends after it begins."""
        return self.file != "" and all(begin <= end < LATEST_NS for begin, end in self.spans)
