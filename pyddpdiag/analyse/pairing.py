"""Did all ranks make the same all-reduces? Gaps and mismatches between them."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.names import Names
from pyddpdiag.model import Gap, Mismatch
from pyddpdiag.trace.layout import DTYPE_NAMES
from pyddpdiag.trace.merge import Merged
from pyddpdiag.trace.run import Run

LISTED: Final = 1000


def gaps(run: Run, merged: Merged, names: Names) -> tuple[Gap, ...]:
    """Where a rank of a group has no record of an occurrence that others have; at most a thousand entries."""
    if merged.paired.all():
        return ()
    rows, first = merged.rows, merged.first
    group, sequence = rows.group[first], rows.sequence[first]
    keys, begin = np.unique(group, return_index=True)
    end = np.append(begin[1:], len(group))
    code_of_row = np.searchsorted(keys, rows.group)
    pair = code_of_row * len(run.ranks) + rows.who
    # Rows are sorted by sequence within a group, so first and last row of a pair hold its first and last
    # sequence.
    pairs, first_row, have = np.unique(pair, return_index=True, return_counts=True)
    last_row = len(pair) - 1 - np.unique(pair[::-1], return_index=True)[1]
    place = {int(value): number for number, value in enumerate(pairs.tolist())}
    affected = np.unique(np.searchsorted(keys, group[~merged.paired]))
    found: list[Gap] = []
    for code in affected.tolist():
        seen = sequence[begin[code] : end[code]]
        for who in merged.members[int(keys[code])]:
            number = place.get(code * len(run.ranks) + who)
            if number is None:
                before, after, between, last = 0, len(seen), 0, None
            else:
                low, high = rows.sequence[first_row[number]], rows.sequence[last_row[number]]
                before = int(np.searchsorted(seen, low, "left"))
                after = len(seen) - int(np.searchsorted(seen, high, "right"))
                between, last = len(seen) - before - after - int(have[number]), int(high)
            if before or between or after:
                found.append(
                    Gap(
                        run.ranks[who].rank,
                        names.group(int(keys[code])),
                        before,
                        between,
                        after,
                        last,
                        int(seen[-1]),
                    )
                )
        if len(found) >= LISTED:
            break
    return tuple(found[:LISTED])


def mismatches(run: Run, merged: Merged, names: Names) -> tuple[Mismatch, ...]:
    """All-reduces in which bytes, dtype or bucket differ between ranks; per field its first case."""
    rows, first = merged.rows, merged.first
    if not len(first):
        return ()
    found = []
    for field, values in (("bytes", rows.bytes), ("dtype", rows.dtype), ("bucket", rows.reference)):
        differs = np.flatnonzero(np.maximum.reduceat(values, first) != np.minimum.reduceat(values, first))
        if not len(differs):
            continue
        case = int(differs[0])
        part = slice(int(first[case]), int(first[case] + merged.count[case]))
        told = {
            run.ranks[who].rank: _show(field, value)
            for who, value in zip(rows.who[part].tolist(), values[part].tolist(), strict=True)
        }
        found.append(
            Mismatch(
                group=names.group(int(rows.group[first[case]])),
                sequence=int(rows.sequence[first[case]]),
                step=int(rows.step[first[case]]),
                field=field,
                values=dict(list(told.items())[:64]),
                count=len(differs),
            )
        )
    return tuple(found)


def _show(field: str, value: int) -> str:
    if field == "dtype":
        return DTYPE_NAMES[value] if value < len(DTYPE_NAMES) else "other"
    return Names.bucket(value) if field == "bucket" else str(value)
