"""Files into which several ranks of a machine save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pyddpdiag.analyse.coverage import Coverage
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
    at_once = 0
    for rank, one in saved.items():
        theirs = [span for other, each in saved.items() if other != rank for span in each.spans]
        if one.spans and theirs:
            busy = Coverage(*np.array(theirs, np.int64).T)
            at_once += int(np.count_nonzero(busy.within(*np.array(one.spans, np.int64).T)))
    return SharedFile(
        ranks,
        saved[ranks[0]].name,
        next((saved[rank].where for rank in ranks if saved[rank].where), ""),
        sum(one.times for one in saved.values()),
        at_once,
        sum(len(one.spans) for one in saved.values()),
    )
