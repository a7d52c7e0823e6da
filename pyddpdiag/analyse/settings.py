"""Settings that should be the same on all ranks, from their sidecars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyddpdiag.analyse.bounds import MANY_STEPS
from pyddpdiag.analyse.training import optimizer_settings, training_loader
from pyddpdiag.model.sidecar import Sidecar


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
