"""What a trial of cures has shown of each of them, as rows of a report (docs/cures.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, cast, get_args

from pyddpdiag.model.launch import ARGUMENTS_LIMIT, LENGTH_LIMIT
from pyddpdiag.model.trial_verdict import Verdict, judges, verdict_of
from pyddpdiag.model.untrusted import needed_list, number, text, whole
from pyddpdiag.output import clean

TrialState = Literal["running", "decided", "time_over", "failed", "interrupted"]
TrialWay = Literal["in_run", "restart"]

NAME: Final = "trial.json"
"""The file in the folder of a trial by starts that holds it."""

AS_IT_IS: Final = "as it is"
"""What today's setting is called."""

SCHEMA_VERSION: Final = 1
MOST_CURES: Final = 64
_TEXT: Final = 512


@dataclass(frozen=True)
class TriedCure:
    """One setting of a trial, beside today's.

    Attributes:
        name: as `pyddpdiag try --cures` has it, with its value.
        options: of `pyddpdiag run` that ask for it, with their values; "" for a flag. Of today's setting: all it has.
        rounds: in how many it was measured beside today's setting.
        step_ms: median over the rounds of its steps, each of which lasts as long as on its slowest rank.
        ratio, ratio_low, ratio_high: of its step to today's, the mean or median over pairs of one round, with its
            interval (95% over all looks and cures of the trial); below 1 it is faster.
        saved_ms: by the ratio, of today's step.
        exposed_ms: what the rank that waits longest waits for communication per step.
        same_bits: whether the training's result keeps its bits with it; None: it cannot be told.
        left: why it was not tried to the end; empty: it was.
        predicted_saved_ms: what the report of the steps with today's setting expected it to save; None: nothing.
        line: the command that starts this run with it; empty: not known.
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
        cures: the others.
        best: the name of the best; empty: nothing is to be gained, or it is not known yet.
        kept: what the training goes on with; empty: today's setting, or it does not go on.
        now: which one is on now; empty: today's setting, or the trial is over.
        minutes: that it might take; 0: not known.
    """

    way: TrialWay
    state: TrialState
    today: TriedCure
    cures: tuple[TriedCure, ...] = ()
    why: str = ""
    best: str = ""
    kept: str = ""
    now: str = ""
    minutes: float = 0.0

    @property
    def best_cure(self) -> TriedCure | None:
        """The best; None: there is none."""
        return next((cure for cure in self.cures if cure.name == self.best), None)

    @property
    def judged(self) -> bool:
        """Whether something follows from it: of one cure an interval is known, or all cost too much."""
        known = [cure.ratio_high is not None for cure in self.cures]
        return self.today.rounds > 0 and judges(known, [bool(cure.left) for cure in self.cures])

    @property
    def verdict(self) -> Verdict:
        """What follows from it, in the words that are said everywhere."""
        return verdict_of(
            over=self.state in ("decided", "time_over"),
            best=self.best_cure is not None,
            judged=self.judged,
            lows=[cure.ratio_low for cure in self.cures if not cure.left],
        )

    @property
    def answers(self) -> bool:
        """Whether it says something about this run: what cures are worth, or that there is none to try."""
        return self.judged or (self.state == "decided" and not self.cures)


def tried_to_json(tried: Tried) -> dict[str, Any]:
    """The content of the file."""
    found = asdict(tried)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": tried.verdict,
        **found,
        "cures": list(found["cures"]),
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
        )
    except (TypeError, ValueError):
        return None


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
        **{
            name: number(raw.get(name))
            for name in ("step_ms", "ratio", "ratio_low", "ratio_high", "exposed_ms", "predicted_saved_ms")
        },
    )


def _signed(value: Any) -> float | None:
    """A number that may be negative."""
    if isinstance(value, float) and value < 0:
        below = number(-value)
        return None if below is None else -below
    return number(value)


__all__ = [
    "AS_IT_IS",
    "NAME",
    "TrialState",
    "TrialWay",
    "Tried",
    "TriedCure",
    "tried_from_json",
    "tried_to_json",
]
