"""Which of many ranks to show each by itself: those that a finding names, and those that differ from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from pyddpdiag.model.report import RunReport
from pyddpdiag.model.rows import RankStats

FEW: Final = 16
"""So many ranks are all shown."""

SHOWN: Final = 12
"""Of more ranks, so many at most are shown each by itself."""

_SPREADS: Final = 6.0
_LEAST_SHARE: Final = 0.1
_MAD: Final = 1.4826
"""By which the median of absolute deviations becomes a standard deviation, for values that are normally distributed."""

_TIMES: Final[tuple[Callable[[RankStats], float | None], ...]] = (
    lambda rank: rank.compute_ms.median,
    lambda rank: rank.data_wait_ms.median,
    lambda rank: rank.own_ms.median,
    lambda rank: float(rank.steps),
)


def outstanding(report: RunReport, remarks: Mapping[int, str]) -> list[RankStats]:
    """The ranks to show, sorted by rank; all, if they are few.

    A rank differs if its compute, data wait, own time or number of steps is away from the ranks' median by six times
    their spread and a tenth of the median.

    Args:
        report: of the run.
        remarks: what is unusual about a rank, by rank, where something is. What most ranks have is not unusual.
    """
    if len(report.ranks) <= FEW:
        return list(report.ranks)
    findings = report.verdict.findings
    named = [rank for finding in findings for rank in (finding.rank, finding.peer) if rank is not None]
    common = {text for text, times in Counter(remarks.values()).items() if 2 * times > len(report.ranks)}
    remarked = [rank for rank, text in sorted(remarks.items()) if text not in common]
    chosen = list(dict.fromkeys([*named, *remarked, *_different(report.ranks)]))[:SHOWN]
    wanted = set(chosen)
    return [rank for rank in report.ranks if rank.rank in wanted]


def _different(ranks: Sequence[RankStats]) -> list[int]:
    """The ranks that differ, the most different first."""
    worst: dict[int, float] = {}
    for time in _TIMES:
        known = {rank.rank: value for rank in ranks if (value := time(rank)) is not None}
        if len(known) < 3:
            continue
        values = np.array(list(known.values()))
        middle = float(np.median(values))
        away = np.abs(values - middle)
        least = max(_SPREADS * _MAD * float(np.median(away)), _LEAST_SHARE * abs(middle), 1e-9)
        for rank, far in zip(known, (away / least).tolist(), strict=True):
            if far > 1:
                worst[rank] = max(worst.get(rank, 0.0), far)
    return sorted(worst, key=lambda rank: -worst[rank])
