"""Settings that differ between the ranks, and those that slow a training down: for debugging, for repeatable bits,
loaders with too few workers or too many, a search for unused parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pyddpdiag.analyse.batches import uneven_batches
from pyddpdiag.analyse.bounds import MANY_PASSES, MANY_STEPS, SEVERAL, confidence, least_ms, severity
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.settings import (
    Difference,
    by_host,
    differences,
    host_cores,
    odd_ones,
    training_loader,
    workers_of,
)
from pyddpdiag.analyse.step_matrix import lower_median, median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model.findings import Finding
from pyddpdiag.model.sidecar import Module, Sidecar
from pyddpdiag.model.words import count, listed, milliseconds, percent, ranks

OF_LOADER: Final = ("samples of an epoch", "batch size")
"""No launcher makes these equal."""

LONGEST: Final = 60
"""Characters of a value: an environment may hold anything."""


def _differ(view: RunView) -> Iterator[Finding]:
    found = differences(view.sidecars)
    if not found:
        return
    odd = {rank for difference in found for rank in odd_ones(difference.values)}
    yield Finding(
        kind="settings_differ",
        severity="note",
        message="the ranks have different settings: " + "; ".join(map(_said, found)) + ".",
        confidence="certain",
        rank=odd.pop() if len(odd) == 1 else None,
        evidence={difference.name: _said(difference) for difference in found},
        change_mind="This is intended: the machines differ, and each rank's settings fit its machine.",
        advice=_advice_of(view, found),
    )


def _advice_of(view: RunView, found: Sequence[Difference]) -> str:
    parts = []
    if any(difference.name not in OF_LOADER for difference in found):
        parts.append(
            "Start every rank with the same torch and the same environment, for instance through one launcher."
        )
    uneven = view.advice.uneven()
    if uneven_batches(view.sidecars) is not None:
        parts.append(f"Unless the loop over batches is within Join already: {uneven[:1].lower()}{uneven[1:]}")
    elif not parts:
        parts.append("Give every rank as many samples, in batches of the same size.")
    return " ".join(parts)


def _said(difference: Difference) -> str:
    by_value: dict[str, list[int]] = {}
    for rank, value in sorted(difference.values.items()):
        by_value.setdefault(value, []).append(rank)
    values = (f"{value[:LONGEST]} on rank {listed(some, 4)}" for value, some in by_value.items())
    return f"{difference.name} is {listed(values, 4)}"


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
        if 0 < host_cores(view.sidecars, members) < workers_of(view.sidecars, members):
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


def only_on(view: RunView, rank: int) -> list[tuple[str, str]]:
    """The settings that cost time and are on there and nowhere else: what each is, and how to turn it off."""
    mine = ((each, each.on(view)) for each in _SETTINGS if not each.workers)
    return [(each.name, each.off) for each, members in mine if members == [rank]]


def _costly(view: RunView) -> Iterator[Finding]:
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
        severity=severity(most, step_ms),
        message=f"settings that cost time are on: {'; '.join(said)}.",
        confidence=confidence(view.judged.steps) if costs else "certain",
        cost_ms=sum(costs.values()) if costs else None,
        evidence={
            "settings": len(said),
            "step_ms": step_ms,
            **{f"{name}_ms": cost for name, cost in costs.items()},
        },
        change_mind="Somebody looks for an error with them, or needs the same bits in each run.",
        advice=f"For the training itself: {'; '.join(off)}.",
    )


NAMED: Final = 4


def _search(view: RunView) -> Iterator[Finding]:
    for index in sorted({key for sidecar in view.sidecars.values() for key in sidecar.modules}):
        modules = [sidecar.modules[index] for sidecar in view.sidecars.values() if index in sidecar.modules]
        passes = [one.used.get("passes", 0) for one in modules]
        searching = [
            one.ddp.get("find_unused_parameters", 0) and not one.ddp.get("static_graph") for one in modules
        ]
        if not all(searching) or min(passes) < MANY_STEPS or len(modules) < view.run.world_size:
            continue
        unused = max(one.used.get("passes_with_unused", 0) for one in modules)
        # Another graph in one pass, or on one rank, is what the search is for.
        graphs = {(one.never_used, one.used.get("most_unused", 0)) for one in modules}
        if unused and (any(one.used.get("passes_changed", 0) for one in modules) or len(graphs) > 1):
            continue
        yield _of_search(view, modules[0], min(passes), same=bool(unused))


def _of_search(view: RunView, module: Module, passes: int, *, same: bool) -> Finding:
    steps = view.judged
    # DDP adds up which parameters were used, a number for each, in a collective of its own.
    maps = [
        one
        for one in view.calls_in_steps.find("gloo:all_reduce", beside=True)
        if one.bytes == 4 * len(module.parameters) * max(1, one.calls)
    ]
    known = maps[0].known_ms if maps else np.empty(0)
    cost = maps[0].typical_ms if maps else 0.0
    traffic = (
        f"{milliseconds(cost)} of a step of {milliseconds(steps.wall_ms)} ({percent(cost / steps.wall_ms)})"
    )
    price = (
        f", which costs {traffic} and a walk over the graph"
        if maps
        else ", a walk over the graph in every pass"
    )
    if same:
        names = [module.parameters[place] for place in module.never_used if place < len(module.parameters)]
        unused = count(module.used.get("most_unused", 0), "parameter")
        found = f"the same {unused}{f' ({listed(names, NAMED)})' if names else ''} had no gradient"
    else:
        found = "every parameter had a gradient"
    return Finding(
        kind="needless_unused_search",
        severity=severity(sure_median(known), steps.wall_ms),
        message=f"DDP searches for unused parameters of {module.name}{price}; {found} in each of "
        f"{passes} passes.",
        confidence="high" if passes >= MANY_PASSES else "medium",
        cost_ms=cost,
        evidence={
            "passes": passes,
            "passes_with_unused": module.used.get("passes_with_unused", 0),
            "unused": module.used.get("most_unused", 0),
            "search_ms": cost if maps else None,
            "step_ms": steps.wall_ms,
        },
        change_mind="A branch of the model that was not taken in these passes leaves parameters out.",
        advice=f"{view.advice.ddp_option('static_graph=True')} finds them once, in the first step; or leave these "
        "parameters out of the model, or freeze them before it is wrapped."
        if same
        else f"{view.advice.ddp_option('find_unused_parameters=False')}; if a later pass should leave one out, DDP "
        "raises an error that says so.",
    )


CHECKS = (
    Check(("settings_differ",), _differ, rests_on="records"),
    Check(("costly_settings",), _costly, rests_on="records"),
    Check(("needless_unused_search",), _search),
)
