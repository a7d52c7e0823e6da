"""One rank of a mesh check: introduces itself to rank 0, tries the others when told, and reports."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from pyddpdiag.doctor.mesh.facts import Facts, Spot, gather
from pyddpdiag.doctor.mesh.place import Line, Message
from pyddpdiag.doctor.mesh.probe import Attempt, Listener, reach
from pyddpdiag.doctor.other_process import OtherProcess
from pyddpdiag.errors import DoctorError
from pyddpdiag.ranks import interfaces

_AT_ONCE = 16


class Member:
    """This process's part. `world_size`: as it was started. `wait_s`: longest wait for the name server."""

    def __init__(self, rank: int, world_size: int, environ: Mapping[str, str], wait_s: float) -> None:
        token = secrets.token_hex(16)
        self._listeners: dict[str, Listener] = {}
        for one in interfaces.found():
            for address in one.routable if one.up else ():
                try:
                    self._listeners.setdefault(address, Listener(address, token))
                except OSError:
                    continue  # an address that is about to vanish
        ports = {address: listener.port for address, listener in self._listeners.items()}
        self.facts = gather(rank, world_size, environ, ports, token, wait_s)

    def take_part(self, line: Line, hub_address: str, until: float) -> Message:
        """Does what rank 0 asks for until it sends its verdict, which is returned.

        Raises:
            DoctorError: rank 0 is gone, or time is up.
        """
        line.send({"hello": asdict(self.facts)}, until)
        roster: dict[int, Facts] = {}
        while True:
            order = line.receive(until)
            if "verdict" in order:
                return dict(order["verdict"])
            if "refused" in order:
                raise DoctorError(str(order["refused"]))
            limit = min(until, time.monotonic() + float(order.get("seconds", 10.0)))
            answer: dict[str, Any] = {}
            if "roster" in order:
                roster = {f.rank: f for f in map(Facts.from_fields, order["roster"])}
            elif "try" in order:
                spots = [
                    (roster[rank], spot) for rank in order["try"] for spot in self._spots(roster[int(rank)])
                ]
                answer = {"attempts": [asdict(a) for a in self._try(spots, limit, bool(order.get("alone")))]}
            elif "group" in order:
                wanted = order["group"]
                address = "127.0.0.1" if self.facts.rank == 0 else hub_address
                answer = {
                    "group": _form(
                        self.facts.rank, int(wanted["world_size"]), address, int(wanted["port"]), limit
                    )
                }
            line.send({"done": True, **answer}, until)

    def _spots(self, peer: Facts) -> list[Spot]:
        same = peer.machine == self.facts.machine
        return [spot for spot in peer.spots if same or not spot.loopback]

    def _try(self, wanted: list[tuple[Facts, Spot]], limit: float, alone: bool) -> list[Attempt]:
        """Tries all at once, or one after the other where rates are to be measured."""

        def one(pair: tuple[Facts, Spot]) -> Attempt:
            if time.monotonic() >= limit:
                peer, spot = pair
                return Attempt(self.facts.rank, peer.rank, spot.interface, spot.address, "", "not tried")
            return reach(self.facts.rank, *pair, limit)

        with ThreadPoolExecutor(1 if alone else _AT_ONCE) as pool:
            return list(pool.map(one, wanted))

    def close(self) -> None:
        """Listens no more."""
        for listener in self._listeners.values():
            listener.close()


_GRACE_S = 1.0


def _form(rank: int, world_size: int, address: str, port: int, until: float) -> dict[str, Any]:
    """How it went: `ok`, `seconds`, `error`. Takes no longer than `until` (monotonic s)."""
    begin = time.monotonic()
    left = max(1.0, until - begin)
    arguments = map(str, (rank, world_size, address, port, left / 2))
    process = OtherProcess("-m", "pyddpdiag.doctor.try_group", *arguments)
    output = process.output(max(0.5, left - _GRACE_S))
    seconds = time.monotonic() - begin
    if output is None:
        return {
            "ok": False,
            "seconds": seconds,
            "error": f"no group after {seconds:.0f} s, and no message",
        }
    out, errors = output
    try:
        answer = json.loads(out.strip().splitlines()[-1])
        return {
            "ok": bool(answer["ok"]),
            "seconds": float(answer["seconds"]),
            "error": str(answer["error"])[:4000],
        }
    except (IndexError, ValueError, KeyError, TypeError):
        how = f"exitcode  : {process.exit_code} "
        return {"ok": False, "seconds": seconds, "error": f"{errors[-2000:]}\n{how}".strip()}
