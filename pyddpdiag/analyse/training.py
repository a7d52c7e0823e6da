"""What the ranks' sidecars say of the training itself: its loader and its optimizers, compared between ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Loaded, Stepped


def training_loader(sidecar: Sidecar) -> Loaded | None:
    """The loader from which a rank took most of its samples; None: none is known."""
    return max(sidecar.training.loaded, key=lambda one: one.epochs * (one.length or 1), default=None)


def workers_of(sidecars: Mapping[int, Sidecar], ranks: Iterable[int]) -> int:
    """How many processes make batches for these ranks."""
    loaders = (training_loader(sidecars[rank]) for rank in ranks)
    return sum(one.workers or 0 for one in loaders if one is not None)


def stepped(sidecar: Sidecar) -> list[Stepped]:
    """The optimizers of a rank's recorded modules; all of them where none is such a one's.

    A rank may have trained something else alone, such as what it then loads.
    """
    known = [one for one in sidecar.training.stepped if one.module is not None]
    return known or list(sidecar.training.stepped)


def optimizer_settings(sidecars: Mapping[int, Sidecar]) -> dict[int, str]:
    """The settings of the ranks' optimizers at the first step in which they are not the same; empty: there is none."""
    by_rank = {rank: some for rank, one in sidecars.items() if (some := stepped(one))}
    if len(by_rank) < 2 or len({len(some) for some in by_rank.values()}) > 1:
        return {}
    for place in range(min(len(some) for some in by_rank.values())):
        found = _first_difference({rank: some[place] for rank, some in by_rank.items()})
        if found:
            return found
    return {}


def _first_difference(by_rank: Mapping[int, Stepped]) -> dict[int, str]:
    last = min(one.steps for one in by_rank.values())
    for step in sorted({step for one in by_rank.values() for step in one.settings if step <= last}):
        then = {rank: f"{one.optimizer}({_at(one.settings, step)})" for rank, one in by_rank.items()}
        if len(set(then.values())) > 1:
            return _shortened(then)
    return {}


def _at(settings: Mapping[int, str], step: int) -> str:
    return settings.get(max((one for one in settings if one <= step), default=0), "")


def _shortened(settings: dict[int, str]) -> dict[int, str]:
    """Without the settings that are the same on all ranks."""
    parts = {rank: text.replace("(", ", ").rstrip(")").split(", ") for rank, text in settings.items()}
    if len({len(some) for some in parts.values()}) > 1:
        return settings
    columns = zip(*parts.values(), strict=True)
    kept = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    return {rank: ", ".join(some[place] for place in kept) for rank, some in parts.items()}
