"""What a recorder becomes when a module that has it as its hook's state is copied, pickled or saved."""

from __future__ import annotations

from pathlib import Path

from pyddpdiag.errors import UsageError


class CopiedRecorder:
    """A copy of a recorder. It names the trace and records nothing: only the original writes to that.

    DDP does not register the hook again with a copy of the module, so a copied module trains like one without
    a hook.
    """

    def __init__(self, rank: int, path: str) -> None:
        self.rank = rank
        self.path = Path(path)

    def __repr__(self) -> str:
        """Rank and file."""
        return f"<copy of the Recorder of rank {self.rank}: {self.path}>"

    def error(self) -> UsageError:
        """For the use of this copy as a recorder."""
        return UsageError(
            f"rank {self.rank}: the state of this hook is only a copy of the recorder of '{self.path}'.",
            hint="register the hook with the recorder itself, or with a new one.",
        )
