"""The generated part of docs/accuracy.md: what was measured, what was found, and the confusion matrix."""

from __future__ import annotations

import math
import platform
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bed.causes import CAUSES
from bed.jobs import half_of
from bed.truth import family

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

QUIET = 0.1
"""Share of the cores' time that other programs take during a run, below which the machine is quiet."""

COSTS = 0.05, 0.1, 0.2, 0.4
"""Shares of a step between which faults are counted by what they cost."""

Row = dict[str, Any]
"""An outcome, as `Outcome.as_dict` writes it."""


def replace_part(page: str, part: str) -> str:
    """The page with another generated part.

    Raises:
        ValueError: the page does not have both markers, in order.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n\n{part.strip()}\n\n{END}{tail}"


def wilson(found: int, of: int) -> tuple[float, float]:
    """The share's interval of 95% confidence, by Wilson's score (Wilson 1927, J. Am. Stat. Assoc. 22, 209)."""
    z = 1.959964
    share, square = found / of, z * z / of
    middle, half = share + square / 2, z * math.sqrt((share * (1 - share) + square / 4) / of)
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def _share(rows: Sequence[Row], test: Callable[[Row], bool]) -> str:
    found = sum(map(test, rows))
    low, high = wilson(found, len(rows))
    return f"{found} of {len(rows)} ({found / len(rows):.1%}; {low:.1%} to {high:.1%})"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def _conditions(rows: Sequence[Row], versions: str) -> str:
    loads, others = [row["load"] for row in rows], [row["others"] for row in rows]
    waits = [share for row in rows for share in row["waited"] if share is not None]
    halves = sorted({half_of(row["plan"]["seed"]) for row in rows})
    which = " and ".join(f"the {half} half" for half in halves)
    text = [
        f"- {len(rows)} runs with seeds and models of {which}; {versions}.",
        f"- Load average over cores before each run: median {statistics.median(loads):.1f}, "
        f"from {min(loads):.1f} to {max(loads):.1f}. Other programs took {statistics.median(others):.0%} of the cores' "
        f"time in the median run, {min(others):.0%} to {max(others):.0%}.",
    ]
    if waits:
        text.append(
            f"- Share of the judged run that a rank's main thread waited for a core: median "
            f"{statistics.median(waits):.0%}, at most {max(waits):.0%}."
        )
    text += _accounts(rows)
    if any(row.get("again") for row in rows):
        text.append(
            "- **Some traces were judged again by changed checks (`--rejudge`): for development, no measurement.**"
        )
    return "\n".join(text)


def _accounts(rows: Sequence[Row]) -> list[str]:
    """How well the accounts of all ranks add up."""
    ranks = [one for row in rows for one in row.get("account", []) if one[0] > 0]
    if not ranks:
        return []
    off = [abs(total - wall) / wall for wall, total, _ in ranks]
    unknown = [lost / wall for wall, _, lost in ranks]
    return [
        f"- The account of a rank's life adds up to its wall time within 1% for {sum(x <= 0.01 for x in off)} of "
        f"{len(off)} ranks (at most {max(off):.2%} apart); less than 5% of it is not accounted for in "
        f"{sum(x < 0.05 for x in unknown)} of {len(unknown)} (at most {max(unknown):.1%})."
    ]


def _totals(faulty: Sequence[Row], healthy: Sequence[Row]) -> str:
    def judged(name: str) -> Callable[[Row], bool]:
        return lambda row: bool(row["judgement"][name])

    def both(row: Row) -> bool:
        return bool(row["judgement"]["cause"] and row["judgement"]["blame"] == "right")

    of_faults = (
        ("names the cause", judged("cause"), "97%"),
        ("names the cause and the culprit", both, "97%"),
        ("blames another rank", lambda row: row["judgement"]["blame"] == "another", "0.5%"),
        ("says healthy", lambda row: row["judgement"]["said"] == "healthy", "0%"),
    )
    lines = [(what, _share(faulty, test), goal) for what, test, goal in of_faults if faulty]
    if healthy:
        quiet = _share(healthy, lambda row: not row["judgement"]["alarms"])
        lines.append(("healthy runs without an alarm", quiet, "99%"))
    return _table(("of the first line", "runs (share; 95% interval)", "to reach"), lines)


def _by_family(faulty: Sequence[Row]) -> str:
    lines = []
    for name in sorted({_family(row) for row in faulty}):
        mine = [row for row in faulty if _family(row) == name]
        lines.append(
            (
                name,
                _share(mine, lambda r: bool(r["judgement"]["cause"])),
                _share(mine, lambda r: r["judgement"]["cause"] and r["judgement"]["blame"] == "right"),
                sum(row["judgement"]["blame"] == "another" for row in mine),
            )
        )
    return _table(("class of trouble", "cause right", "cause and culprit right", "another blamed"), lines)


def _family(row: Row) -> str:
    return family(row["drawn"]["truth"]["answers"][0]["kind"])


def _by_cause(rows: Sequence[Row]) -> str:
    """A row for each cause that was not always right, and the others in a sentence."""
    lines, right_ones = [], []
    for cause in CAUSES:
        mine = [row for row in rows if row["plan"]["cause"] == cause]
        costs = [row["cost"] for row in mine if row["cost"] is not None]
        cost = f"{statistics.median(costs):.2f}" if costs else ""
        right = sum(row["judgement"]["cause"] and row["judgement"]["blame"] == "right" for row in mine)
        said = Counter(row["judgement"]["said"] for row in mine)
        if right < len(mine):
            words = ", ".join(f"{kind} {count}" for kind, count in said.most_common())
            lines.append((cause, f"{right} of {len(mine)}", cost, words))
        elif mine:
            right_ones.append(cause)
    head = ("injected", "cause and culprit right", "step / without it", "said")
    sentence = f"Right in all of their runs: {', '.join(right_ones)}."
    return "\n\n".join([*([_table(head, lines)] if lines else []), *([sentence] if right_ones else [])])


def _by_cost(rows: Sequence[Row]) -> str:
    """How often the cause is named, over what it costs, however little; of causes that cost time."""
    timed = [
        row
        for row in rows
        if row["plan"]["cause"] in CAUSES
        and not CAUSES[row["plan"]["cause"]].always_counts
        and row["judgement"]
        and row["cost"] is not None
    ]
    lines = []
    for least, below in pairwise((0.0, *COSTS, float("inf"))):
        # Noise may make the step with the fault the shorter one.
        mine = [row for row in timed if least <= max(0.0, 1 - 1 / row["cost"]) < below]
        if mine:
            until = f"to {below:.0%}" if below < 1 else "and more"
            lines.append((f"{least:.0%} {until}", _share(mine, lambda r: bool(r["judgement"]["cause"]))))
    return _table(("of a step goes by because of it", "cause right"), lines) if lines else ""


def _alarms(healthy: Sequence[Row]) -> str:
    kinds = {row["plan"]["kind"] for row in healthy}
    found = Counter((row["plan"]["kind"], alarm) for row in healthy for alarm in row["judgement"]["alarms"])
    runs = f"Healthy trainings: {len(healthy)} of {len(kinds)} kinds."
    alarms = ", ".join(f"{alarm} in {kind} {count}" for (kind, alarm), count in sorted(found.items()))
    return f"{runs} Alarms: {alarms or 'none'}."


def figures(rows: Sequence[Row], versions: str) -> str:
    """The generated part, from the outcomes of all runs.

    Args:
        rows: at least one.
        versions: what was measured, in words.
    """
    counted = [row for row in rows if row["counts"]]
    faulty = [row for row in counted if row["plan"]["cause"] != "healthy"]
    healthy = [row for row in counted if row["plan"]["cause"] == "healthy"]
    cheap = Counter(
        row["plan"]["cause"] for row in rows if not row["problem"] and not row["counts"] and row["judgement"]
    )
    broken = Counter(row["plan"]["cause"] for row in rows if row["problem"])
    parts = [_conditions(rows, versions)]
    if cheap:
        parts.append(
            f"- Not counted, because the fault cost less than 10% of the step: {sum(cheap.values())}."
        )
    if broken:
        counts = ", ".join(f"{cause} {count}" for cause, count in broken.items())
        parts.append(f"- Not judged, because the run itself failed: {counts}.")
    unchecked = [name for name, cause in CAUSES.items() if not cause.checked]
    if unchecked:
        parts.append(
            f"- Not injected, because no check of this version looks for it: {', '.join(unchecked)}."
        )
    parts = ["\n".join(parts)]
    for name, which in (
        (
            f"Quiet machine (other programs took less than {QUIET:.0%} of the cores' time during the run)",
            lambda r: r["others"] < QUIET,
        ),
        (f"Busy machine (they took {QUIET:.0%} or more)", lambda r: r["others"] >= QUIET),
    ):
        some = list(filter(which, faulty)), list(filter(which, healthy))
        if any(some):
            parts += [f"### {name}", _totals(*some)]
    parts += ["### All runs", _by_family(faulty), _by_cost(rows), _by_cause(faulty)]
    if healthy:
        parts.append(_alarms(healthy))
    return "\n\n".join(filter(None, parts))


def versions() -> str:
    """Versions of what is measured, and the machine's size."""
    from importlib.metadata import version

    import psutil

    return (
        f"pyddpdiag {version('pyddpdiag')}, torch {version('torch')}, Python {platform.python_version()}, "
        f"{platform.system()}, {psutil.cpu_count()} cores"
    )


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes the figures into a page with markers."""
    page = replace_part(path.read_text(encoding="utf-8"), figures(rows, versions()))
    path.write_text(page, encoding="utf-8")
