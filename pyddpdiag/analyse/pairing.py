"""Did all ranks make the same all-reduces? Gaps and mismatches between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.model import Gap, Mismatch
from pyddpdiag.trace.layout import DTYPE_NAMES
from pyddpdiag.trace.ledger import COMPARED
from pyddpdiag.trace.merge import Membership, Merged
from pyddpdiag.trace.run import Run

LISTED: Final = 1000
NAMED: Final = 64

FIELDS: Final = {"bytes": "bytes", "dtype": "dtype", "bucket": "reference"}
"""What must be the same on all ranks, and the column that holds it."""


def gaps(run: Run, merged: Merged, groups: Mapping[int, Membership], names: Names) -> tuple[Gap, ...]:
    """Where a rank of a group has no record of an occurrence that others have; at most a thousand entries."""
    found: list[Gap] = []
    for key, ledger in merged.groups():
        if (ledger.common["count"] >= groups[key].expected).all():
            continue
        seen = ledger.sequence
        for who in groups[key].members:
            share = ledger.shares.get(who)
            if share is None:
                before, after, between, last = 0, len(seen), 0, None
            else:
                low, last = share.low[0], int(share.high[-1])
                before = int(np.searchsorted(seen, low, "left"))
                after = len(seen) - int(np.searchsorted(seen, share.high[-1], "right"))
                between = len(seen) - before - after - share.count
            if before or between or after:
                found.append(
                    Gap(run.ranks[who].rank, names.group(key), before, between, after, last, int(seen[-1]))
                )
        if len(found) >= LISTED:
            break
    return tuple(found[:LISTED])


def mismatches(run: Run, merged: Merged, names: Names) -> tuple[Mismatch, ...]:
    """All-reduces in which bytes, dtype or bucket differ between ranks; per field its first case."""
    groups = [(key, ledger) for key, ledger in merged.groups() if ledger.common["differs"].any()]
    found = []
    for field, column in FIELDS.items():
        bit = np.uint8(1 << COMPARED.index(column))
        differs = [np.flatnonzero(ledger.common["differs"] & bit) for _, ledger in groups]
        cases = [number for number, places in enumerate(differs) if len(places)]
        if not cases:
            continue
        (key, ledger), case = groups[cases[0]], int(differs[cases[0]][0])
        sequence = int(ledger.sequence[case])
        usual = int(ledger.common[column][case])
        shown: dict[int, str] = {}
        for who, share in ledger.shares.items():
            if share.has(sequence) and len(shown) < NAMED:
                # Nothing differs before the first case, so every rank that differs in it has it as its own
                # first case.
                at, value = share.differing.get(column, (-1, usual))
                shown[run.ranks[who].rank] = _show(field, value if at == sequence else usual)
        found.append(
            Mismatch(
                group=names.group(key),
                sequence=sequence,
                step=int(ledger.common["step"][case]),
                field=field,
                values=shown,
                count=sum(map(len, differs)),
            )
        )
    return tuple(found)


def _show(field: str, value: int) -> str:
    if field == "dtype":
        return DTYPE_NAMES[value] if value < len(DTYPE_NAMES) else "other"
    return Names.bucket(value) if field == "bucket" else str(value)
