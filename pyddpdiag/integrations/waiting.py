"""A loop that waits for batches of DataLoaders."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from pyddpdiag.system.clock import monotonic_ns

if TYPE_CHECKING:
    from pyddpdiag.integrations.recorded_training import Session

AT_ONCE_NS: Final = 50_000_000
"""A loop that takes the first batch so soon after the iterator was made has waited for it since then."""


class Waits:
    """Which iterator the loop waited for last, and which one it trains on. What each batch calls has few lines."""

    def __init__(self) -> None:
        self._loader: Callable[[], Any] = _none
        self._trains_on: Callable[[], Any] = _none  # the iterator whose batch the open step has
        self._trained_on: tuple[Callable[[], Any], int] = _none, 0  # an iterator, and how far it had come
        self._made: tuple[weakref.ref[Any], int, int] | None = None  # an iterator, and since and until when

    def begins(self, session: Session, loader: object) -> None:
        """The loop begins to wait for a batch from an iterator."""
        again = self._loader() is loader
        if not again:
            self._loader = weakref.ref(loader)
        since_ns = self._made_since(loader) if self._made is not None else 0
        session.steps.waits(again=again, since_ns=since_ns)

    def took(self, session: Session, loader: object, batch: object) -> None:
        """It is there."""
        marks = session.steps
        marks.batch_came = monotonic_ns()
        if not torch.is_grad_enabled():
            since_ns = marks.waits_since or marks.batch_came
            session.recorder.modules.training.evaluations.took(loader, batch, since_ns)

    def took_none(self, session: Session, loader: object, error: BaseException) -> None:
        """An exception is there in its place, such as that there are no more."""
        marks = session.steps
        marks.forget()
        if isinstance(error, StopIteration):
            if not torch.is_grad_enabled():
                session.recorder.modules.training.evaluations.ended(loader)
            if self._trains_on() is loader:
                marks.epoch_ended()

    def made(self, loader: object, since_ns: int) -> None:
        """An iterator was made from then on, which starts its workers."""
        self._made = (weakref.ref(loader), since_ns, monotonic_ns())

    def trains(self, session: Session, *, by_batches: bool, sure: bool) -> None:
        """A step begins; `by_batches`: with the batch that came last. Notes the loader, once each time through it."""
        self._trains_on = self._loader if by_batches else _none
        loader = self._loader() if by_batches and sure else None
        if loader is None:
            return
        (before, last), at = self._trained_on, int(getattr(loader, "_num_yielded", 0))
        # Workers that persist keep their iterator, which then counts from 0 again.
        if before() is not loader or at <= last:
            session.recorder.modules.training.loaders.begins(loader)
        self._trained_on = self._loader, at

    def _made_since(self, loader: object) -> int:
        """Since when the loop waits for the first batch of an iterator; 0: not just made."""
        made, self._made = self._made, None
        if made is None or made[0]() is not loader or monotonic_ns() - made[2] > AT_ONCE_NS:
            return 0
        return made[1]


def _none() -> None:
    """In place of a reference."""
