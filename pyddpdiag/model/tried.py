"""A trial of cures: its settings, what blocks of steps showed of each, and what follows (docs/cures.md).

A part of a rank's sidecar, a file beside the starts of a trial by starts, and a part of the report. Everything is
bounded, however long a trial is; a reader trusts nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from typing import Annotated, Any, ClassVar, Final, Literal

from pyddpdiag.model.fields import Form, Limit, from_json, maybe_from_json, to_json
from pyddpdiag.model.launch import ARGUMENTS_LIMIT, LENGTH_LIMIT
from pyddpdiag.model.untrusted import needed_list, number

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
MOST_BLOCKS: Final = 512


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


def _rows(blocks: tuple[Block, ...]) -> list[list[Any]]:
    """Without names: a trial may have hundreds."""
    return [list(astuple(each)) for each in blocks[:MOST_BLOCKS]]


def _blocks(rows: Any) -> tuple[Block, ...]:
    names = [each.name for each in fields(Block)]
    return tuple(
        from_json(Block, dict(zip(names, row, strict=True))) for row in needed_list(rows, MOST_BLOCKS)
    )


def _signed(value: Any) -> float | None:
    """A number that may be negative."""
    negative = isinstance(value, float) and value < 0
    found = number(-value if negative else value)
    return -found if negative and found is not None else found


_Text = Annotated[str, Limit(512)]
_Signed = Annotated[float | None, Form(lambda value: value, _signed)]
_Blocks = Annotated[tuple[Block, ...], Form(_rows, _blocks)]


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

    forgiving: ClassVar[bool] = True

    name: _Text
    options: Mapping[_Text, _Text] = field(default_factory=dict)
    rounds: int = 0
    step_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    saved_ms: _Signed = None
    exposed_ms: float | None = None
    same_bits: bool | None = None
    left: _Text = ""
    predicted_saved_ms: float | None = None
    line: Annotated[str, Limit(LENGTH_LIMIT + 8 * ARGUMENTS_LIMIT)] = ""
    blocks: _Blocks = ()

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
    why: _Text = ""
    best: _Text = TODAY
    kept: _Text = TODAY
    now: _Text = TODAY
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
    """The content of the file."""
    return {"schema_version": SCHEMA_VERSION, "verdict": tried.verdict, **to_json(tried)}


def tried_from_json(raw: Any) -> Tried | None:
    """What can be understood of it; None: it is no trial."""
    known = isinstance(raw, Mapping) and raw.get("schema_version") == SCHEMA_VERSION
    return maybe_from_json(Tried, raw) if known else None
