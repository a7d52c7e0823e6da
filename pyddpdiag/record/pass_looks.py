"""What is seen of the passes of an attached module, from Python."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyddpdiag.record.batch_marks import GivenBatches


@dataclass
class PassLooks:
    """How many passes were `looked` at, and how many of them were reduced though backward ran under `no_sync`.

    `fresh`: how many began without gradients of an earlier pass. `batches`: what some passes were given. `local`: how
    many passes no rank reduced, and `local_after`: how many that were reduced had come before the last of them.
    """

    batches: GivenBatches = field(default_factory=GivenBatches)
    looked: int = 0
    inside: int = 0
    fresh: int = 0
    local: int = 0
    local_after: int = 0

    def note_local(self, reduced: int) -> None:
        """The backward pass of one begins after so many that were reduced."""
        self.local += 1
        self.local_after = reduced


__all__ = ["PassLooks"]
