"""A line of the script takes a part of each step and is no part of a training step; or all ranks become slower."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import confidence, severity
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.core_waits import saved_ms
from pyddpdiag.analyse.episodes import computing, stretch
from pyddpdiag.analyse.hot_lines import HotLine, Part
from pyddpdiag.analyse.step_matrix import step_walls
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import of_part
from pyddpdiag.analyse.windows import Slower, Stretches
from pyddpdiag.model.findings import Cause, Finding
from pyddpdiag.model.words import milliseconds, number, percent, those, verb

WHAT: Final[dict[Cause | None, str]] = {
    "core": "; the difference is waiting for a processor core",
    "disk": "; the difference is waiting for a disk",
    "device": "; accelerators compute that much longer",
    "blocked": "; the difference is neither computing nor waiting for a core",
    None: "",
}

CHANGE_MIND: Final[dict[Cause | None, str]] = {
    "core": "The ranks stay as slow after the other load is gone.",
    "blocked": "The script sleeps or waits there on purpose.",
}
OTHERWISE: Final = (
    "The script does more in these steps on purpose: longer inputs, a larger batch, more layers."
)
SPIN: Final = ", or their threads spin for want of a core"
FEWER_THREADS: Final = (
    "Give each rank one thread first (OMP_NUM_THREADS=1): are all ranks slower then as well?"
)
SAME_WITH_ONE: Final = "The ranks become as slow with one thread each."

DENORMAL: Final = (
    " Where a gradient stays 0 (units that are never active, rows that do not occur), an optimizer's average of it "
    "comes so near to 0, after some 700 steps of Adam, that a processor takes many times as long for it (denormal "
    "numbers): torch.set_flush_denormal(True) makes it 0."
)

WHAT_GREW: Final[dict[Cause | None, str]] = {
    "compute": "Look for what grows or begins then: longer inputs, a list that every step goes through, another "
    "program in the same caches, processors that become hot and slow (Linux: turbostat, sensors).",
    "core": "Look for other programs on the machine that ran then (top, atop), and for more busy threads than cores.",
    "disk": "Look for what they read or write then: checkpoints, logs, files that do not stay in memory (iostat -x).",
    "device": "Look for what grows or begins then: longer inputs, another program on the devices, devices that are hot "
    "and slow (nvidia-smi shows both).",
    "blocked": "Look for what all ranks wait for then: a disk, a file server, a lock, a log, a service on the network.",
    None: "Look for what begins then: longer inputs, other programs on the machine, a slow disk.",
}


def _slower(view: RunView) -> Iterator[Finding]:
    found = view.slower
    if found is None:
        return
    steps = view.judged
    at = steps.step[found.rows]
    since, until = found.span.between(at)
    where = None
    if found.cause not in ("core", "device"):
        more_ms = found.there_ms - found.usual_ms
        times = stretch(found.usual_ms, more_ms, found.extra.cpu, found.extra.core)
        where = view.lines.more_in(at[found.inside], at[~found.inside], more_ms, times)
    # Threads that spin in want of a core do so for as long as that lasts, on all ranks.
    spins = found.cause in ("compute", None) and view.spins
    cause = "disk" if found.cause == "blocked" and where and where.on_disk else found.cause
    what = _what(found, cause, verb(steps.ranks, "it", "they"))
    finding = Finding(
        kind="slower_steps",
        severity="warning",
        message=f"{those(steps.ranks, len(steps.ranks) + view.run.missing_count)} "
        f"{verb(steps.ranks, 'is', 'are')} slower{found.span.words(at)}: "
        f"{verb(steps.ranks, 'it', 'each')} needs {milliseconds(found.there_ms)} for its own part of a step, "
        f"{milliseconds(found.usual_ms)} {_rest(found.span)} ({number(found.times)} times as long"
        f"{', and more and more' if found.grows else ''}){what}{SPIN if spins and cause else ''}; "
        f"{percent(found.share)} of the time is lost to it.",
        confidence="low" if spins else found.confidence,
        cause=cause,
        since_step=since,
        until_step=until,
        cost_ms=found.lost_ms / len(found.rows),
        cost_s=found.lost_ms / 1e3,
        evidence={
            "own_ms": found.there_ms,
            "usual_own_ms": found.usual_ms,
            "times_as_long": found.times,
            "share": found.share,
            "cpu_share": found.extra.cpu,
            "core_wait_share": found.extra.core,
            "cpu_times": found.extra.cpu_times,
            "load_per_core": found.load,
            "grows": int(found.grows),
            "until_step": until,
            **of_part(view, found.span, at, found.own_ms, "own"),
        },
        change_mind=SAME_WITH_ONE if spins else CHANGE_MIND.get(cause, OTHERWISE),
        advice=FEWER_THREADS if spins else WHAT_GREW[cause],
    )
    longer = ": what makes it take longer then?"
    if cause == "compute" and where is not None and where.call.startswith("torch.optim."):
        longer += DENORMAL
    yield with_line(finding, where, "what they need more", None if spins else longer)


def _what(found: Slower, cause: Cause | None, who: str) -> str:
    if cause != "compute":
        return WHAT[cause]
    return f"; {computing(who, 'the difference', found.extra.cpu, found.extra.core)}"


def _rest(span: Stretches) -> str:
    first, last = span.spans[0], span.spans[-1]
    if len(span.spans) > 1:
        return "otherwise"
    if last.lasting:
        return "before"
    return "after" if first.begin == 0 else "otherwise"


BEYOND: Final[dict[Part, str]] = {
    "outside": "that is outside forward, backward, optimizer, data and communication",
    "alone": "that is in forward or backward, and no other rank is ever there",
    "backward": "that is code of the script in backward: a hook, or an autograd function",
    "own optimizer": "that is in the script's own optimizer",
    "optimizer": "that is the optimizer, which takes longer than forward and backward",
}
# On a CPU foreach=True is slower than none.
FASTER: Final = (
    ": give the optimizer fused=True (Adam, AdamW, SGD, Adagrad), and an embedding of whose rows a batch needs few "
    "sparse=True and torch.optim.SparseAdam."
)
_NO_OPERATIONS: Final = ("torch.serialization.", "torch.nn.")


def _hot(view: RunView) -> Iterator[Finding]:
    steps = view.judged
    for found in view.hot_lines:
        step_ms = float(np.nanmean(step_walls(steps)))
        cost_ms = _cost_ms(view, found, step_ms)
        surely_ms = cost_ms * found.share.at_least / found.share.share
        everyone = len(found.ranks) == len(steps.ranks)
        yield Finding(
            kind="hot_line",
            severity=severity(surely_ms, step_ms)
            if surely_ms > _usual_ms(view, found, surely_ms)
            else "note",
            message=f"{percent(found.share.share)} of each step{_when(found)} goes by {_place(found)} on "
            f"{those(found.ranks, len(steps.ranks))}; {BEYOND[found.part]}.",
            confidence=confidence(steps.steps),
            rank=found.ranks[0] if len(found.ranks) == 1 and not everyone else None,
            since_step=found.since_step,
            until_step=found.until_step,
            cost_ms=cost_ms,
            where=str(found.where.line),
            evidence={
                "share": found.share.share,
                "share_at_least": found.share.at_least,
                "step_ms": step_ms,
                "ranks": len(found.ranks),
                "called_at": str(found.statement),
                "outside_passes": int(found.part not in ("alone", "backward")),
                **found.where.facts,
            },
            change_mind="The training needs what is done there, in every step.",
            advice=found.where.advice(FASTER if found.part == "optimizer" else _instead(found.where.call)),
        )


def _cost_ms(view: RunView, found: HotLine, step_ms: float) -> float:
    """How much earlier the last rank would be ready without it."""
    own = view.judged.own[~np.isnan(view.judged.own).any(axis=1)]
    if not len(own):
        return 0.0
    spent = np.array([found.of_step.get(rank, 0.0) * step_ms for rank in view.judged.ranks])
    return float(saved_ms(own, np.minimum(own, spent)).mean())


def _usual_ms(view: RunView, found: HotLine, surely_ms: float) -> float:
    """What of it belongs there."""
    if found.part == "backward":
        return _span_ms(view, "backward") - surely_ms  # the rest of backward
    # Any optimizer takes some of a step; most take less than backward does.
    passes = {"own optimizer": ("backward",), "optimizer": ("forward", "backward")}.get(found.part, ())
    return sum(_span_ms(view, name) for name in passes)


def _span_ms(view: RunView, name: str) -> float:
    rows = np.isin(view.cube.step, view.judged.step)
    spent = view.cube.spans[name][rows]
    return float(np.nanmean(spent)) if np.isfinite(spent).any() else 0.0


def _instead(call: str) -> str:
    """What to do about such a call."""
    if call == "time.sleep":
        return ": leave it out, or sleep less often."
    # An operation on tensors: torch's, one in place, or none that has a name.
    tensors = call.startswith("torch.") and not call.startswith(_NO_OPERATIONS) and "_foreach_" not in call
    tensors = tensors or not call or call.endswith("_")
    many = "for many tensors at once (torch._foreach_*), " if tensors else ""
    return f": do it less often, {many}or in a thread or process of its own."


def _place(found: HotLine) -> str:
    where = found.where
    at = f"in {where.line.function}, mostly at {where}" if where.whole_function else f"at {where}"
    return at if found.statement == where.line else f"{at}, called at {found.statement},"


def _when(found: HotLine) -> str:
    since, until = found.since_step, found.until_step
    if since is None:
        return "" if until is None else f" up to step {until}"
    return f" from step {since} on" if until is None else f" from step {since} to step {until}"


CHECKS = tuple(
    Check((kind,), look, per_group=True, rests_on="own times")
    for kind, look in (("hot_line", _hot), ("slower_steps", _slower))
)
