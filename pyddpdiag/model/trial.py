"""What a trial of cures measured in a run: a part of a rank's sidecar, the same on all ranks.

Everything is bounded, however long a trial is; a reader trusts nothing in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from pyddpdiag.model.trial_verdict import Verdict, judges, verdict_of
from pyddpdiag.model.untrusted import needed_list, needed_whole, number, text, whole
from pyddpdiag.output import clean

TODAY: Final = "today"
"""The name of the setting that the script has without a trial."""

MOST_CURES: Final = 64
MOST_BLOCKS: Final = 512
NAME_LIMIT: Final = 512

TrialState = Literal["waiting", "running", "decided", "time over", "failed", "ended early"]
"""`waiting`: for the first passes. `decided`: the best is known. `time over`: before it was. `failed`: what ended it
stands in `why`. `ended early`: the training was over first."""

Keep = Literal["best", "none"]


@dataclass(frozen=True)
class Block:
    """Passes in a row with one setting.

    Attributes:
        order: its place among all blocks of the trial, from 0.
        first_pass, last_pass: synchronising backward passes of the module since the trial began, from 0.
        first_step, last_step: of the trace; 0 where the script marks no steps.
        passes: those that were counted; the first ones after a change are not. 0: the block was not measured.
        step_s: median of the counted steps of the slowest rank; None: the block was not measured.
        exposed_s: of the same rank, the median time of a pass that waits for buckets after its last gradient; None:
            not known.
    """

    order: int
    first_pass: int
    last_pass: int
    first_step: int = 0
    last_step: int = 0
    passes: int = 0
    step_s: float | None = None
    exposed_s: float | None = None


@dataclass(frozen=True)
class CureResult:
    """A cure compared with today's setting, block by block.

    Attributes:
        pairs: blocks that have a neighbour with today's setting.
        step_s, today_s: medians over the blocks of the cure, and of today's setting beside them.
        ratio: of the cure's step to today's; below 1 is faster.
        low, high: its 95% interval; None: there are too few pairs for one.
        saved_s: of a step: (1 - ratio) of today's; negative: it costs time.
        exposed_s: median over its blocks; None: not known.
    """

    pairs: int
    step_s: float
    today_s: float
    ratio: float
    low: float | None
    high: float | None
    saved_s: float
    exposed_s: float | None = None


@dataclass(frozen=True)
class TriedCure:
    """A setting that takes its turns.

    Attributes:
        name: for people, as "shared memory"; `TODAY` for today's setting.
        options: those of `pyddpdiag run` that ask for it, with their values; "" for a flag.
        same_bits: whether the training's result is the same with it, to the last bit.
        blocks: in which it was on.
        result: None: it was never measured beside today's setting.
        left: why it gets no more turns, or never had one; empty: it was not left.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    same_bits: bool = True
    blocks: tuple[Block, ...] = ()
    result: CureResult | None = None
    left: str = ""


@dataclass(frozen=True)
class Trial:
    """A trial of cures on one module.

    Attributes:
        state: how far it is.
        module: its index among the run's modules.
        today: the setting that the script has; its `options` are those that the run had asked for already.
        cures: in the order in which they were named.
        on: the name of the setting that is on, or was when the file was written.
        best: the name of the fastest setting; empty: not known yet.
        kept: the setting with which the training goes on after the trial; empty: it is not over.
        keep: "best", or "none": what the script has.
        limit_s: the time it may take.
        took_s: the time since its first pass.
        why: a sentence on how it ended; empty while it runs.
    """

    state: TrialState
    module: int
    today: TriedCure
    cures: tuple[TriedCure, ...] = ()
    on: str = TODAY
    best: str = ""
    kept: str = ""
    keep: Keep = "best"
    limit_s: float = 0.0
    took_s: float = 0.0
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """As `Tried.verdict`."""
        results = [cure.result for cure in self.cures]
        known = [each is not None and each.high is not None for each in results]
        return verdict_of(
            over=self.state in ("decided", "time over"),
            best=self.best not in ("", TODAY),
            judged=bool(self.today.blocks) and judges(known, [bool(cure.left) for cure in self.cures]),
            lows=[each.result.low if each.result else None for each in self.cures if not each.left],
        )


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """The entry of a sidecar."""
    return {
        "state": trial.state,
        "module": trial.module,
        "on": trial.on,
        "best": trial.best,
        "kept": trial.kept,
        "keep": trial.keep,
        "limit_s": trial.limit_s,
        "took_s": trial.took_s,
        "why": trial.why,
        "today": _cure_to_json(trial.today),
        "cures": [_cure_to_json(each) for each in trial.cures[:MOST_CURES]],
    }


def trial_from_json(raw: Any) -> Trial | None:
    """What can be understood of it; None: nothing."""
    if not isinstance(raw, Mapping):
        return None
    state = raw.get("state")
    try:
        today = _cure(raw["today"])
        cures = tuple(_cure(each) for each in needed_list(raw["cures"], MOST_CURES))
        module = needed_whole(raw["module"])
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return None
    return Trial(
        state=cast(TrialState, state) if state in get_args(TrialState) else "failed",
        module=module,
        today=today,
        cures=cures,
        on=text(raw, "on", NAME_LIMIT),
        best=text(raw, "best", NAME_LIMIT),
        kept=text(raw, "kept", NAME_LIMIT),
        keep="none" if raw.get("keep") == "none" else "best",
        limit_s=number(raw.get("limit_s")) or 0.0,
        took_s=number(raw.get("took_s")) or 0.0,
        why=text(raw, "why", NAME_LIMIT),
    )


def _cure_to_json(cure: TriedCure) -> dict[str, Any]:
    return {
        "name": cure.name,
        "options": dict(cure.options),
        "same_bits": cure.same_bits,
        "left": cure.left,
        # Columns: a trial may have hundreds of blocks.
        "blocks": [
            [
                each.order,
                each.first_pass,
                each.last_pass,
                each.first_step,
                each.last_step,
                each.passes,
                each.step_s,
                each.exposed_s,
            ]
            for each in cure.blocks[:MOST_BLOCKS]
        ],
        **({} if cure.result is None else {"result": dict(vars(cure.result))}),
    }


def _cure(raw: Any) -> TriedCure:
    options = list(raw["options"].items())[:MOST_CURES]
    return TriedCure(
        name=text(raw, "name", NAME_LIMIT),
        options={
            clean(name, NAME_LIMIT): clean(value, NAME_LIMIT)
            for name, value in options
            if isinstance(name, str) and isinstance(value, str)
        },
        same_bits=raw.get("same_bits") is True,
        blocks=tuple(_block(each) for each in needed_list(raw["blocks"], MOST_BLOCKS)),
        result=_result(raw.get("result")),
        left=text(raw, "left", NAME_LIMIT),
    )


def _block(raw: Any) -> Block:
    order, first_pass, last_pass, first_step, last_step, passes, step_s, exposed_s = needed_list(raw, 8)
    return Block(
        needed_whole(order),
        needed_whole(first_pass),
        needed_whole(last_pass),
        needed_whole(first_step),
        needed_whole(last_step),
        needed_whole(passes),
        number(step_s),
        number(exposed_s),
    )


def _result(raw: Any) -> CureResult | None:
    if not isinstance(raw, Mapping):
        return None
    step, today, ratio = (number(raw.get(name)) for name in ("step_s", "today_s", "ratio"))
    saved = raw.get("saved_s")
    if step is None or today is None or ratio is None or number(abs(saved or 0.0)) is None:
        return None
    return CureResult(
        pairs=whole(raw.get("pairs")),
        step_s=step,
        today_s=today,
        ratio=ratio,
        low=number(raw.get("low")),
        high=number(raw.get("high")),
        saved_s=float(saved or 0.0),
        exposed_s=number(raw.get("exposed_s")),
    )


__all__ = [
    "TODAY",
    "Block",
    "CureResult",
    "Keep",
    "Trial",
    "TrialState",
    "TriedCure",
    "trial_from_json",
    "trial_to_json",
]
