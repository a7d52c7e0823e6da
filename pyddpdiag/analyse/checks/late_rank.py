"""The same rank always needs longer than the others for its own part of a step, and they wait for it.

Decided by its own time (from leaving one all-reduce to enqueueing the next) and not by arrival times: that
needs no common clock and does not blame a rank that only waited for others. The cause is what the rank does in
the extra time: it waits for data, computes, on its processor or its accelerator, waits for a processor core, or sleeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from pyddpdiag.analyse.batches import SAME_SIZES, larger_batches
from pyddpdiag.analyse.bounds import HEALTHY_SHARE, MOST, SEVERAL, severity
from pyddpdiag.analyse.check import Check, with_line
from pyddpdiag.analyse.checks.settings import only_on
from pyddpdiag.analyse.episodes import computing, stretch
from pyddpdiag.analyse.late_ranks import LateRank
from pyddpdiag.analyse.lines import Where
from pyddpdiag.analyse.settings import throttled_share
from pyddpdiag.analyse.view import RunView
from pyddpdiag.analyse.wall_clock import times_of
from pyddpdiag.model.findings import Cause, Finding
from pyddpdiag.model.words import count, listed, milliseconds, percent

ADVICE: Final[dict[Cause | None, str]] = {
    "compute": "Its processor works longer: look for larger inputs, a slower processor, or work that only this rank "
    "does.",
    "data": "Look at its data loading: less work for each sample, more loader workers, a faster disk.",
    "core": "Look for another load on its cores: move that away, or give the rank cores of its own (taskset, a "
    "container's CPU set).",
    "disk": "It reads from a disk or writes to one in its own code: look for files that it writes and syncs in each "
    "step (fsync, checkpoints, logs), for data that does not fit into memory, and at the disk itself (iostat -x).",
    "device": "Its accelerator works longer: look for larger inputs, for work that only this rank does, for another "
    "program on that device, and for one that is hot and slow (nvidia-smi shows both).",
    "blocked": "It sleeps in its own code: look for a lock, a sleep, or access to a disk or the network. py-spy dump "
    "shows where.",
    None: "Look for another load on its machine, a slower processor, fewer threads, or larger inputs.",
}

ADVICE_AT: Final[dict[Cause | None, str]] = {
    "compute": ", where its processor works longer: are its inputs larger, or does only this rank do that?",
    "data": ", where it waits for data: less work for each sample, more loader workers (num_workers), a faster disk.",
    "disk": ": write there less often or from another thread, keep what it reads in memory, or use a faster "
    "disk (iostat -x).",
    "blocked": ", where it sleeps: for a lock, a sleep, or access to a disk or the network.",
    None: ": at its inputs, and for work that only this rank does there.",
}
"""Where the line is known."""
CHANGE_MIND: Final[dict[Cause | None, str]] = {
    "core": "The rank stays late after the other load is gone.",
    "device": "The rank has no more to compute than the others, and another program shares its device.",
}
OTHERWISE: Final = (
    "If lateness follows the data to another rank, the inputs cause it; if it goes when other programs end, these "
    "slowed its core."
)
FEWER_THREADS: Final = "Give each rank one thread first (OMP_NUM_THREADS=1): is the rank late then as well?"
SAME_WITH_ONE: Final = "The rank is late by as much with one thread each."
OTHER_THREADS: Final = (
    "Threads beside the training's take its core or hold the interpreter's lock (GIL): give their work to a process of "
    "its own, or do less of it. py-spy dump shows them."
)


def _look(view: RunView) -> Iterator[Finding]:
    # A rank that waits for cores because of its own threads, or of a limit, is reported once, with these.
    crowded = {crowding.culprit for crowding in view.crowding}
    crowded |= {rank for rank, one in view.sidecars.items() if throttled_share(one) >= HEALTHY_SHARE}
    # Their other threads are those of torch, of which there are too many.
    of_torch = {crowding.culprit for crowding in view.crowding if crowding.own_threads > 1}
    # A rank that waits for the cores that another one takes is not to blame.
    victims = {
        rank for crowding in view.crowding if crowding.burnt_ms is not None for rank in crowding.victims
    }

    def to_blame(found: Iterable[LateRank]) -> list[LateRank]:
        return [
            late
            for late in found
            if not (late.cause == "core" and late.rank in crowded)
            and not (late.waits_for_cores and late.is_by_other_threads and late.rank in of_torch)
            and not (late.waits_for_cores and late.rank in victims)
        ]

    late_ranks, in_past = to_blame(view.late_ranks), to_blame(view.late_in_past)
    continued = {before.rank: before for before in in_past if before.until_step is None}
    for late in late_ranks[:SEVERAL]:
        yield _tell(view, late, None if late.span else continued.get(late.rank))
    continued_here = {late.rank for late in late_ranks if not late.span} & set(continued)
    for late in [late for late in in_past if late.rank not in continued_here][:SEVERAL]:
        yield _tell_past(view, late)


def _finding(late: LateRank, message: str, change_mind: str) -> Finding:
    """What is so of a rank that was late in any steps."""
    threads = _threads(late) or (None, None)
    return Finding(
        kind="late_rank",
        # What was over after a part of the run, and cost little of it, may come and go on any machine.
        severity="warning" if late.until_step is None else severity(late.cost_ms, late.step_ms),
        message=message,
        confidence=late.confidence,
        rank=late.rank,
        cause=late.cause,
        since_step=late.since_step,
        until_step=late.until_step,
        evidence={
            "extra_ms": late.extra_ms,
            "extra_at_least_ms": late.sure_ms,
            "step_ms": late.step_ms,
            "data_wait_extra_ms": late.data_ms,
            "cpu_share": late.extra.cpu,
            "core_wait_share": late.extra.core,
            "torch_threads": threads[0],
            "torch_threads_of_others": threads[1],
            **late.beside,
        },
        cost_ms=late.cost_ms,
        change_mind=change_mind,
        advice=_advice(late) or ADVICE[late.cause],
    )


def _past_cost_s(view: RunView, late: LateRank) -> float:
    """What it cost in the steps of which only sums are left."""
    return late.cost_ms * float(view.past.counted.sum()) / 1e3


def _tell_past(view: RunView, late: LateRank) -> Finding:
    """Of a rank that was late in steps whose records were overwritten."""
    past = view.past
    until = past.until_step if late.until_step is None else late.until_step + past.length - 1
    found = _finding(
        late,
        f"rank {late.rank} was late in steps {late.since_step} to {until}: on average it needed "
        f"{milliseconds(late.extra_ms)} more than the others for its own part of a step{_why(late)}, in "
        f"{percent(late.often)} of {count(late.steps, 'interval')} of {past.length} steps, of which only sums are "
        "left.",
        "A recording of those steps with a larger ring, Recorder(capacity_mb=...), shows other causes: sums tell no "
        "typical step from a few long ones.",
    )
    intervals = {"share_of_intervals": late.often, "intervals": late.steps, "steps_per_interval": past.length}
    return replace(
        found,
        until_step=until,
        # That would be of the steps that have records, where the costs of all findings are bounded.
        cost_ms=None,
        cost_s=_past_cost_s(view, late),
        evidence={**found.evidence, **intervals},
    )


def _tell(view: RunView, late: LateRank, before: LateRank | None = None) -> Finding:
    """`before`: the same rank, where it was late up to the first of these steps, too."""
    beside = (late.other_threads if late.is_by_other_threads else None) or (None, None)
    innocent = SAME_WITH_ONE if _may_spin(late) else CHANGE_MIND.get(late.cause, OTHERWISE)
    found = _finding(late, _what(view, late), innocent)
    found = replace(
        found,
        since_step=before.since_step if before else late.since_step,
        cost_s=late.cost_ms * len(view.lateness) / 1e3 + (_past_cost_s(view, before) if before else 0.0),
        evidence={
            **found.evidence,
            "share_of_steps": late.often,
            "steps": late.steps,
            "device_share": late.extra.device if late.cause == "device" else None,
            "disk_wait_ms": late.disk_ms,
            "major_faults": late.major_faults,
            "computes_more_ms": late.computes_more_ms or None,
            "than_rank": late.than,
            "load_per_core": late.load,
            "until_step": late.until_step,
            "other_threads_ms": beside[0],
            "other_threads_of_others_ms": beside[1],
            "extra_before_records_ms": before.extra_ms if before else None,
            **times_of(view, late.rank, late.since_step, late.until_step),
        },
    )
    otherwise = None if _advice(late) else ADVICE_AT.get(late.cause)
    found = with_line(found, _where(view, late), "what it needs more", otherwise)
    return _explained(view, found, late) if late.cause in ("compute", None) and not _advice(late) else found


def _explained(view: RunView, found: Finding, late: LateRank) -> Finding:
    """With what is known of this rank and of no other, where that makes it compute for longer."""
    if only := only_on(view, late.rank):
        names, off = (listed(each) for each in zip(*only, strict=True))
        return replace(
            found,
            message=f"{found.message} Only there {names} is on.",
            advice=f"{off[:1].upper()}{off[1:]}; then see whether it is still late.",
        )
    larger = larger_batches(view.sidecars, late.rank)
    if larger is None:
        return found
    # As much more of what the others' step takes, or most of it.
    if (larger.values / larger.of_others - 1.0) * (late.step_ms - late.extra_ms) < MOST * late.extra_ms:
        return found
    return replace(
        found,
        message=f"{found.message} Its batches hold {larger.values:,} values, those of the others {larger.of_others:,}.",
        advice=SAME_SIZES,
        evidence={
            **found.evidence,
            "batch_values": larger.values,
            "batch_values_of_others": larger.of_others,
            "batches": larger.passes,
        },
    )


def _threads(late: LateRank) -> tuple[int, int] | None:
    """How many threads torch has there and elsewhere, where fewer are why it is late."""
    return late.threads if late.cause == "compute" and not late.other_threads else None


def _may_spin(late: LateRank) -> bool:
    return late.spins and late.cause == "compute" and not late.other_threads


def _where(view: RunView, late: LateRank) -> Where | None:
    """The line at which it is longer than the others; one that waits for a core does so at any line."""
    # A host goes on while its device computes: its lines do not tell.
    if late.cause in ("core", "device"):
        return None
    lateness, rows = view.lateness, late.span.rows if late.span else slice(None)
    place, lines = lateness.ranks.index(late.rank), view.lines
    extra, own = lateness.extra[rows, place], view.judged.own[lateness.rows, place][rows]
    if late.than is not None:
        extra, lines = np.full(len(own), late.extra_ms), lines.of([late.rank, late.than])
    more_ms = float(np.maximum(extra, 0.0).sum())
    # What takes longer in the loader alone is no processor that makes everything take longer.
    spent = () if late.cause == "data" else (late.extra.cpu, late.extra.core)
    times = stretch(float((own - extra).sum()), more_ms, *spent)
    return lines.more_of(late.rank, lateness.step[rows], more_ms, times) or late.alone_at


def _advice(late: LateRank) -> str:
    """What to do about threads; empty: they are not the cause."""
    if _may_spin(late):
        return FEWER_THREADS
    if _threads(late):
        return "Give every rank the same OMP_NUM_THREADS and torch.set_num_threads()."
    return OTHER_THREADS if late.is_by_other_threads else ""


def _what(view: RunView, late: LateRank) -> str:
    if late.computes_more_ms:
        return (
            f"rank {late.rank} computes {milliseconds(late.computes_more_ms)} more than the others in a step, and is "
            f"the last one in {percent(late.often)} of {count(late.steps, 'step')}; the others wait for cores or for "
            "it."
        )
    when = late.span.words(view.lateness.step) if late.span else ""
    than = "the others" if late.than is None else f"rank {late.than}"
    return (
        f"rank {late.rank} is late{when}: it needs {milliseconds(late.extra_ms)} more than {than} for its own part "
        f"of a step{_why(late)}, in {percent(late.often)} of {count(late.steps, 'step')}; "
        + (
            "the others wait for it."
            if late.than is None
            else f"so are most ranks, and rank {late.than} waits."
        )
    )


def _why(late: LateRank) -> str:
    if late.cause == "data":
        return f", {milliseconds(late.data_ms)} of it waiting for data"
    if late.cause == "device":
        return ", and its accelerator computes that much longer"
    if late.cause == "core":
        return ", because it waits for a processor core"
    if late.other_threads:
        mine, theirs = (milliseconds(each) for each in late.other_threads)
        return f", while other threads of its process compute ({mine} per step, those of the others {theirs})"
    if threads := _threads(late):
        return f"; its torch uses {count(threads[0], 'thread')}, the others' {threads[1]}"
    if late.cause == "compute":
        does = computing("it", "that", late.extra.cpu, late.extra.core)
        spin = ", or its threads spin for want of a core" if _may_spin(late) else ""
        return f" ({does}{spin})"
    if late.cause == "disk":
        return ", because it waits for a disk" + (
            f" ({late.major_faults:.0f} pages of memory are read from one in each step)"
            if late.waits_for_pages
            else ""
        )
    if late.cause != "blocked":
        return ""
    if replace(late.extra, at_a_line=False).cause == "core":
        return f", because it sleeps, and waits for a core after that ({percent(late.extra.core or 0.0)} of that time)"
    return ", and neither computes nor waits for a core"


CHECK = Check(("late_rank",), _look, per_group=True, rests_on="own times")
