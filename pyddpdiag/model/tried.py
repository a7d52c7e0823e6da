"""A trial of cures: its settings, what blocks of steps showed of each, and what follows (docs/cures.md).

A part of a rank's sidecar, a file beside the starts of a trial by starts, and a part of the report. Everything is
bounded, however long a trial is; a reader trusts nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Final, Literal, cast, get_args

from pyddpdiag.model.launch import ARGUMENTS_LIMIT, LENGTH_LIMIT
from pyddpdiag.model.untrusted import needed_list, needed_whole, number, text, whole
from pyddpdiag.output import clean

TrialState = Literal["running", "decided", "time_over", "failed", "interrupted"]
TrialWay = Literal["in_run", "restart"]
Keep = Literal["best", "none"]

Verdict = Literal["faster", "nothing to gain", "no sure gain", "could not judge", "not over"]
"""`faster`: the best cure is, for sure. `nothing to gain`: no cure is, and none could save more than 2% of a step.
`no sure gain`: none is for sure, but one might save more. `could not judge`: of no cure enough is known. `not over`:
the trial goes on, or was interrupted."""

NOTHING: Final = ("nothing to gain", "no sure gain")

NAME: Final = "trial.json"
"""The file in the folder of a trial by starts that holds it."""

TODAY: Final = ""
"""Stands for today's setting in `best`, `kept` and `now`."""

AS_IT_IS: Final = "as it is"
"""What today's setting is called."""

MARGIN: Final = 0.02
"""The best is known when another choice could save no more than this part of a step."""

SCHEMA_VERSION: Final = 1
MOST_CURES: Final = 64
MOST_BLOCKS: Final = 512
_TEXT: Final = 512


@dataclass(frozen=True)
class Block:
    """Passes in a row, or a start, with one setting.

    Attributes:
        round: of the trial, from 0: its blocks are compared with each other.
        step_s: median of the counted steps of the slowest rank.
        exposed_s: median time of a step that a rank waits for communication; None: not known.
        passes: that were counted; the first ones after a change are not.
        spread: of these, as a part of `step_s`: their standard deviation, if they are normal.
        first_step, last_step: of the trace; 0 where the script marks no steps.
    """

    round: int
    step_s: float
    exposed_s: float | None = None
    passes: int = 0
    spread: float = 0.0
    first_step: int = 0
    last_step: int = 0


@dataclass(frozen=True)
class TriedCure:
    """One setting of a trial.

    Attributes:
        name: for people, as "shared memory"; `AS_IT_IS` for today's setting.
        options: of `pyddpdiag run` that ask for it, with their values; "" for a flag. Of today's setting: all it has.
        rounds: in how many it was measured.
        step_ms: of today's setting, the median of its blocks; of a cure, that times its ratio.
        ratio, ratio_low, ratio_high: of its step to today's, with its interval (95% over the whole trial, all cures
            together); below 1 it is faster. None: not known.
        saved_ms: of today's step.
        exposed_ms: what a rank waits for communication per step.
        same_bits: whether the training's result keeps its bits with it; None: it cannot be told.
        left: why it gets no more turns, or never had one; empty: it was not left.
        predicted_saved_ms: what the report of the steps with today's setting expected it to save; None: nothing.
        line: the command that starts this run with it; empty: not known.
        blocks: in which it was on; none in a report.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    rounds: int = 0
    step_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    saved_ms: float | None = None
    exposed_ms: float | None = None
    same_bits: bool | None = None
    left: str = ""
    predicted_saved_ms: float | None = None
    line: str = ""
    blocks: tuple[Block, ...] = ()

    @property
    def is_faster(self) -> bool:
        """Whether its whole interval lies below today's step."""
        return self.ratio_high is not None and self.ratio_high < 1 and not self.left


@dataclass(frozen=True)
class Tried:
    """A trial.

    Attributes:
        way: whether cures took turns in one run, or the command was started again for each.
        state: where it stands, or how it ended.
        why: what ended it, or what it could not do, in a sentence; empty: nothing to say.
        today: the setting that the others are compared with.
        cures: the others, in the order in which they were named.
        best: the name of the best; `TODAY`: nothing is to be gained, or it is not known yet.
        kept: what the training goes on with; `TODAY`: today's setting, or it does not go on.
        now: which one is on now; `TODAY`: today's setting, or the trial is over.
        minutes: that it might take; 0: not known.
        took_s: the time since its first block.
    """

    way: TrialWay
    state: TrialState
    today: TriedCure
    cures: tuple[TriedCure, ...] = ()
    why: str = ""
    best: str = TODAY
    kept: str = TODAY
    now: str = TODAY
    minutes: float = 0.0
    took_s: float = 0.0

    @property
    def best_cure(self) -> TriedCure | None:
        """The best; None: there is none."""
        return next((cure for cure in self.cures if cure.name == self.best), None)

    @property
    def judged(self) -> bool:
        """Whether something follows from it: of one cure an interval is known, or all were left."""
        known = any(cure.ratio_high is not None for cure in self.cures)
        return self.today.rounds > 0 and (known or (bool(self.cures) and all(c.left for c in self.cures)))

    @property
    def verdict(self) -> Verdict:
        """What follows from it, in the words that are said everywhere."""
        if self.best_cure is not None:
            return "faster"
        if self.state not in ("decided", "time_over"):
            return "not over"
        if not self.judged:
            return "could not judge"
        # Of a cure without an interval, nothing is known: neither that it saves something, nor that it does not.
        lows = [cure.ratio_low for cure in self.cures if not cure.left]
        nothing = all(low is not None and low >= 1 - MARGIN for low in lows)
        return "nothing to gain" if nothing else "no sure gain"

    @property
    def answers(self) -> bool:
        """Whether it says something about this run: what cures are worth, or that there is none to try."""
        return self.judged or (self.state == "decided" and not self.cures)


def tried_to_json(tried: Tried) -> dict[str, Any]:
    """The content of the file, and the entry of a sidecar."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": tried.verdict,
        **asdict(tried),
        "today": _cure_to_json(tried.today),
        "cures": [_cure_to_json(each) for each in tried.cures[:MOST_CURES]],
    }


def tried_from_json(raw: Any) -> Tried | None:
    """What can be understood of it; None: it is no trial."""
    if not isinstance(raw, Mapping) or raw.get("schema_version") != SCHEMA_VERSION:
        return None
    way, state = raw.get("way"), raw.get("state")
    if way not in get_args(TrialWay) or state not in get_args(TrialState):
        return None
    try:
        return Tried(
            way=cast(TrialWay, way),
            state=cast(TrialState, state),
            today=_cure(raw.get("today")),
            cures=tuple(_cure(each) for each in needed_list(raw.get("cures"), MOST_CURES)),
            **{name: text(raw, name, _TEXT) for name in ("why", "best", "kept", "now")},
            minutes=number(raw.get("minutes")) or 0.0,
            took_s=number(raw.get("took_s")) or 0.0,
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _cure_to_json(cure: TriedCure) -> dict[str, Any]:
    # Columns: a trial may have hundreds of blocks.
    return {**asdict(cure), "blocks": [list(astuple(each)) for each in cure.blocks[:MOST_BLOCKS]]}


def _cure(raw: Any) -> TriedCure:
    if not isinstance(raw, Mapping):
        raise TypeError("no object")
    options = raw.get("options")
    bits = raw.get("same_bits")
    return TriedCure(
        name=text(raw, "name", _TEXT),
        options={
            clean(name, _TEXT): clean(value, _TEXT)
            for name, value in (list(options.items())[:MOST_CURES] if isinstance(options, Mapping) else ())
            if isinstance(name, str) and isinstance(value, str)
        },
        rounds=whole(raw.get("rounds")),
        saved_ms=_signed(raw.get("saved_ms")),
        same_bits=bits if isinstance(bits, bool) else None,
        left=text(raw, "left", _TEXT),
        line=text(raw, "line", LENGTH_LIMIT + 8 * ARGUMENTS_LIMIT),
        blocks=tuple(_block(each) for each in needed_list(raw.get("blocks", []), MOST_BLOCKS)),
        **{
            name: number(raw.get(name))
            for name in ("step_ms", "ratio", "ratio_low", "ratio_high", "exposed_ms", "predicted_saved_ms")
        },
    )


def _block(raw: Any) -> Block:
    at, step_s, exposed_s, passes, spread, first_step, last_step = needed_list(raw, 7)
    return Block(
        needed_whole(at),
        number(step_s) or 0.0,
        number(exposed_s),
        needed_whole(passes),
        number(spread) or 0.0,
        needed_whole(first_step),
        needed_whole(last_step),
    )


def _signed(value: Any) -> float | None:
    """A number that may be negative."""
    if isinstance(value, float) and value < 0:
        below = number(-value)
        return None if below is None else -below
    return number(value)


__all__ = [
    "AS_IT_IS",
    "MARGIN",
    "MOST_BLOCKS",
    "NAME",
    "NOTHING",
    "TODAY",
    "Block",
    "Keep",
    "TrialState",
    "TrialWay",
    "Tried",
    "TriedCure",
    "Verdict",
    "tried_from_json",
    "tried_to_json",
]
