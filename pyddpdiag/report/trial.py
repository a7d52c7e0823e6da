"""A trial of cures in words and as a table, for the screen and for the page."""

from __future__ import annotations

import math
from typing import Final

from rich.text import Text

from pyddpdiag.model.tried import MARGIN, NOTHING, Tried, TriedCure
from pyddpdiag.model.words import closed, listed, milliseconds, percent, sentence
from pyddpdiag.report.screen import Screen
from pyddpdiag.report.tables import Table, cell

_ROUNDS = 12
"""Most trials are decided by then."""

_STYLE: Final = {"faster": "bold green", "same": "bold", "unknown": "bold magenta"}

TODAYS: Final = "today's setting"


def print_trial(screen: Screen, tried: Tried) -> None:
    """Prints its answer, its table, and the lines to paste."""
    style = "faster" if tried.best else "same" if tried.judged else "unknown"
    screen.console.print()
    screen.print(Text(answer(tried), _STYLE[style]), 2)
    if tried.cures and tried.today.rounds:
        screen.table(table(tried))
    for cure in worth_a_paste(tried):
        screen.console.print()
        screen.print(Text(f"To start this run with {cure.name}:", "dim"), 2)
        screen.print_whole(cure.line, 4)


def answer(tried: Tried) -> str:
    """What follows from it, in a sentence or two."""
    if not tried.cures:
        if tried.state == "running":
            return "The trial looks for what can be tried."
        why = "the trial was interrupted" if tried.state == "interrupted" else tried.why
        return f"Nothing was tried: {closed(why)}" if why else "Nothing was tried."
    why = closed(sentence(tried.why)) if tried.why else ""
    return sentence(" ".join(filter(None, (_found(tried), _state(tried), why, _would_decide(tried)))))


def _would_decide(tried: Tried) -> str:
    """For how long to try so that it is decided; empty: it is, or nobody can tell.

    An interval narrows with the square root of the rounds. That of the most promising cure decides once it reaches
    from its middle no further than today's step, or than what is worth a cure, whichever is farther away.
    """
    open_cures = [cure for cure in tried.cures if not cure.left and cure.ratio is not None]
    if tried.minutes <= 0 or not open_cures or tried.verdict not in ("no sure gain", "could not judge"):
        return ""
    most = min(open_cures, key=lambda cure: cure.ratio or 1.0)
    ratio = most.ratio or 1.0
    if most.ratio_low is None or most.ratio_high is None:
        more = _ROUNDS / max(1, most.rounds)
    else:
        enough = max(1 - ratio, ratio - (1 - MARGIN))
        more = ((most.ratio_high - most.ratio_low) / 2 / enough) ** 2
    minutes = tried.minutes * max(2.0, more)
    if minutes > 60:
        return "An hour would not decide it: its steps differ too much here."
    return f"--minutes {math.ceil(minutes)} would decide it."


def _found(tried: Tried) -> str:
    best = tried.best_cure
    if best is not None and best.ratio is not None:
        saved = "" if best.saved_ms is None else f", {milliseconds(best.saved_ms)} less"
        kept = " It is kept." if tried.kept == best.name and tried.state == "decided" else ""
        return f"{best.name} takes the step to {interval(best)} of what it is{saved}.{kept}"
    if not tried.judged:
        return {"running": "Nothing can be said yet.", "interrupted": "Nothing can be said."}.get(
            tried.state, "The trial could not judge."
        )
    if tried.state in ("running", "interrupted"):
        return "So far, nothing is faster for sure than the run as it is."
    if tried.verdict not in NOTHING:
        return "The trial could not judge."
    names = listed([cure.name for cure in tried.cures], 12)
    words = sentence(tried.verdict)
    most = min(tried.cures, key=lambda cure: 1.0 if cure.ratio_low is None or cure.left else cure.ratio_low)
    could = 1.0 if most.ratio_low is None or most.left else most.ratio_low
    if tried.verdict == "nothing to gain":
        which = names if len(tried.cures) == 1 else f"none of {names}"
        return f"{words}: {which} is {'not ' if len(tried.cures) == 1 else ''}faster than today's setting."
    if could < 1 - MARGIN:
        more = f"{most.name} might still save up to {percent(1 - could)}, or nothing"
    else:
        unknown = [cure.name for cure in tried.cures if cure.ratio_low is None and not cure.left]
        more = f"Of {listed(unknown, 12)} too little is known"
    return f"{words}: no interval lies below 1. {more}: more rounds would tell."


def status(tried: Tried) -> str:
    """Where it stands, or what followed from it, in a few words."""
    if tried.state == "running":
        return f"trial of cures, now with {tried.now or TODAYS}"
    best = tried.best_cure
    found = f"{best.name} is faster, {interval(best)} of the step" if best is not None else tried.verdict
    return f"trial of cures: {'interrupted' if found == 'not over' else found}"


def _state(tried: Tried) -> str:
    if tried.state == "running":
        return f"The trial goes on; now with {tried.now or TODAYS}."
    return {
        "decided": "",
        "time_over": "Its time was over before the best was known to within 2%.",
        "failed": "The trial failed, and nothing was changed.",
        "interrupted": "The trial was interrupted.",
    }[tried.state]


def interval(cure: TriedCure) -> str:
    """Its ratio to today's step with the interval, as far as they are known."""
    if cure.ratio is None:
        return "-"
    if cure.ratio_low is None or cure.ratio_high is None:
        return f"{cure.ratio:.2f}"
    return f"{cure.ratio:.2f} ({cure.ratio_low:.2f} to {cure.ratio_high:.2f})"


def bits(cure: TriedCure) -> str:
    """Whether the training keeps its bits."""
    return "-" if cure.same_bits is None else "same" if cure.same_bits else "changed"


def table(tried: Tried, *, with_lines: bool = False) -> Table:
    """The settings, today's first. `with_lines`: a column with the command of each."""
    rows = [tried.today, *tried.cures]
    predicted = any(cure.predicted_saved_ms is not None for cure in rows)

    columns = {
        "setting": ["today's", *(cure.name for cure in tried.cures)],
        "rounds": [str(cure.rounds) for cure in rows],
        "step": [cell(cure.step_ms) for cure in rows],
        "of today's (95%)": ["1", *(interval(cure) for cure in tried.cures)],
        "saves": ["", *(cell(cure.saved_ms) for cure in tried.cures)],
        **(
            {"predicted": ["", *(cell(cure.predicted_saved_ms) for cure in tried.cures)]} if predicted else {}
        ),
        "exposed": [cell(cure.exposed_ms) for cure in rows],
        "bits": ["same", *(bits(cure) for cure in tried.cures)],
        " remark": ["", *(_remark(tried, cure) for cure in tried.cures)],
        **({" line": [cure.line for cure in rows]} if with_lines else {}),
    }
    where = {
        "in_run": "in turns in this run",
        "restart": "each in starts of its own",
    }[tried.way]
    note = f"Tried {where}. A cure's step is today's times its ratio, which is of the rounds in which both were on."
    if predicted:
        note += " Predicted: what the report of the steps as they are expected a cure to save."
    return Table("What was tried (ms per step, slowest rank)", columns, 1, note=note)


def _remark(tried: Tried, cure: TriedCure) -> str:
    if cure.left:
        return f"left: {cure.left}"
    if cure.name == tried.best:
        return "best"
    if cure.is_faster:
        return "faster"
    if cure.ratio_low is not None and cure.ratio_low > 1:
        return "slower"
    return "" if cure.ratio is None else "no sure difference"


def worth_a_paste(tried: Tried) -> list[TriedCure]:
    """Those whose line is worth a paste: the best first."""
    faster = [cure for cure in tried.cures if cure.is_faster and cure.line]
    return sorted(faster, key=lambda cure: (cure.name != tried.best, cure.ratio or 1.0))[:3]


def compared(cure: TriedCure) -> str:
    """What was expected of it beside what it saves, in a sentence; empty: nothing was expected, or it is not known."""
    if cure.predicted_saved_ms is None or cure.saved_ms is None:
        return ""
    return (
        f"{cure.name}: {milliseconds(cure.predicted_saved_ms)} were expected, and it saves "
        f"{milliseconds(cure.saved_ms)}"
        + (
            f" ({percent(cure.saved_ms / cure.predicted_saved_ms)} of that)."
            if cure.predicted_saved_ms > 0
            else "."
        )
    )
