"""The job of a training's ranks, which the starting process can hold without loading torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyddpdiag.ranks.events import Note
from pyddpdiag.ranks.session import Session as RankSession
from pyddpdiag.train.events import TrainResult
from pyddpdiag.train.settings import TrainSettings

if TYPE_CHECKING:
    from pyddpdiag.train.rank_session import Session


def train(
    settings: TrainSettings, own: Callable[[Session], TrainResult] | None, rank: RankSession
) -> TrainResult:
    """Trains on one rank with the built-in loop, or with `own` if given. Bound to its settings, it is a
    job."""
    from pyddpdiag.train.loop import train_rank
    from pyddpdiag.train.rank_session import Session

    def tell(event: object) -> None:
        if isinstance(event, Note):
            rank.send(event)
        else:
            rank.tell(event)

    return (own or train_rank)(Session(settings, rank.place, rank.payload, tell))
