"""Files into which several ranks of a machine save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from pyddpdiag.model.saves import Saved
from pyddpdiag.model.sidecar import Sidecar


@dataclass(frozen=True)
class SharedFile:
    """A file into which `ranks` save, each at least once.

    Attributes:
        ranks: of one machine.
        name: of the file.
        where: the line that saves it, on the lowest rank that knows it; empty: not known.
        times: saves of all of them.
        at_once: of the saves whose times are known, how many ran while another rank's did.
        known: how many that are.
    """

    ranks: tuple[int, ...]
    name: str
    where: str
    times: int
    at_once: int
    known: int


def shared_files(sidecars: Mapping[int, Sidecar], clocks: Mapping[int, str]) -> tuple[SharedFile, ...]:
    """The files into which several ranks save, those saved at the same time most often first.

    Args:
        sidecars: of the ranks.
        clocks: what names the clock of each rank's times; ranks of one machine have the same, whatever host their
            containers call it. Empty: not known.
    """
    by_file: dict[tuple[str, str], dict[int, Saved]] = {}
    for rank, sidecar in sorted(sidecars.items()):
        for one in sidecar.training.saved if clocks.get(rank) else ():
            by_file.setdefault((clocks[rank], one.file), {})[rank] = one
    found = [_shared(saved) for saved in by_file.values() if len(saved) > 1]
    return tuple(sorted(found, key=lambda one: (-one.at_once, -one.times)))


def _shared(saved: Mapping[int, Saved]) -> SharedFile:
    ranks = tuple(sorted(saved))
    spans = [(begin, end, rank) for rank, one in saved.items() for begin, end in one.spans]
    return SharedFile(
        ranks,
        saved[ranks[0]].name,
        next((saved[rank].where for rank in ranks if saved[rank].where), ""),
        sum(one.times for one in saved.values()),
        _at_once(spans),
        len(spans),
    )


def _at_once(spans: Sequence[tuple[int, int, int]]) -> int:
    """How many of these (begin, end, rank) overlap with one of another rank; files may hold any number of them."""
    order = sorted(spans)
    ends, begins = _Largest(), _Largest()
    meets = [False] * len(order)
    for place, (begin, end, rank) in enumerate(order):
        meets[place] = ends.of_others(rank) > begin
        ends.add(end, rank)
    for place in reversed(range(len(order))):
        begin, end, rank = order[place]
        meets[place] |= -begins.of_others(rank) < end
        begins.add(-begin, rank)
    return sum(meets)


class _Largest:
    """The largest value of each of the two ranks with the largest ones: so the largest of all but one is known."""

    def __init__(self) -> None:
        self._of_two: list[tuple[float, int]] = [(-inf, -1), (-inf, -2)]

    def of_others(self, rank: int) -> float:
        return next(value for value, whose in self._of_two if whose != rank)

    def add(self, value: float, rank: int) -> None:
        mine = max([value, *(each for each, whose in self._of_two if whose == rank)])
        others = [each for each in self._of_two if each[1] != rank]
        self._of_two = sorted([*others, (mine, rank)], reverse=True)[:2]


__all__ = ["SharedFile", "shared_files"]
