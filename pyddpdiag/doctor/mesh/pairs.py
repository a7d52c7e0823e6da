"""Which pairs of ranks cannot connect, what stands between them, and an interface that would do."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from pyddpdiag.doctor.mesh.facts import Facts, Spot
from pyddpdiag.doctor.mesh.probe import Attempt
from pyddpdiag.doctor.mesh.verdict import Trouble
from pyddpdiag.messages.shells import ByShell, SetVariable, iptables, write
from pyddpdiag.ranks.interfaces import is_loopback

_VARIABLE = "GLOO_SOCKET_IFNAME"
# Links are compared with each other. Two hosts of a kind differ by less, however busy they are.
_SLOW = 0.2
_FAST_ENOUGH_MBIT = 5000.0
_LEAST_LINKS = 5
# Shown of those that have a rank in common.
_MOST_PAIRS = 8
_FIX = {
    "refused": "A firewall on the called rank's machine rejects, or nobody may listen there. Let the other rank in.",
    "filtered": "A firewall drops packets in between. Let the other rank in, on all ports: Gloo's are random.",
    "unroutable": "No route leads there: use an interface on a network that both ranks share.",
    "mtu hole": "Packets of full size get lost in between: lower the MTU of the interface on both ranks.",
    "loopback": "The rank gives the others an address of its own loopback interface. Name the interface to use.",
    "stranger": "Another program answers at that address: it belongs to another machine of the same address.",
}


def chosen(facts: Facts, attempts: Sequence[Attempt], rank: int) -> Attempt | None:
    """How `rank` got to the address that Gloo takes on another rank."""
    return next(
        (a for a in attempts if (a.rank, a.peer, a.address) == (rank, facts.rank, facts.choice)), None
    )


def state(
    ranks: Mapping[int, Facts], attempts: Sequence[Attempt], rank: int, peer: int
) -> tuple[str, Attempt | None]:
    """What Gloo would meet on the way from `rank` to `peer`."""
    attempt = chosen(ranks[peer], attempts, rank)
    if attempt is not None:
        return attempt.state, attempt
    spot = next((s for s in ranks[peer].spots if s.address == ranks[peer].choice), None)
    if (spot is not None and spot.loopback) or is_loopback(ranks[peer].choice):
        same = ranks[rank].machine == ranks[peer].machine
        return ("not tried" if same else "loopback"), None
    return "not tried", None


def cells(
    ranks: Mapping[int, Facts], attempts: Sequence[Attempt]
) -> Iterator[tuple[int, int, str, float | None, float | None]]:
    """The matrix."""
    for rank in sorted(ranks):
        for peer in sorted(ranks):
            if rank != peer:
                what, attempt = state(ranks, attempts, rank, peer)
                yield rank, peer, what, attempt.rtt_ms if attempt else None, attempt.mbit if attempt else None


def look(ranks: Mapping[int, Facts], attempts: Sequence[Attempt]) -> Iterator[Trouble]:
    """Pairs that cannot use what Gloo takes, and the links that are much slower than the others.

    One trouble for each pair, or one for the rank that all bad pairs have in common.
    """
    better = _better(ranks, attempts)
    order = sorted(ranks)
    bad = [
        trouble
        for place, one in enumerate(order)
        for other in order[place + 1 :]
        for trouble in _pair(ranks, attempts, one, other, better)
    ]
    yield from _as_one(bad) or bad
    yield from _slow(ranks, attempts)


def _as_one(bad: Sequence[Trouble]) -> list[Trouble]:
    """The bad pairs as the trouble of the one rank that is in each of them; empty if there is no such rank."""
    common = set.intersection(*(set(trouble.ranks) for trouble in bad)) if len(bad) > 1 else set()
    if len(common) != 1 or len({trouble.kind for trouble in bad}) > 1:
        return []
    (rank,) = common
    lines: dict[int, dict[str, None]] = {}
    for trouble in bad:
        for place, texts in trouble.lines.items():
            lines.setdefault(place, {}).update(dict.fromkeys(texts))
    shown = " ".join(trouble.text for trouble in bad[:_MOST_PAIRS])
    rest = f" And {len(bad) - _MOST_PAIRS} pairs more." if len(bad) > _MOST_PAIRS else ""
    return [
        Trouble(
            bad[0].kind,
            (rank,),
            f"rank {rank} is in every bad pair, and the other ranks reach each other. {shown}{rest}",
            bad[0].fix,
            {place: tuple(texts) for place, texts in sorted(lines.items())},
        )
    ]


def _pair(
    ranks: Mapping[int, Facts], attempts: Sequence[Attempt], one: int, other: int, better: Mapping[int, Spot]
) -> Iterator[Trouble]:
    there, back = state(ranks, attempts, one, other), state(ranks, attempts, other, one)
    bad = [
        (a, b, what)
        for a, b, what in ((one, other, there), (other, one, back))
        if what[0] not in ("ok", "not tried")
    ]
    if not bad:
        return
    # Full packets that get lost in one direction are a hole, whatever the other direction does.
    kinds = [what for _, _, (what, _) in bad]
    kind = kinds[0]
    one_way = len(bad) == 1 and kind not in ("mtu hole", "loopback")
    ways = "; ".join(
        f"rank {a} to rank {b} ({ranks[b].choice_interface or '?'}, {ranks[b].choice}): {what}"
        for a, b, (what, _) in bad
    )
    lines = _other_interface(ranks, better) if kind != "mtu hole" else {}
    if not lines:
        lines = _lines(ranks, bad)
    fix = _FIX.get(kind, "See whether the two machines can reach each other at all.")
    if better and kind != "mtu hole":
        fix = "All ranks reach each other over another interface. Name it on every rank."
    yield Trouble(
        "one-way" if one_way else kind,
        (one, other),
        f"{ways}."
        + (
            " The other direction works. Gloo connects a pair in one direction only: it may be the good one."
            if one_way
            else ""
        ),
        fix,
        lines,
    )


def _better(ranks: Mapping[int, Facts], attempts: Sequence[Attempt]) -> dict[int, Spot]:
    """For each rank an interface that all others reach; empty if a rank has none."""
    usable: dict[int, list[tuple[float, Spot]]] = {}
    for rank, facts in ranks.items():
        # Gloo takes the first address of the interface that it is given.
        first = {spot.interface: spot for spot in reversed(facts.spots)}
        for spot in first.values():
            calls = [a for a in attempts if a.peer == rank and a.address == spot.address]
            if len(calls) == len(ranks) - 1 and calls and all(a.ok for a in calls):
                usable.setdefault(rank, []).append((min(a.mbit or 0.0 for a in calls), spot))
    if len(usable) < len(ranks):
        return {}
    # The same name on all ranks is most likely the same network.
    named = [{spot.interface: (mbit, spot) for mbit, spot in spots} for spots in usable.values()]
    common = set.intersection(*(set(names) for names in named)) if named else set()
    if common:
        best = max(sorted(common), key=lambda name: min(names[name][0] for names in named))
        return {rank: names[best][1] for rank, names in zip(usable, named, strict=True)}
    return {rank: max(spots, key=lambda item: item[0])[1] for rank, spots in usable.items()}


def _other_interface(ranks: Mapping[int, Facts], better: Mapping[int, Spot]) -> dict[int, tuple[str, ...]]:
    return {
        rank: (write(SetVariable(_VARIABLE, spot.interface), ranks[rank].shell),)
        for rank, spot in sorted(better.items())
    }


def _lines(
    ranks: Mapping[int, Facts], bad: Sequence[tuple[int, int, tuple[str, Attempt | None]]]
) -> dict[int, tuple[str, ...]]:
    lines: dict[int, list[str]] = {}
    for caller, called, (what, attempt) in bad:
        if what in ("refused", "filtered") and attempt is not None and attempt.source:
            allow = ByShell(
                f"{iptables(attempt.source)} -I INPUT -p tcp -s {attempt.source} -j ACCEPT",
                f'New-NetFirewallRule -DisplayName "Gloo from {attempt.source}" -Direction Inbound -Protocol TCP '
                f"-RemoteAddress {attempt.source} -Action Allow",
            )
            lines.setdefault(called, []).append(write(allow, ranks[called].shell))
        elif what == "mtu hole" and attempt is not None and attempt.mtu:
            for rank in (caller, called):
                name = ranks[rank].choice_interface
                shrink = ByShell(
                    f"ip link set dev {name} mtu {attempt.mtu}",
                    f'netsh interface {"ipv6" if ":" in attempt.address else "ipv4"} set subinterface "{name}" '
                    f"mtu={attempt.mtu} store=persistent",
                )
                text = write(shrink, ranks[rank].shell)
                if name and text not in lines.setdefault(rank, []):
                    lines[rank].append(text)
        elif what in ("loopback", "unroutable"):
            spot = next(
                (s for s in ranks[called].spots if not s.loopback and s.address != ranks[called].choice), None
            )
            if spot is not None:
                text = write(SetVariable(_VARIABLE, spot.interface), ranks[called].shell)
                if text not in lines.setdefault(called, []):
                    lines[called].append(text)
    return {rank: tuple(texts) for rank, texts in sorted(lines.items()) if texts}


def _slow(ranks: Mapping[int, Facts], attempts: Sequence[Attempt]) -> Iterator[Trouble]:
    """Links between machines whose rate is far below that of the others, and a faster interface that is not used."""
    used: dict[tuple[int, int], float] = {}
    for rank in ranks:
        for peer in ranks:
            attempt = chosen(ranks[peer], attempts, rank) if rank != peer else None
            if (
                attempt is not None
                and attempt.ok
                and attempt.mbit
                and ranks[rank].machine != ranks[peer].machine
            ):
                used[rank, peer] = attempt.mbit
    faster = _faster(ranks, attempts, used)
    if faster:
        worst = max(used.values())
        best = {
            rank: (write(SetVariable(_VARIABLE, spot.interface), ranks[rank].shell),)
            for rank, spot in faster.items()
        }
        yield Trouble(
            "slow",
            tuple(sorted(faster)),
            f"the interface that Gloo takes carries {worst:g} Mbit/s at most; another one is several times faster.",
            "Name the faster one on every rank.",
            best,
            warning=True,
        )
        return
    for (rank, peer), mbit in sorted(used.items()):
        others = [rate for pair, rate in used.items() if pair != (rank, peer)]
        # Between two hosts there is only the other direction, and one burst of load makes as much of a difference.
        if len(others) < _LEAST_LINKS or mbit >= _FAST_ENOUGH_MBIT:
            continue
        if mbit < _SLOW * statistics.median(others) and mbit < 2 * _SLOW * min(others):
            yield Trouble(
                "slow",
                (rank, peer),
                f"rank {rank} to rank {peer} carries {mbit:g} Mbit/s; the other links {statistics.median(others):g}.",
                "Look at the cable, the switch's port and the speed of the interface, or at other traffic on it.",
                warning=True,
            )


def _faster(
    ranks: Mapping[int, Facts], attempts: Sequence[Attempt], used: Mapping[tuple[int, int], float]
) -> dict[int, Spot]:
    """An interface for each rank that all others reach several times faster than the one that Gloo takes."""
    machines = {facts.machine for facts in ranks.values()}
    if not used or len(machines) < 2 or max(used.values()) >= _FAST_ENOUGH_MBIT:
        return {}
    # Its slowest measurement against the fastest of the one in use: they vary with the load.
    better = _better(ranks, [a for a in attempts if (a.mbit or 0.0) > max(used.values()) / _SLOW])
    return better if any(spot.address != ranks[rank].choice for rank, spot in better.items()) else {}
