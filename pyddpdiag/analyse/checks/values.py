"""The values themselves: sums and weights that differ between ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pyddpdiag.analyse.bounds import ROUNDING, STANDS_MS, TWICE
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.fingerprints import Compared
from pyddpdiag.analyse.grouped import Bool, Int64
from pyddpdiag.analyse.settings import odd_ones, optimizer_settings, stepped
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding, culprit
from pyddpdiag.model.words import count, listed, ranks, verb


def _different_sums(view: RunView) -> Iterator[Finding]:
    """All-reduces after which the ranks hold different bits."""
    watched = view.watched
    sums: dict[tuple[int, int], dict[int, int]] = {}
    spoiled: set[tuple[int, int]] = set()
    about: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(watched.checksum != 0).tolist():
        key = int(watched.group[row]), int(watched.sequence[row])
        sums.setdefault(key, {})[int(watched.rank[row])] = int(watched.checksum[row])
        about.setdefault(key, row)
        if watched.non_finite[row]:
            # The bits of a resulting NaN may depend on the order of the additions.
            spoiled.add(key)
    different = [key for key, values in sums.items() if len(set(values.values())) > 1 and key not in spoiled]
    if not different:
        return
    key = min(different, key=lambda key: (int(watched.step[about[key]]), key[1]))
    step = int(watched.step[about[key]])
    bucket = view.names.bucket(int(watched.reference[about[key]]))
    odd = odd_ones(sums[key])
    blame = f"; {ranks(odd)} {verb(odd, 'differs', 'differ')} from the rest" if odd else ""
    yield Finding(
        kind="different_sums",
        severity="error",
        message=f"after {count(len(different), 'all-reduce')} the ranks held different gradients, first in step "
        f"{step} (bucket {bucket}){blame}. Their models drift apart.",
        confidence="certain",
        rank=culprit(odd),
        bucket=bucket,
        since_step=step,
        evidence={"all_reduces": len(different), "compared": len(sums), "step": step, "sequence": key[1]},
        change_mind="The traces belong to different runs.",
        advice="A rank that skips an all-reduce, or calls another one of the same size, shifts all that follow. "
        + view.advice.recorder('sentinel="raise"')
        + " stops at the first such step and names it.",
    )


_BEFORE: Final = (
    "Load checkpoints and change weights before DistributedDataParallel(...), which sends rank 0's to all."
)


class _Own(NamedTuple):
    """What one rank alone did: the line, and when it was there."""

    rank: int
    line: str
    when: str
    facts: Mapping[str, float | int | str | None]


def _weights(view: RunView) -> Iterator[Finding]:
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
    own = None
    if not rounding:  # what rounds otherwise is no line of the script
        own = _between(view, compared, odd, equal, int(compared.step[first]))
        own = own or (_at_start(view) if equal is None else None)
    meanwhile = f". {own.when}, rank {own.rank} alone was at {own.line}" if own else ""
    why, advice = _why(view, steps, equal, own)
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
        where=own.line if own else None,
        evidence={
            "comparisons": len(compared),
            "comparisons_different": len(bad),
            "parameters": len(names),
            "last_equal_step": equal,
            **{f"optimizer_steps_rank_{rank}": made for rank, made in list(steps.items())[:8]},
            "norm_difference": float(compared.gap[bad].max()),
            **(own.facts if own else {}),
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
) -> _Own | None:
    """What one rank alone did after the weights were last seen equal, and the line.

    None where a rank was not looked at: it may have done the same.
    """
    if not view.lines.know(compared.ranks):
        return None
    suspects = odd or compared.ranks
    found = [
        (rank, where) for rank in suspects if (where := view.lines.only_of(rank, equal, first)) is not None
    ]
    if len(found) != 1:
        return None
    ((rank, where),) = found
    return _Own(rank, str(where), "In between", where.facts)


def _at_start(view: RunView) -> _Own | None:
    """What one rank alone did between its module and the first pass; None: there is no such rank."""
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
            return _Own(rank, line, "Before its first pass", {})
    return None


def _optimizer_steps(view: RunView) -> dict[int, int]:
    """How many steps the optimizers of each rank made, where they are not as many; empty: they are, or nobody knows.

    Ranks that end early differ by the step that they are in.
    """
    made = {rank: sum(one.steps for one in stepped(each)) for rank, each in view.sidecars.items()}
    known = all(made.values()) and len(made) == view.run.world_size
    return made if known and max(made.values()) - min(made.values()) > 1 else {}


def _why(view: RunView, steps: dict[int, int], equal: int | None, own: _Own | None) -> tuple[str, str]:
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
    look = f"Look at {own.line}, where rank {own.rank} alone was. " if own else ""
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


def _equal_before(compared: Compared, first: int, bad: Int64) -> int | None:
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


def _of_parameter(compared: Compared, row: int) -> Bool:
    return np.asarray(
        (compared.group == compared.group[row])
        & (compared.module == compared.module[row])
        & (compared.parameter == compared.parameter[row])
    )


def _name(view: RunView, compared: Compared, row: int) -> str:
    index = int(compared.parameter[row])
    return view.names.parameter(int(compared.module[row]), index) or f"parameter {index}"


CHECKS = (
    Check(("different_sums",), _different_sums, rests_on="records"),
    # Sums that differ, and parameters that are not reduced, make weights differ: these are the cause then.
    Check(("different_weights",), _weights, rests_on="records"),
)
