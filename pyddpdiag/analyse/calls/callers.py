"""The lines that call collectives: of the script, or of a package whose loop trains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyddpdiag.analyse.bounds import NEARLY_ALL, SEVERAL
from pyddpdiag.model.callers import Caller
from pyddpdiag.model.frameworks import FRAMEWORKS
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.words import listed


def callers(sidecar: Sidecar, name: str, groups: Collection[str] = ()) -> list[Caller]:
    """The callers of an operation as its records name it (`gloo:broadcast`) on a rank, the most frequent one first.

    Args:
        groups: names of the process groups that are meant; empty: all.
    """
    found = [
        one
        for one in sidecar.training.callers
        if f"gloo:{one.operation}" == name and one.where and (not groups or one.group in groups)
    ]
    return sorted(found, key=lambda one: -one.calls)


def in_each_step(
    sidecars: Mapping[int, Sidecar], name: str, ranks: Collection[int], steps: int
) -> list[Caller]:
    """Those of the callers in the process groups of these ranks that call in nearly all of so many steps."""
    sidecar = sidecars.get(min(ranks, default=-1), Sidecar())
    groups = {one.name for one in sidecar.groups.values() if set(one.ranks) == set(ranks)}
    return [one for one in callers(sidecar, name, groups) if one.calls >= NEARLY_ALL * steps]


def places(found: Iterable[Caller]) -> str:
    """Where they are, as `train.py:40 and train.py:52`; empty: nowhere that is known."""
    return listed((one.where for one in found), SEVERAL)


def package_of(found: Collection[Caller]) -> str:
    """What a report calls the package that calls, if none of the callers is the script's; empty: one is, or none is
    known."""
    if not found or not all(one.package for one in found):
        return ""
    name = next(iter(found)).package
    known = FRAMEWORKS.get(name)
    return known.title if known is not None else name


def leave_it(package: str) -> str:
    """The advice for what a package calls."""
    return (
        f"{package[:1].upper()}{package[1:]} needs it in its own loop, so leave it there. It weighs less where each "
        "step does more: a larger batch, or gradients accumulated over several."
    )
