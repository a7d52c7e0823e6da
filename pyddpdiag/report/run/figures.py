"""The four numbers of a run: what a step takes, what is exposed, what a late rank costs, what the best cure saves."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import LEAST_MS
from pyddpdiag.analyse.step_matrix import judged_walls
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.kinds import kind_of
from pyddpdiag.model.report import RunReport
from pyddpdiag.model.words import milliseconds, number, percent
from pyddpdiag.report.page import Figure

UNLIKE: Final = 1.5
"""A mean step that takes so many times a median one."""


def figures(report: RunReport) -> list[Figure]:
    """The four numbers; empty where no step is known."""
    _, walls = judged_walls(report.steps)
    if not len(walls):
        return []
    step = float(np.median(walls))
    mean, late = float(walls.mean()), float(np.percentile(walls, 95))
    return [
        Figure("Step", milliseconds(step), f"median; mean {number(mean)}, 95% below {milliseconds(late)}"),
        _exposed(report, step),
        _late(report),
        _saved(report, step, mean),
    ]


def _exposed(report: RunReport, step: float) -> Figure:
    steps = report.steps.take(report.steps.judged)
    communication = steps.communication_ms
    known = communication[np.isfinite(communication)]
    if not len(known):
        return Figure("Exposed", "-", "how much communication is hidden is not known")
    exposed = float(np.median(known))
    share = percent(exposed / step) if step else "-"
    return Figure("Exposed", milliseconds(exposed), f"{share} of the step: communication beyond backward")


def _late(report: RunReport) -> Figure:
    found = next((one for one in report.verdict.findings if _is_late(one)), None)
    if found is not None and found.cost_ms is not None:
        often = found.evidence.get("share_of_steps")
        share = f" in {percent(often)} of steps" if isinstance(often, float) else ""
        return Figure(
            "Late", milliseconds(found.cost_ms), f"rank {found.rank}, for which the others wait{share}", "bad"
        )
    steps = report.steps.take(report.steps.judged)
    late = steps.late_ms
    known = np.isfinite(late)
    if not known.any():
        return Figure("Late", "-", "not known")
    _, at = np.unique(steps.step[known], return_inverse=True)
    most = np.zeros(int(at.max()) + 1)
    np.maximum.at(most, at, late[known])
    return Figure("Late", milliseconds(float(np.median(most))), f"waiting for the last rank{_last(report)}")


def _is_late(finding: Finding) -> bool:
    return finding.rank is not None and kind_of(finding).marks in ("own", "life")


def _last(report: RunReport) -> str:
    """Which rank is the last one most often."""
    shares = {rank.rank: rank.last_arrivals / rank.arrivals for rank in report.ranks if rank.arrivals}
    if len(shares) < 2:
        return ""
    rank = max(shares, key=lambda each: shares[each])
    return f": rank {rank} most often, for {percent(shares[rank])} of buckets"


def _saved(report: RunReport, step: float, mean: float) -> Figure:
    """The finding whose cure saves most; nothing is added up, as cures overlap."""
    savings = [(saving, finding) for finding in report.verdict.findings if (saving := _saving(finding))]
    if not savings:
        return Figure("Could be saved", "-", "nothing found to cure")
    saving, finding = max(savings, key=lambda each: each[0])
    # What comes now and then is more than a typical step takes: it is a part of the mean one.
    whole, of = (mean, "of a mean step") if mean >= UNLIKE * step else (step, "of a step")
    share = f" ({percent(min(1.0, saving / whole))})" if whole else ""
    how = kind_of(finding).cured(finding) + ("; confidence low" if finding.confidence == "low" else "")
    return Figure("Could be saved", f"{number(saving)} ms", f"{of}{share}, {how}", "good")


def _saving(finding: Finding) -> float | None:
    """What the best cure for it saves, where that is worth a word."""
    savings = [] if finding.severity == "note" else kind_of(finding).savings(finding).values()
    return max((saving for saving in savings if saving >= LEAST_MS), default=None)
