"""All ranks become slower while the run goes on, or are slower for a while: nobody waits for a single one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.extra_time import computing, stretch
from pyddpdiag.analyse.slower import Slower
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import of_part
from pyddpdiag.analyse.windows import Stretches
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

ADVICE: Final[dict[Cause | None, str]] = {
    "compute": "Look for what grows or begins then: longer inputs, a list that every step goes through, another "
    "program in the same caches, processors that become hot and slow (Linux: turbostat, sensors).",
    "core": "Look for other programs on the machine that ran then (top, atop), and for more busy threads than cores.",
    "disk": "Look for what they read or write then: checkpoints, logs, files that do not stay in memory (iostat -x).",
    "device": "Look for what grows or begins then: longer inputs, another program on the devices, devices that are hot "
    "and slow (nvidia-smi shows both).",
    "blocked": "Look for what all ranks wait for then: a disk, a file server, a lock, a log, a service on the network.",
    None: "Look for what begins then: longer inputs, other programs on the machine, a slow disk.",
}


def _look(view: RunView) -> Iterator[Finding]:
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
        advice=FEWER_THREADS if spins else ADVICE[cause],
    )
    longer = ": what makes it take longer then?"
    if cause == "compute" and where is not None and where.call.startswith("torch.optim."):
        longer += DENORMAL
    yield with_line(finding, where, "what they need more", None if spins else longer)


def _what(found: Slower, cause: Cause | None, who: str) -> str:
    if cause != "compute":
        return WHAT[cause]
    does = computing(who, "the difference", found.extra.cpu, found.extra.core)
    return f"; {does}" if does else ""


def _rest(span: Stretches) -> str:
    first, last = span.spans[0], span.spans[-1]
    if len(span.spans) > 1:
        return "otherwise"
    if last.lasting:
        return "before"
    return "after" if first.begin == 0 else "otherwise"


CHECK = Check(("slower_steps",), _look, per_group=True, rests_on="own times")
