"""Finds out whether the ranks of a group share memory, and sets it up (csrc/torch/reduce/shared/ranks.hpp).

Names of hosts, addresses and environments say too little: containers may share a network and no memory, and two
hosts may have one name. So it is tried. Each rank makes a segment of memory with a secret in it and publishes
where it is through the group's store; every other rank opens it and proves to its maker that it has read the
secret. Ranks that have read each other's are a host. All ranks of a group are on one host, or on hosts with equal
numbers of ranks; otherwise none share memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import hmac
import json
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, TypedDict

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from pyddpdiag import _native
from pyddpdiag.errors import ReductionError
from pyddpdiag.paths import beside, exchange_setup, gathering, gloo, processes
from pyddpdiag.paths.options import SharedMemory


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
    link = _native.OwnBackend(backend)
    beside.hold(group, link)
    return _native.GlooBetween(link, PrefixStore("end", store), [names[host[place]] for host in hosts], home)


# For the contexts of all devices.
_PORTABLE = 1


@functools.cache
def arrange() -> None:
    """Buckets' staging memory is registered from now on, where that is possible; elsewhere copies are slower."""
    if torch.version.cuda is None and torch.version.hip is None:
        return
    _native.pin_with("cuda", _pin, _unpin)
    # A thread that lets go of memory must not ask an interpreter that is shutting down.
    atexit.register(_native.end_pinning)


def _pin(address: int, size: int) -> bool:
    pinned = int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0  # type: ignore[no-untyped-call]
    if not pinned:
        # CUDA would report the failure again, of the next kernel: let that be this one.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device="cuda")
    return pinned


def _unpin(address: int) -> bool:
    return int(torch.cuda.cudart().cudaHostUnregister(address)) == 0  # type: ignore[no-untyped-call]


# What sums in shared memory, if that is possible; and USED, or why it is not.
_Outcome = tuple[_native.SharedRanks | None, str]
# For recorders that have asked, by the name of the group.
_outcomes: weakref.WeakKeyDictionary[_native.Recorder, dict[str, _Outcome]] = weakref.WeakKeyDictionary()
# Of what was found out without a recorder, and is in its trace: USED, or why not.
_found_elsewhere: weakref.WeakKeyDictionary[_native.Recorder, dict[str, str]] = weakref.WeakKeyDictionary()
USED = "used"


def prepare(
    core: _native.Recorder, group: dist.ProcessGroup, mode: SharedMemory
) -> _native.SharedRanks | None:
    """Tries it at the first call, made by all ranks of `group` together; they may retry a failure.

    `group`: all of its ranks call this. `mode`: the same on all ranks.

    Returns:
        What sums the buckets of this group in shared memory; None, on all ranks: they do not go through it.

    Raises:
        ReductionError: some ranks did not take part; or `mode` is "require", and a rank cannot share memory.
    """
    if mode == "off":
        return None
    known = _outcomes.setdefault(core, {})
    name = group.group_name
    if name not in known:
        known[name] = _try(group)
    ranks, found = known[name]
    _require(found, mode)
    return ranks


def share(group: dist.ProcessGroup, mode: SharedMemory) -> _Outcome:
    """As `prepare`, for a caller that reduces without a recorder; tried at each call.

    `group`: all of its ranks call this. `mode`: not "off".

    Returns:
        What adds up the buckets, for this caller alone; None: Gloo does. And `USED`, or why not.

    Raises:
        ReductionError: as `prepare`.
    """
    ranks, found = _try(group)
    _require(found, mode)
    return ranks, found


def tell(core: _native.Recorder, group_name: str, found: str) -> None:
    """Notes what `share` found out for a group whose buckets this recorder records."""
    _found_elsewhere.setdefault(core, {})[group_name] = found


def outcome(core: _native.Recorder, group_name: str) -> str:
    """`USED`, or why the ranks of a group do not share memory; empty if nobody asked."""
    _, asked = _outcomes.get(core, {}).get(group_name, (None, ""))
    return asked or _found_elsewhere.get(core, {}).get(group_name, "")


def _require(found: str, mode: SharedMemory) -> None:
    if found != USED and mode == "require":
        raise ReductionError(
            f"rank {dist.get_rank()}: the ranks cannot average gradients in shared memory: {found}",
            hint="use shared_memory='auto' to average over Gloo where that is so.",
        )


def _try(group: dist.ProcessGroup) -> _Outcome:
    if group.size() == 1:
        return None, "the group has one rank"
    own, offer = _offer()
    between = None
    try:
        # No rank leaves before every rank has opened what it needs.
        with gathering.meet(
            group, "shared", json.dumps(offer), partial(_lost, gloo.ranks_of(group))
        ) as meeting:
            offers = [json.loads(value) for value in meeting.values]
            peers, proofs = _open(offers, group.rank())
            given = [json.loads(value) for value in meeting.swap("proof", json.dumps(proofs))]
            seen = readers(own, given, group.rank())
            hosts, refusal = agree([json.loads(v) for v in meeting.swap("readers", json.dumps(seen))])
            names = [_name(*pair) for pair in zip(gloo.ranks_of(group), offers, strict=True)]
            if len(hosts) > 1:
                between = connect(hosts, names, group, meeting.store)
    except RuntimeError as error:
        raise ReductionError(
            f"rank {dist.get_rank()}: cannot reach the other ranks to find out whether they share memory: {error}",
            hint="use the same shared_memory=... on all ranks, with the same hook.",
        ) from error
    if refusal:
        return None, refusal
    assert own is not None
    arrange()
    ours = next(host for host in hosts if group.rank() in host)
    members = [peers[rank] for rank in ours]
    timeout_ms = int(gloo.options_of(group)._timeout.total_seconds() * 1000)
    return _native.SharedRanks(own, members, [names[rank] for rank in ours], timeout_ms, between), USED


def _offer() -> tuple[_native.SharedMember | None, dict[str, Any]]:
    """Our own segment, and what the others need to know of it."""
    try:
        own = _native.SharedMember()
    except OSError as error:
        return None, {"name": "", "error": error.strerror or str(error), **processes.ours()}
    return own, {"name": own.name, "error": "", **processes.ours()}


def _lost(ranks: list[int], offers: list[str]) -> str:
    """Which ranks have ended meanwhile; empty: none that we can see."""
    pairs = zip(ranks, map(json.loads, offers), strict=True)
    gone = [_name(rank, offer) for rank, offer in pairs if processes.has_ended(offer)]
    return f"{', '.join(gone)} has ended while shared memory was being set up" if gone else ""


def _name(rank: int, offer: dict[str, Any]) -> str:
    return f"rank {rank} (process {offer['process']})"


def _open(offers: list[dict[str, Any]], rank: int) -> tuple[list[_native.SharedPeer | None], list[list[str]]]:
    """The segments of the others, and for each rank the proof that we have read its secret, or an error."""
    peers: list[_native.SharedPeer | None] = []
    proofs: list[list[str]] = []
    for other, offer in enumerate(offers):
        peer = None
        shown = ["", offer["error"]]
        if other != rank and not offer["error"]:
            try:
                peer = _native.SharedPeer(offer["name"], offer["process"])
                shown = [proof(peer.secret, rank), ""]
            except OSError as error:
                shown = ["", error.strerror or str(error)]
        peers.append(peer)
        proofs.append(shown)
    return peers, proofs
