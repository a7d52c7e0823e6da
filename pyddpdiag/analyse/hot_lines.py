"""Lines that take a part of each step: beside the parts of a training step, or more in one than belongs there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from pyddpdiag.analyse.bounds import MATTERS_SHARE
from pyddpdiag.analyse.filing import (
    BACKWARD,
    BEFORE,
    BETWEEN,
    COMMUNICATION,
    FORWARD,
    OPTIMIZER,
    PHASE,
    RankLines,
)
from pyddpdiag.analyse.grouped import Float64
from pyddpdiag.analyse.lines import Where, where_of
from pyddpdiag.analyse.looks import Seen, between, seen
from pyddpdiag.model.lines import Line, Stack
from pyddpdiag.trace.rows import Bool, Int64

TRAINING: Final = (FORWARD, BACKWARD, COMMUNICATION)
REST: Final = (BEFORE, OPTIMIZER, BETWEEN)
"""Where the script's own lines run between the parts of a training step, and the optimizer's."""

OPTIMIZERS: Final = "torch.optim."
PACKAGES: Final = (
    *(
        "torch.nn.modules.",
        "torch.nn.functional.",
        "torch.nn.parallel.",
        "torch.nn.utils.",
        "torch.autograd.",
    ),
    *(OPTIMIZERS, "torch.utils.data.", "torch.distributed.", "pyddpdiag."),
)
AVERAGES: Final = "torch.optim.swa_utils."
"""Modules of forward, backward, optimizer, data and communication, whenever they run: a second forward pass, that of a
teacher, an evaluation; and what a recorder does itself. Averages of weights lie among the optimizers and are none."""

MARKS: Final = "torch._ops."
"""By which torch tells its profiler of an optimizer's step, and of much else: they say nothing of what runs."""


ENGINE: Final = "torch.autograd.graph."
"""The call at the statement that runs backward."""

Part = Literal["outside", "alone", "backward", "own optimizer", "optimizer"]
"""`outside`: of forward, backward, optimizer, data and communication. `alone`: in forward or backward, where no other
rank ever is. `backward`: the script's own code there, of a hook or an autograd function. `own optimizer`: in one that
the script brings. `optimizer`: in one of torch's, which takes longer than forward and backward together."""


@dataclass(frozen=True)
class HotLine:
    """A statement of the training loop that takes a part of each step.

    Attributes:
        where: the innermost line at which it mostly is.
        statement: the line of the loop that leads there.
        ranks: that do it.
        part: of the step, in which it is.
        share: of the time of the steps in which it is done.
        of_step: by rank, the part of all usual steps.
        since_step, until_step: where it surely was not done before, or after; None: it was.
    """

    where: Where
    statement: Line
    ranks: tuple[int, ...]
    part: Part
    share: Seen
    of_step: Mapping[int, float]
    since_step: int | None
    until_step: int | None


def hot_lines(lines: Mapping[int, RankLines], steps: Int64, places: Collection[str]) -> list[HotLine]:
    """The lines that surely take 5% of each of these steps, on all ranks or on some; the most first.

    Args:
        steps: the steps, in ascending order. Those that are much longer than usual tell of something else.
        places: the lines that make optimizers step, as `train.py:38`.
    """
    steps = np.intersect1d(
        steps, np.concatenate([np.empty(0, np.int64), *(each.step for each in lines.values())])
    )
    looks = {rank: _Looks(each, steps) for rank, each in lines.items()}
    if not len(steps) or not all(len(each.at) for each in looks.values()):
        return []
    trained = _trained(looks.values())
    found = _found(looks, REST, _outermost(lambda line: line in trained), steps)
    found = [
        one
        for one in found
        if not _is_known(looks, one.mine, trained, places) or _outweighs_passes(looks, one.mine, places)
    ]
    of_script = {one.line for one in found}
    ranks_at = Counter(
        line for each in lines.values() for line in {line for stack in each.stacks for line in stack.lines}
    )
    if len(lines) > 1:
        found += [
            replace(one, part="alone")
            for one in _found(
                looks, (BEFORE, FORWARD, BACKWARD), _outermost(lambda line: ranks_at[line] > 1), steps
            )
            if one.line not in of_script
        ]
    found += [
        replace(one, part="backward")
        for one in _found(looks, (BACKWARD,), _within_backward(looks.values()), steps)
    ]
    judged = (_judged(looks, one, steps, places) for one in found)
    return sorted((one for one in judged if one is not None), key=lambda one: -one.share.share)


@dataclass(frozen=True, eq=False)
class _Statement:
    """A line, by rank which of its looks were there, and how many of each step's."""

    line: Line
    mine: Mapping[int, Bool]
    hits: Mapping[int, Float64]
    part: Part = "outside"


class _Looks:
    """One rank's looks in the steps: `at` is the place of each one's step, `stack` its stack."""

    def __init__(self, lines: RankLines, steps: Int64) -> None:
        place = np.minimum(np.searchsorted(steps, lines.step), max(0, len(steps) - 1))
        mask = steps[place] == lines.step if len(steps) else np.zeros(len(lines), np.bool_)
        # The time in phases is named by the program.
        mask &= ~lines.of_parts(PHASE)
        self.lines, self.mask, self.at, self.stack = lines, mask, place[mask], lines.stack[mask]
        self.by_step = self.counts(np.ones(len(self.at), np.bool_), len(steps))
        # Looks that were due and did not come may have been anywhere else.
        self.came = len(lines) / (len(lines) + lines.missed_ms / lines.interval_ms)

    def of_parts(self, *names: str) -> Bool:
        """Which of them."""
        return self.lines.of_parts(*names)[self.mask]

    def counts(self, some: Bool, steps: int) -> Float64:
        """How many of these there are in each step."""
        return np.bincount(self.at[some], minlength=steps).astype(np.float64)

    def stacks(self, some: Bool) -> Iterator[tuple[Stack, int]]:
        """The different stacks of these, and how many have each."""
        counts = np.bincount(self.stack[some], minlength=len(self.lines.stacks)).tolist()
        return ((stack, count) for stack, count in zip(self.lines.stacks, counts, strict=True) if count)

    def only(self, some: Bool) -> tuple[RankLines, Bool]:
        """These among all samples of the rank."""
        mask = self.mask.copy()
        mask[mask] = some
        return self.lines, mask


def _trained(looks: Collection[_Looks]) -> set[Line]:
    """The lines around the training loop's body, and those of its forward and backward: they are on the stacks of 5% of
    the looks in these parts, at least."""
    passing, whole = Counter[Line](), 0
    for each in looks:
        for stack, count in each.stacks(each.of_parts(*TRAINING)):
            whole += count
            for line in set(stack.lines):
                passing[line] += count
    return {line for line, count in passing.items() if count >= MATTERS_SHARE * whole}


def _outermost(is_common: Callable[[Line], bool]) -> Callable[[Stack], Line | None]:
    """On each stack the outermost line that is not common."""
    return lambda stack: next((line for line in stack.lines if not is_common(line)), None)


def _within_backward(looks: Collection[_Looks]) -> Callable[[Stack], Line | None]:
    """On each stack the outermost line below the statement that runs backward, but for forward passes made again
    (activation checkpointing): their lines are those of forward."""
    runs, again, there = set[Line](), Counter[Line](), Counter[Line]()
    for each in looks:
        for part, counted in ((FORWARD, again), (BACKWARD, there)):
            for stack, count in each.stacks(each.of_parts(part)):
                counted.update(dict.fromkeys(stack.lines, count))
        runs |= {
            stack.lines[-1] for stack in each.lines.stacks if stack.lines and stack.call.startswith(ENGINE)
        }

    def of(stack: Stack) -> Line | None:
        at = max((place for place, line in enumerate(stack.lines, 1) if line in runs), default=0)
        # A look at the very begin of backward may be filed under forward.
        own = (line for line in stack.lines[at:] if again[line] < MATTERS_SHARE * there[line])
        return next(own, None) if at else None

    return of


def _found(
    looks: Mapping[int, _Looks], parts: Sequence[str], of: Callable[[Stack], Line | None], steps: Int64
) -> list[_Statement]:
    """The statements that may take their share in these parts: `of` each stack."""
    masks: dict[Line, dict[int, Bool]] = {}
    for rank, each in looks.items():
        numbers: dict[Line, int] = {}
        statements = map(of, each.lines.stacks)
        of_stack = np.array(
            [-1 if line is None else numbers.setdefault(line, len(numbers)) for line in statements], np.int64
        )
        of_look = np.where(each.of_parts(*parts), of_stack[each.stack], -1)
        counts = np.bincount(of_look + 1, minlength=len(numbers) + 1)[1:].tolist()
        for line, number in numbers.items():
            if counts[number]:
                masks.setdefault(line, {})[rank] = of_look == number
    return [
        _Statement(
            line,
            mine,
            {
                rank: each.counts(mine[rank], len(steps)) if rank in mine else np.zeros(len(steps))
                for rank, each in looks.items()
            },
        )
        for line, mine in masks.items()
        if any(np.count_nonzero(mask) >= MATTERS_SHARE * len(mask) for mask in mine.values())
    ]


def _is_known(
    looks: Mapping[int, _Looks], mine: Mapping[int, Bool], trained: Collection[Line], places: Collection[str]
) -> bool:
    """Whether most of these looks are in a part of a training step, by the lines or the names of what runs there."""
    # Marks say nothing; a statement that is nothing else is torch's.
    counts = [(stack, count) for stack, count in _stacks(looks, mine) if not stack.call.startswith(MARKS)]
    known = sum(count for stack, count in counts if _is_of_training(stack, trained, places))
    return 2 * known >= sum(count for _, count in counts)


def _stacks(looks: Mapping[int, _Looks], mine: Mapping[int, Bool]) -> list[tuple[Stack, int]]:
    return [(stack, count) for rank, mask in mine.items() for stack, count in looks[rank].stacks(mask)]


def _steps_optimizer(looks: Mapping[int, _Looks], mine: Mapping[int, Bool], places: Collection[str]) -> bool:
    """Whether most of these looks are within an optimizer's step."""
    counts = _stacks(looks, mine)
    within = sum(count for stack, count in counts if any(line.place in places for line in stack.lines))
    return 2 * within >= sum(count for _, count in counts)


def _outweighs_passes(looks: Mapping[int, _Looks], mine: Mapping[int, Bool], places: Collection[str]) -> bool:
    """Whether it is an optimizer's step in which there are more of these ranks' looks than in forward and backward."""
    passes = sum(np.count_nonzero(looks[rank].of_parts(FORWARD, BACKWARD)) for rank in mine)
    there = sum(np.count_nonzero(some) for some in mine.values())
    return _steps_optimizer(looks, mine, places) and bool(there > passes)


def _is_of_training(stack: Stack, trained: Collection[Line], places: Collection[str]) -> bool:
    own = [line for line in stack.lines if line not in trained]
    # Further in than the step of an optimizer, the script's own optimizer is at work: those lines can be changed.
    if own and own[-1].place in places:
        return True
    if stack.call.startswith(PACKAGES) and not stack.call.startswith(AVERAGES):
        return True
    # Within a line that is none, one that is: another forward pass of the module.
    return any(inner in trained and outer not in trained for outer, inner in pairwise(stack.lines))


def _judged(
    looks: Mapping[int, _Looks], found: _Statement, steps: Int64, places: Collection[str]
) -> HotLine | None:
    """The statement, if it surely takes its share on all ranks together, or else on some of them."""
    each = {rank: seen(found.hits[rank], looks[rank].by_step, looks[rank].came) for rank in looks}
    everywhere = all(one.at_most >= MATTERS_SHARE and found.hits[rank].any() for rank, one in each.items())
    if found.part != "alone" and everywhere:
        ranks = tuple(looks)
    elif found.part == "backward":
        return None  # what one rank alone does there is found by that
    else:
        ranks = tuple(rank for rank, one in each.items() if one.at_least >= MATTERS_SHARE)
    if not ranks:
        return None
    there = np.sum([found.hits[rank] for rank in ranks], axis=0)
    counts = np.sum([looks[rank].by_step for rank in ranks], axis=0)
    begin, end = between(there, counts)
    share = seen(there[begin:end], counts[begin:end], min(looks[rank].came for rank in ranks))
    # Where nobody else is ever seen: so few looks at another rank may have missed it.
    others = max((one.at_most for rank, one in each.items() if rank not in ranks), default=0.0)
    if share.at_least < max(MATTERS_SHARE, others if found.part == "alone" else 0.0):
        return None
    where = where_of(looks[rank].only(found.mine[rank]) for rank in ranks if rank in found.mine)
    where = where or Where(found.line, "", 1.0, share.samples)
    part = found.part
    if part == "outside" and _steps_optimizer(looks, found.mine, places):
        part = "optimizer" if where.call.startswith(OPTIMIZERS) else "own optimizer"
    return HotLine(
        where,
        found.line,
        ranks,
        part,
        share,
        {rank: each[rank].share for rank in ranks},
        int(steps[begin - 1]) if begin else None,
        int(steps[end]) if end < len(steps) else None,
    )
