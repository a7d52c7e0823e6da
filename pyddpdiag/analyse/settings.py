"""What the ranks' sidecars say of their settings, of their loaders and optimizers; which ranks differ from the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from pyddpdiag.analyse.bounds import MANY_STEPS
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Loaded, Stepped


def odd_ones(values: Mapping[int, Hashable]) -> list[int]:
    """The ranks outside a clear majority, in order; none where more than half do not agree."""
    if not values:
        return []
    usual, count = Counter(values.values()).most_common(1)[0]
    if count * 2 <= len(values):
        return []
    return sorted(rank for rank, value in values.items() if value != usual)


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


@dataclass(frozen=True)
class Difference:
    """A setting whose value is not the same on all ranks; `values` by rank."""

    name: str
    values: Mapping[int, str]


def differences(sidecars: Mapping[int, Sidecar]) -> tuple[Difference, ...]:
    """Settings in which ranks differ, among those that all or some of them report.

    The order of GLOO_SOCKET_IFNAME matters, too, but is another matter than which interfaces there are.
    """
    with_torch = {rank: sidecar for rank, sidecar in sidecars.items() if sidecar.torch}
    columns: list[tuple[str, dict[int, str]]] = [
        ("torch", {rank: one.torch for rank, one in with_torch.items()}),
        (
            "torch_threads",
            {rank: str(one.torch_threads) for rank, one in with_torch.items() if one.torch_threads},
        ),
    ]
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        columns.append(
            (name, {rank: one.environment.get(name, "not set") for rank, one in with_torch.items()})
        )
    columns += _of_training(sidecars)
    columns.append(("GLOO_SOCKET_IFNAME", {rank: _interfaces(one) for rank, one in with_torch.items()}))
    return tuple(Difference(name, values) for name, values in columns if len(set(values.values())) > 1)


def _of_training(sidecars: Mapping[int, Sidecar]) -> list[tuple[str, dict[int, str]]]:
    loaders = {rank: one for rank, each in sidecars.items() if (one := training_loader(each)) is not None}
    return [
        (
            "samples of an epoch",
            {rank: str(one.length) for rank, one in loaders.items() if one.length is not None},
        ),
        ("batch size", {rank: str(one.batch_size) for rank, one in loaders.items() if one.batch_size}),
        ("optimizer", optimizer_settings(sidecars)),
    ]


def by_host(sidecars: Mapping[int, Sidecar], ranks: Iterable[int]) -> dict[str, list[int]]:
    """The ranks of each host, among these; of those without a sidecar nothing is known."""
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        if rank in sidecars:
            hosts.setdefault(sidecars[rank].host, []).append(rank)
    return hosts


def host_cores(sidecars: Mapping[int, Sidecar], ranks: Iterable[int]) -> int:
    """How many cores these ranks of one host may use together."""
    return len({core for rank in ranks if rank in sidecars for core in sidecars[rank].cores})


def _interfaces(sidecar: Sidecar) -> str:
    setting = sidecar.environment.get("GLOO_SOCKET_IFNAME", "")
    return ",".join(sorted({name.strip() for name in setting.split(",") if name.strip()})) or "not set"


def throttled_share(sidecar: Sidecar) -> float:
    """In how many of the periods of its limit on processor time a rank was held back; 0: it has none, or too few."""
    periods = sidecar.quota.get("periods", 0)
    return sidecar.quota.get("throttled_periods", 0) / periods if periods >= MANY_STEPS else 0.0


def fewer_threads(sidecars: Mapping[int, Sidecar], rank: int) -> tuple[int, int] | None:
    """How many threads torch has on a rank, and the least on any other, if that rank has fewer; None if not."""
    mine = sidecars[rank].torch_threads if rank in sidecars else 0
    others = [one.torch_threads for other, one in sidecars.items() if other != rank and one.torch_threads]
    return (mine, min(others)) if mine and others and mine < min(others) else None
