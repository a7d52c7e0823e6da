"""DDP searches for unused parameters in every pass, and there are none, or always the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pyddpdiag.analyse.bounds import MANY_PASSES, MANY_STEPS, matters
from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.grouped import sure_median
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding
from pyddpdiag.model.sidecar import Module
from pyddpdiag.model.words import count, listed, milliseconds, percent

NAMED: Final = 4


def _look(view: RunView) -> Iterator[Finding]:
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
        if unused and (any(one.used.get("passes_changed", 0) for one in modules) or not _alike(modules)):
            continue
        yield _of(view, modules[0], min(passes), same=bool(unused))


def _alike(modules: Sequence[Module]) -> bool:
    return len({(one.never_used, one.used.get("most_unused", 0)) for one in modules}) == 1


def _of(view: RunView, module: Module, passes: int, *, same: bool) -> Finding:
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
        severity="warning" if len(known) and matters(sure_median(known), steps.wall_ms) else "note",
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


CHECK = Check(("needless_unused_search",), _look)
