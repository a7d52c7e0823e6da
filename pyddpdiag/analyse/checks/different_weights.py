"""The weights of the ranks differ: DDP averages gradients and never looks at weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import ROUNDING, STANDS_MS, TWICE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.fingerprints import Compared
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.settings import odd_ones, optimizer_settings, stepped
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.words import count, listed, ranks, verb

_BEFORE: Final = (
    "Load checkpoints and change weights before DistributedDataParallel(...), which sends rank 0's to all."
)


def _look(view: RunView) -> Iterator[Finding]:
    compared = view.weights.of_modules(_same_everywhere(view))
    differs = compared.differs
    if not differs.any() or max(_times_equal_again(compared), _times_restored(view, compared)) >= TWICE:
        return
    bad = np.flatnonzero(differs)
    first, last = int(bad[0]), int(bad[-1])
    until = _until(compared, last)
    worst = bad[compared.step[bad] >= compared.step[last] - 1]
    rounding = bool((compared.gap[bad] < ROUNDING).all())
    widest = int(worst[np.argmax(compared.gap[worst])])
    names = list(dict.fromkeys(_name(view, compared, row) for row in bad.tolist()))
    equal, of_last = _equal_before(compared, first, bad), compared.bits[last].tolist()
    odd = odd_ones({rank: bits for rank, bits in zip(compared.ranks, of_last, strict=True) if bits})
    steps = _optimizer_steps(view)
    norms = {
        rank: float(compared.norms[widest, place])
        for place, rank in enumerate(compared.ranks)
        if compared.bits[widest, place]
    }
    # What rounds otherwise is no line of the script.
    where = None if rounding else _between(view, compared, odd, equal, int(compared.step[first]))
    meanwhile = f". In between, rank {where[0]} alone was at {where[1]}" if where is not None else ""
    started = _at_start(view) if where is None and equal is None and not rounding else None
    why, advice = _why(view, steps, equal, where)
    if started is not None:
        meanwhile = f". Before its first pass, rank {started[0]} alone was at {started[1]}"
    blame = f"; {ranks(odd)} {verb(odd, 'differs', 'differ')} from the rest" if odd else ""
    at = int(compared.step[first])
    since = f"already in step {at}, when they were first compared"
    if equal is not None:
        since = f"seen first in step {at}, and equal still in step {equal}"
    yield Finding(
        kind="different_weights",
        severity="note" if rounding else "error",
        message=f"the weights differ between the ranks, {since}: {count(len(names), 'parameter')}, "
        f"{listed((repr(name) for name in names), 3)} (norm of '{_name(view, compared, widest)}': "
        + ", ".join(f"{norm:.6g} on rank {rank}" for rank, norm in list(norms.items())[:4])
        + f"){blame}{why}{meanwhile}. DDP averages gradients only, so they do not "
        "become equal again.",
        confidence="low" if rounding else "certain" if until is None else "medium",
        rank=culprit(odd),
        parameter=names[0],
        since_step=int(compared.step[first]),
        until_step=until,
        where=str(where[1]) if where is not None else started[1] if started is not None else None,
        evidence={
            "comparisons": len(compared),
            "comparisons_different": len(bad),
            "parameters": len(names),
            "last_equal_step": equal,
            **{f"optimizer_steps_rank_{rank}": made for rank, made in list(steps.items())[:8]},
            "norm_difference": float(compared.gap[bad].max()),
            **(where[1].facts if where is not None else {}),
            **{f"norm_rank_{rank}": norm for rank, norm in list(norms.items())[:8]},
        },
        change_mind="The ranks train apart on purpose and average their weights now and then (local SGD); or "
        "processors of different kinds round the last bits otherwise, which makes the norms differ by less than "
        f"{ROUNDING:g}.",
        advice=advice,
    )


def _same_everywhere(view: RunView) -> list[int]:
    """The modules that are the same on all ranks, by their number: ranks may attach them in another order."""
    by_index: dict[int, set[tuple[object, ...]]] = {}
    for sidecar in view.sidecars.values():
        for index, module in sidecar.modules.items():
            by_index.setdefault(index, set()).add((module.name, module.parameters, module.shapes))
    return [index for index, kinds in by_index.items() if len(kinds) == 1]


def _between(
    view: RunView, compared: Compared, odd: Sequence[int], equal: int | None, first: int
) -> tuple[int, Where] | None:
    """The rank that alone did something of its own after the weights were last seen equal, and the line.

    None where a rank was not looked at: it may have done the same.
    """
    if not view.lines.know(compared.ranks):
        return None
    suspects = odd or compared.ranks
    found = [
        (rank, where) for rank in suspects if (where := view.lines.only_of(rank, equal, first)) is not None
    ]
    return found[0] if len(found) == 1 else None


def _at_start(view: RunView) -> tuple[int, str] | None:
    """The only rank that did something of its own between its module and the first pass, and the line; None: not so."""
    looked_at = [rank for rank, one in view.sidecars.items() if "after_module_seen_ns" in one.start_up]
    if len(looked_at) < view.run.world_size:
        return None
    lines = {
        rank: next(iter(one.start_up_lines("after_module_line").items()), ("", 0))
        for rank, one in view.sidecars.items()
    }
    for rank, (line, spent) in lines.items():
        others = [each for other, each in lines.items() if other != rank]
        if spent >= 1e6 * STANDS_MS and all(each != line and ns < spent / 2 for each, ns in others):
            return rank, line
    return None


def _optimizer_steps(view: RunView) -> dict[int, int]:
    """How many steps the optimizers of each rank made, where they are not as many; empty: they are, or nobody knows.

    Ranks that end early differ by the step that they are in.
    """
    made = {rank: sum(one.steps for one in stepped(each)) for rank, each in view.sidecars.items()}
    known = all(made.values()) and len(made) == view.run.world_size
    return made if known and max(made.values()) - min(made.values()) > 1 else {}


def _why(
    view: RunView, steps: dict[int, int], equal: int | None, where: tuple[int, Where] | None
) -> tuple[str, str]:
    """What is known to have made them differ, and what to do."""

    def by_rank(values: dict[int, str] | dict[int, int]) -> str:
        return listed((f"{each} on rank {rank}" for rank, each in values.items()), 4)

    settings = optimizer_settings(view.sidecars)
    said = f"; the optimizers' settings differ: {by_rank(settings)}" if settings else ""
    said += f"; the optimizers made other numbers of steps: {by_rank(steps)}" if steps else ""
    afterwards = "Then start from a checkpoint of one rank."
    if any("state=" in text for text in settings.values()):
        state = "Load the optimizer's state on every rank: optimizer.load_state_dict(...) where rank 0 calls it, too."
        return said, state if equal is not None else f"{state} {_BEFORE}"
    if settings:
        return (
            said,
            f"Give all ranks' optimizers the same settings, and step their schedulers alike. {afterwards}",
        )
    if steps:
        return said, (
            "Let all ranks step alike: what decides whether a step is made (a loss that is not finite, a number of "
            f"batches) is to be decided by all of them together, by an all_reduce of it. {afterwards}"
        )
    if equal is None:
        return said, _BEFORE
    look = f"Look at {where[1]}, where rank {where[0]} alone was. " if where is not None else ""
    # DDP has made them equal, so to load the same again mends nothing.
    return said, (
        f"{look}They were equal until step {equal}, so what changed them comes after that, on each rank by itself: "
        "weights that one rank sets, an optimizer's state that one rank loads or that has another history, gradients "
        "that are changed after backward (clipped or scaled by a rank's own norm, noise). Do it on every rank by the "
        f"same numbers: of rank 0, by dist.broadcast, or of all, by dist.all_reduce. {afterwards}"
    )


def _times_equal_again(compared: Compared) -> int:
    """How often one parameter was equal again, at most, after it had differed."""
    differs = compared.differs
    order = np.lexsort((compared.number, compared.parameter, compared.module, compared.group))
    keys = np.stack([compared.group, compared.module, compared.parameter], axis=1)[order]
    same = np.all(keys[1:] == keys[:-1], axis=1)
    again = same & differs[order][:-1] & ~differs[order][1:]
    if not again.any():
        return 0
    _, often = np.unique(keys[1:][again], axis=0, return_counts=True)
    return int(often.max())


def _times_restored(view: RunView, compared: Compared) -> int:
    """How often a parameter was equal before a step though it had differed at the end of a pass.

    SAM does so: it moves the weights, by each rank's own gradient, for one pass.
    """
    often = 0
    for module in set(compared.module[compared.differs].tolist()):
        of_ranks = {rank: one.training.marked for rank, one in view.sidecars.items()}
        marked = {rank: marks[module] for rank, marks in of_ranks.items() if module in marks}
        if len(marked) < 2 or len({one.parameter for one in marked.values()}) > 1:
            continue
        rows = (compared.module == module) & (compared.parameter == next(iter(marked.values())).parameter)
        # The pass with number n is the one after n others.
        numbers, differ = (compared.number[rows] + 1).tolist(), compared.differs[rows].tolist()
        seen = [(number, False, bool(differs)) for number, differs in zip(numbers, differ, strict=True)]
        for passes in set.intersection(*(set(one.marks) for one in marked.values())):
            marks = [mark for one in marked.values() if (mark := one.marks[passes]) is not None]
            if len(marks) == len(marked):
                seen.append((passes, True, len({bits for bits, _ in marks}) > 1))
        seen.sort()
        here = 0
        for (after, _, before), (passes, marked_then, now) in itertools.pairwise(seen):
            if before and not now:
                # Right between a pass and the step there is nothing else that could make them equal.
                here += TWICE if marked_then and passes == after else 1
        often = max(often, here)
    return often


def _until(compared: Compared, last: int) -> int | None:
    """The last step in which a parameter differed, if it was compared again and was equal; None: it was not."""
    later = _of_parameter(compared, last) & (compared.number > compared.number[last])
    return int(compared.step[last]) if later.any() else None


def _equal_before(
    compared: Compared, first: int, bad: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> int | None:
    """The last step in which the first parameter that differs was still equal, or else another one that differs later;
    None: none was.

    What makes one parameter differ leaves the others alike, as all ranks step by the same averages. So each has its own
    reason, and the one reason of several came after any of them was equal.
    """
    earlier = compared.number < compared.number[first]
    for rows in ([first], bad.tolist()):
        of_them = np.zeros(len(compared), np.bool_)
        for row in {int(compared.parameter[row]): row for row in rows}.values():
            of_them |= _of_parameter(compared, row)
        if (earlier & of_them).any():
            return int(compared.step[earlier & of_them].max())
    return None


def _of_parameter(compared: Compared, row: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(
        (compared.group == compared.group[row])
        & (compared.module == compared.module[row])
        & (compared.parameter == compared.parameter[row])
    )


def _name(view: RunView, compared: Compared, row: int) -> str:
    index = int(compared.parameter[row])
    return view.names.parameter(int(compared.module[row]), index) or f"parameter {index}"


CHECK = Check(("different_weights",), _look, rests_on="records")
"""Sums that differ, and parameters that are not reduced, make weights differ: these are the cause then."""
