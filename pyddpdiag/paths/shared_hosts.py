"""Which ranks of a group share memory, and the way from host to host for those that do not all share it."""

from __future__ import annotations

import hashlib
import hmac
import weakref
from collections.abc import Sequence
from typing import TypedDict

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed does not export them to mypy

from pyddpdiag import _native
from pyddpdiag.paths import exchange_setup

# They live as long as the group whose buckets they carry; the core knows them weakly.
_links: weakref.WeakKeyDictionary[dist.ProcessGroup, list[_native.HostLink]] = weakref.WeakKeyDictionary()


class Readers(TypedDict):
    """Who has read a rank's secret: ranks of the group, with the rank itself; and why the first other one has not."""

    ranks: list[int]
    refusal: str


def proof(secret: bytes, reader: int) -> str:
    """What only a rank that has read the secret can know."""
    return hashlib.sha256(secret + reader.to_bytes(4, "little")).hexdigest()


def readers(own: _native.SharedMember | None, given: Sequence[Sequence[Sequence[str]]], rank: int) -> Readers:
    """Who has read the secret of `rank`, which is ours.

    Args:
        own: our segment, if we have one.
        given: of each rank, its proof for each rank, and an error in its place.
        rank: our own in the group.
    """
    able = [rank]
    refusal = ""
    for other, proofs in enumerate(given):
        theirs, error = proofs[rank]
        why = ""
        if error:
            why = f"rank {other} of the group cannot use the memory of rank {rank}: {error}"
        elif other == rank:
            continue
        elif own is None or not hmac.compare_digest(theirs, proof(own.secret, other)):
            why = f"rank {other} of the group opened other memory under the name of that of rank {rank}"
        else:
            able.append(other)
        refusal = refusal or why
    return {"ranks": sorted(able), "refusal": refusal}


def agree(seen: Sequence[Readers]) -> tuple[list[list[int]], str]:
    """The hosts of a group, from what all its ranks found.

    Returns:
        The ranks of each host in order, the host of rank 0 first. Or no hosts, and why the ranks do not share memory.
    """
    refusal = next((one["refusal"] for one in seen if one["refusal"]), "")
    hosts: list[list[int]] = []
    for rank, one in enumerate(seen):
        host = sorted(other for other in one["ranks"] if rank in seen[other]["ranks"])
        if host not in hosts:
            hosts.append(host)
    sizes = [len(host) for host in hosts]
    if sum(sizes) == len(seen) and min(sizes) == max(sizes) > 1:
        return hosts, ""
    if sum(sizes) == len(seen) and max(sizes) > 1:
        return [], f"{refusal} (hosts of {', '.join(map(str, sizes))} ranks; the numbers must be equal)"
    return [], refusal


def connect(
    hosts: Sequence[Sequence[int]], names: Sequence[str], group: dist.ProcessGroup, store: Store
) -> _native.GlooBetween:
    """Connects this rank with those of the same place on the other hosts. All ranks of the group call this.

    Args:
        hosts: as `agree` says.
        names: of each rank of the group, for errors.
        group: the connections are made as its own were, and live as long.
        store: for this purpose alone.

    Raises:
        RuntimeError: a rank cannot be reached.
    """
    home = next(i for i, host in enumerate(hosts) if group.rank() in host)
    place = hosts[home].index(group.rank())
    options = exchange_setup.options_like(group)
    backend = dist.ProcessGroupGloo(PrefixStore(f"part/{place}", store), home, len(hosts), options)
    link = _native.HostLink(backend)
    _links.setdefault(group, []).append(link)
    return _native.GlooBetween(link, PrefixStore("end", store), [names[host[place]] for host in hosts], home)
