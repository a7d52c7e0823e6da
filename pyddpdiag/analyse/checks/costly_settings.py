"""Settings that slow a training down are on: for debugging, for repeatable bits, and loaders with too few workers or
too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import SEVERAL, confidence, least_ms, matters
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.settings import by_host, host_cores
from pyddpdiag.analyse.step_matrix import lower_median, median
from pyddpdiag.analyse.training import training_loader
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.words import milliseconds, ranks


@dataclass(frozen=True)
class _Setting:
    """`on`: the ranks that have it. `cost_ms`: what it costs per step at least; NaN: that cannot be told."""

    name: str
    does: str
    off: str
    on: Callable[[RunView], list[int]]
    cost_ms: Callable[[RunView, list[int]], float] = lambda view, members: float("nan")
    workers: str = ""
    """So many of a loader are to be typed behind `off`."""
    if_costly: bool = False
    """Only worth a word where it costs a share of the step, which another finding (`data_wait`) counts."""


def _stacks_ms(view: RunView, members: list[int]) -> float:
    """How long the main thread gathers stacks in each step, by the looks at it."""
    return max((_stack_share(view, rank) for rank in members), default=0.0) * view.judged.wall_ms


def _stack_share(view: RunView, rank: int) -> float:
    lines = view.lines.by_rank.get(rank)
    if lines is None or not (lines.step >= 0).any():
        return 0.0
    gathers = np.array([stack.call.startswith(_GATHERS) for stack in lines.stacks], np.bool_)
    return float(gathers[lines.stack[lines.step >= 0]].mean())


def _data_ms(view: RunView, _: list[int]) -> float:
    return median(lower_median(view.judged.data_wait))


def _where(has: Callable[[Sidecar], bool]) -> Callable[[RunView], list[int]]:
    return lambda view: [rank for rank, one in view.sidecars.items() if has(one)]


def _variable(name: str, value: str) -> Callable[[RunView], list[int]]:
    return _where(lambda one: one.environment.get(name, "").upper() == value)


def _anomaly(view: RunView) -> list[int]:
    """It was on at the last look, or is on within passes only, and the looks have seen its stacks."""
    on = {rank: one.debugging.get("anomaly_detection", 0) for rank, one in view.sidecars.items()}
    return [rank for rank, how in on.items() if how == 2 or (how == 1 and _stack_share(view, rank) > 0.0)]


def _crowds(view: RunView) -> list[int]:
    found: list[int] = []
    for members in by_host(view.sidecars, view.sidecars).values():
        loaders = (training_loader(view.sidecars[rank]) for rank in members)
        workers = sum(each.workers or 0 for each in loaders if each is not None)
        if 0 < host_cores(view.sidecars, members) < workers:
            found += members
    return found


_GATHERS: Final = ("traceback.", "linecache.", "torch.fx.traceback.", "tokenize.")

_SETTINGS: Final = (
    _Setting(
        "anomaly detection",
        "forward gathers the stack of each operation, and backward looks for NaN after each",
        "leave out torch.autograd.set_detect_anomaly(True) and detect_anomaly()",
        _anomaly,
        _stacks_ms,
    ),
    _Setting(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        "before each collective the ranks compare what they are about to do, in collectives of their own",
        "unset TORCH_DISTRIBUTED_DEBUG",
        _variable("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
    ),
    _Setting(
        "CUDA_LAUNCH_BLOCKING=1",
        "the host waits for each kernel of the GPU",
        "unset CUDA_LAUNCH_BLOCKING",
        _variable("CUDA_LAUNCH_BLOCKING", "1"),
    ),
    _Setting(
        "deterministic algorithms",
        "operations take the way that repeats to the bit, and not the fastest",
        "leave out torch.use_deterministic_algorithms(True) if nobody compares bits",
        _where(lambda one: one.debugging.get("deterministic_algorithms") == 2),
    ),
    _Setting(
        "torch's profiler",
        "each operation is noted, with its stack and shapes if asked for; it was on for much of the run",
        "profile a few steps (torch.profiler.schedule)",
        _where(lambda one: one.debugging.get("profiler", 0) >= SEVERAL),
    ),
    _Setting(
        "a loader with num_workers=0",
        "the loop makes each batch itself",
        "give",
        _where(lambda one: (loader := training_loader(one)) is not None and loader.workers == 0),
        _data_ms,
        workers="2",
        if_costly=True,
    ),
    _Setting(
        "more loader workers than the host has cores",
        "they take the cores from the training",
        "lower",
        _crowds,
        workers="...",
    ),
)


def _look(view: RunView) -> Iterator[Finding]:
    step_ms = view.judged.wall_ms
    said, off = [], []
    costs: dict[str, float] = {}
    for each in _SETTINGS:
        members = each.on(view)
        cost = each.cost_ms(view, members) if members else float("nan")
        if not members or (each.if_costly and not cost >= least_ms(step_ms)):
            continue
        if cost > 0.0 and not each.if_costly:
            costs[each.name] = cost
        who = "" if len(members) == len(view.sidecars) else f" on {ranks(members)}"
        much = f", {milliseconds(cost)} per step or more" if cost > 0.0 else ""
        said.append(f"{each.name}{who} ({each.does}{much})")
        off.append(f"{each.off} {view.advice.workers(each.workers)}" if each.workers else each.off)
    if not said:
        return
    most = max(costs.values(), default=0.0)
    yield Finding(
        kind="costly_settings",
        severity="warning" if matters(most, step_ms) else "note",
        message=f"settings that cost time are on: {'; '.join(said)}.",
        confidence=confidence(view.judged.steps) if costs else "certain",
        cost_ms=sum(costs.values()) if costs else None,
        evidence=_evidence(costs, step_ms, len(said)),
        change_mind="Somebody looks for an error with them, or needs the same bits in each run.",
        advice=f"For the training itself: {'; '.join(off)}.",
    )


def _evidence(costs: Mapping[str, float], step_ms: float, on: int) -> dict[str, float | int | str | None]:
    return {"settings": on, "step_ms": step_ms, **{f"{name}_ms": cost for name, cost in costs.items()}}


CHECK = Check(("costly_settings",), _look, rests_on="records")
