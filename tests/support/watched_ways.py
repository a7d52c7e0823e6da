"""One rank that trains in several ways after each other, each recorded as `pyddpdiag run` does."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pyddpdiag.integrations import unchanged
from pyddpdiag.integrations.watched import Watched


def record_each(folder: Path, ways: Sequence[str], rank: int, train: Callable[[str, int], None]) -> None:
    """Leaves the trace of each way in `folder/<way>`."""
    for way in ways:
        watched = Watched(str(folder / way), {"capacity_mb": 1})
        unchanged.watch(watched)
        train(way, rank)
        assert watched.session is not None
        watched.session.close()
