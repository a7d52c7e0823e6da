"""Did all ranks make the same all-reduces? Gaps and mismatches between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.analyse.operations import LISTED
from pyddpdiag.model.rows import Gap, Mismatch
from pyddpdiag.trace.layout import DTYPE_NAMES
from pyddpdiag.trace.ledger import COMPARED

if TYPE_CHECKING:
    from pyddpdiag.analyse.view import RunView

NAMED: Final = 64

FIELDS: Final = {"bytes": "bytes", "dtype": "dtype", "bucket": "reference"}
"""What must be the same on all ranks, and the column that holds it."""


def gaps(view: RunView) -> tuple[Gap, ...]:
    """Where a rank of a group has no record of an occurrence that others have; at most a thousand entries."""
    found: list[Gap] = []
    for key, ledger in view.merged.groups():
        if (ledger.common["count"] >= view.memberships[key].expected).all():
            continue
        seen = ledger.sequence
        for who in view.memberships[key].members:
            share = ledger.shares.get(who)
            if share is None:
                before, after, between, last = 0, len(seen), 0, None
            else:
                low, last = share.low[0], int(share.high[-1])
                before = int(np.searchsorted(seen, low, "left"))
                after = len(seen) - int(np.searchsorted(seen, share.high[-1], "right"))
                between = len(seen) - before - after - share.count
            if before or between or after:
                rank, group = view.progress[who].rank, view.names.group(key)
                found.append(Gap(rank, group, before, between, after, last, int(seen[-1])))
        if len(found) >= LISTED:
            break
    return tuple(found[:LISTED])


def mismatches(view: RunView) -> tuple[Mismatch, ...]:
    """All-reduces in which bytes, dtype or bucket differ between ranks; per field its first case."""
    groups = [(key, ledger) for key, ledger in view.merged.groups() if ledger.common["differs"].any()]
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
        values: dict[int, str] = {}
        for who, share in ledger.shares.items():
            if share.has(sequence) and len(values) < NAMED:
                # Nothing differs before the first case, so every rank that differs in it has it as its own
                # first case.
                at, value = share.differing.get(column, (-1, usual))
                values[view.progress[who].rank] = shown(field, value if at == sequence else usual)
        found.append(
            Mismatch(
                group=view.names.group(key),
                sequence=sequence,
                step=int(ledger.common["step"][case]),
                field=field,
                values=values,
                count=sum(map(len, differs)),
            )
        )
    return tuple(found)


def shown(field: str, value: int) -> str:
    """A value in which ranks differ."""
    if field == "dtype":
        return DTYPE_NAMES[value] if value < len(DTYPE_NAMES) else "other"
    return Names.bucket(value) if field == "bucket" else str(value)
