"""A recorder, as those see it that it needs itself."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyddpdiag import _native
from pyddpdiag.errors import RecorderClosedError
from pyddpdiag.record.modules import Modules


class Recording(Protocol):
    """The members of a `Recorder` that hooks, attachments and the list of open recorders use."""

    rank: int
    path: Path
    core: _native.Recorder
    modules: Modules

    @property
    def closed(self) -> bool:
        """Whether the recorder was closed."""
        ...

    def is_ours(self) -> bool:
        """Whether this process opened it."""
        ...

    def closed_error(self, what: str) -> RecorderClosedError:
        """The error for a use after the close."""
        ...
