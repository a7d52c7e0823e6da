"""A loop that waits for a batch of a DataLoader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyddpdiag.record.evaluations import Evaluations
    from pyddpdiag.record.steps import LoopMarks


@dataclass(slots=True)
class Waiting:
    """For a batch.

    Attributes:
        loader: its iterator.
        marks: of the loop.
        evaluations: where gradients are off.
        since_ns: since when.
        trains: whether the open step is with this iterator's batch.
    """

    loader: object
    marks: LoopMarks
    evaluations: Evaluations | None
    since_ns: int
    trains: bool

    def took(self, batch: object) -> None:
        """It is there."""
        self.marks.batch()
        if self.evaluations is not None:
            self.evaluations.took(self.loader, batch, self.since_ns)

    def took_none(self, error: BaseException) -> None:
        """An exception is there in its place, such as that there are no more."""
        self.marks.forget()
        if isinstance(error, StopIteration):
            if self.evaluations is not None:
                self.evaluations.ended(self.loader)
            if self.trains:
                self.marks.epoch_ended()
