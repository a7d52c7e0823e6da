"""Rank 0's other half: gathers the ranks, has them try each other in turn, and judges. It waits for nobody for long."""

from __future__ import annotations

import errno
import socket
import threading
import time
from dataclasses import asdict
from typing import Any, Final

from pyddpdiag.doctor.mesh.facts import Facts
from pyddpdiag.doctor.mesh.judge import judge
from pyddpdiag.doctor.mesh.place import Line, Message
from pyddpdiag.doctor.mesh.probe import Attempt
from pyddpdiag.doctor.mesh.verdict import Verdict
from pyddpdiag.errors import DoctorError
from pyddpdiag.model.fields import maybe_from_json
from pyddpdiag.ranks.tcp import small_packets

# Parts of the whole time, each an upper bound.
_MEET: Final = 0.4
_REACH: Final = 0.25
_RATES: Final = 0.15
_LEAVE_S: Final = 2.0
_GROUP_S: Final = 60.0
# A rank's own limits end its part before ours do.
_LATE_S: Final = 1.0


class Hub:
    """Listens at a port.

    `port`: 0 for any free one. `world_size`: how many ranks to wait for.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, world_size: int) -> None:
        self._world_size = world_size
        self._socket = _listening(port)
        small_packets(self._socket)
        self.port = int(self._socket.getsockname()[1])
        self._lines: dict[int, Line] = {}
        self._facts: dict[int, Facts] = {}
        self._odd: list[Facts] = []
        self._silent: dict[int, str] = {}
        self._lock = threading.Lock()
        self.verdict: Verdict | None = None

    def run(self, timeout_s: float) -> None:
        """All of it, in at most `timeout_s`."""
        begin = time.monotonic()
        end = begin + timeout_s - _LEAVE_S
        self._meet(begin + timeout_s * _MEET)
        came = dict(self._facts)
        self._ask(
            {"roster": [asdict(facts) for facts in came.values()]}, {rank: {} for rank in came}, end, 10.0
        )
        others = {rank: [peer for peer in came if peer != rank] for rank in came}
        attempts = self._attempts(
            {rank: {"try": peers} for rank, peers in others.items()}, end, timeout_s * _REACH
        )
        attempts = self._rates(attempts, end, timeout_s * _RATES)
        formed: dict[int, dict[str, Any]] = {}
        before = judge(self._world_size, list(came.values()), self._odd, self._silent, attempts, formed)
        # With something wrong, a real group would only wait.
        if len(self._lines) == self._world_size and all(trouble.warning for trouble in before.troubles):
            left = max(5.0, min(_GROUP_S, end - time.monotonic() - 1.0))
            # The store takes our own place, where the job's will be: what is open there may be all that is.
            self._socket.close()
            order = {"group": {"world_size": self._world_size, "port": self.port}}
            answers = self._ask({}, dict.fromkeys(came, order), end + 1.0, left)
            formed = {
                rank: answer["group"]
                for rank, answer in answers.items()
                if isinstance(answer.get("group"), dict)
            }
        self.verdict = judge(self._world_size, list(came.values()), self._odd, self._silent, attempts, formed)
        for line in self._lines.values():
            try:
                line.send({"verdict": self.verdict.to_fields()}, time.monotonic() + 1.0)
            except DoctorError:
                continue

    def _meet(self, until: float) -> None:
        """Takes ranks until all are there, or time is up."""
        while len(self._facts) < self._world_size and (left := until - time.monotonic()) > 0:
            self._socket.settimeout(min(left, 0.5))
            try:
                connection, _ = self._socket.accept()
            except OSError:
                continue
            # A program that connects and says nothing must not hold up the others.
            threading.Thread(target=self._admit, args=(Line(connection), until), daemon=True).start()

    def _admit(self, line: Line, until: float) -> None:
        try:
            facts = Facts.from_fields(line.receive(min(until, time.monotonic() + 5.0)).get("hello", {}))
        except DoctorError:
            line.close()
            return
        with self._lock:
            if facts.rank in self._facts or not 0 <= facts.rank < self._world_size:
                self._odd.append(facts)
                why = (
                    "is there already"
                    if facts.rank in self._facts
                    else f"is outside of a world of {self._world_size}"
                )
                try:
                    line.send({"refused": f"rank {facts.rank} {why}."}, time.monotonic() + 1.0)
                except DoctorError:
                    line.close()
                return
            self._lines[facts.rank] = line
            self._facts[facts.rank] = facts

    def _ask(
        self, common: Message, orders: dict[int, Message], end: float, seconds: float
    ) -> dict[int, Message]:
        """Gives each rank its order and takes the answers; one that is gone or late is asked no more."""
        until = min(end, time.monotonic() + seconds)
        allowed = {"seconds": max(0.5, until - time.monotonic())}
        answers: dict[int, Message] = {}
        asked = [rank for rank in orders if rank in self._lines and rank not in self._silent]
        for rank in asked:
            try:
                self._lines[rank].send({**common, **orders[rank], **allowed}, until)
            except DoctorError as error:
                self._silent[rank] = error.message
        for rank in asked:
            if rank not in self._silent:
                try:
                    answers[rank] = self._lines[rank].receive(until + _LATE_S)
                except DoctorError as error:
                    self._silent[rank] = error.message
        return answers

    def _attempts(self, orders: dict[int, Message], end: float, seconds: float) -> list[Attempt]:
        found: list[Attempt | None] = []
        for answer in self._ask({}, orders, end, seconds).values():
            found += [maybe_from_json(Attempt, raw) for raw in answer.get("attempts", [])]
        return [attempt for attempt in found if attempt is not None]

    def _rates(self, attempts: list[Attempt], end: float, seconds: float) -> list[Attempt]:
        """Measures again in turns, in which nobody disturbs another: everybody calls the rank `shift` further on."""
        ranks = sorted(rank for rank in self._lines if rank not in self._silent)
        until = min(end, time.monotonic() + seconds)
        quiet: dict[tuple[int, int, str], Attempt] = {}
        for shift in range(1, len(ranks)):
            if time.monotonic() >= until:
                break
            orders: dict[int, Message] = {
                rank: {"try": [ranks[(place + shift) % len(ranks)]], "alone": True}
                for place, rank in enumerate(ranks)
            }
            bad = {(a.rank, a.peer) for a in attempts if not a.ok}
            orders = {rank: order for rank, order in orders.items() if (rank, order["try"][0]) not in bad}
            for attempt in self._attempts(orders, end, max(1.0, until - time.monotonic())):
                if attempt.ok:
                    quiet[attempt.rank, attempt.peer, attempt.address] = attempt
        return [quiet.get((a.rank, a.peer, a.address), a) for a in attempts]

    def close(self) -> None:
        """Ends all connections."""
        self._socket.close()
        for line in self._lines.values():
            line.close()


def _listening(port: int) -> socket.socket:
    """Takes callers over IPv4 and IPv6, or over IPv4 alone where the system has no other."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=256, dualstack_ipv6=True)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("", port), backlog=256)
