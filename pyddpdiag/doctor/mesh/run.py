"""`pyddpdiag doctor --mesh` on one rank, from its options to its exit code. A deadline holds whatever happens."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from pyddpdiag.doctor.check import Situation
from pyddpdiag.doctor.mesh import place
from pyddpdiag.doctor.mesh.hub import Hub
from pyddpdiag.doctor.mesh.member import Member
from pyddpdiag.doctor.mesh.verdict import SCHEMA_VERSION, Verdict, print_verdict
from pyddpdiag.errors import DoctorError, UsageError
from pyddpdiag.model.fields import MISFITS, from_json
from pyddpdiag.output import say
from pyddpdiag.ranks.interrupts import deadline
from pyddpdiag.ranks.rendezvous import Target
from pyddpdiag.ranks.tcp import holder

_GRACE_S = 3.0


def main(situation: Situation, timeout_s: float, *, as_json: bool) -> int:
    """Takes part, prints the verdict (rank 0's only, unless a rank loses it), and returns the exit code.

    Raises:
        UsageError: the rank, the world size or the place to meet is unknown.
    """
    rank, world_size, target = _needed(situation)

    def expired() -> None:
        say(
            f"error: rank {rank}: no verdict within {timeout_s:g} s; something on this machine hangs.",
            sys.stderr,
        )
        sys.stderr.flush()
        os._exit(2)

    with deadline(timeout_s + _GRACE_S, expired):
        try:
            verdict = _take_part(situation, rank, world_size, target, timeout_s)
        except DoctorError as error:
            _tell_failure(rank, error, as_json)
            return 1
    if rank == 0 or as_json:
        if as_json:
            say(json.dumps({"schema_version": SCHEMA_VERSION, "rank": rank, **verdict.to_fields()}, indent=2))
        else:
            print_verdict(verdict, sys.stdout)
    return verdict.exit_code


def _needed(situation: Situation) -> tuple[int, int, Target]:
    if situation.problem:
        raise UsageError(situation.problem, hint="use file:///PATH, tcp://host:port or env://.")
    launch = situation.launch
    missing = [
        name
        for name, value in (
            ("--rank", launch.rank),
            ("--world-size", launch.world_size),
            ("--rendezvous", situation.target),
        )
        if value is None
    ]
    if launch.rank is None or launch.world_size is None or situation.target is None:
        raise UsageError(
            f"--mesh needs {', '.join(missing)}.",
            hint="run it under torchrun (torchrun ... -m pyddpdiag doctor --mesh), or give --rank, --world-size and "
            "--rendezvous tcp://host-of-rank-0:29500 on every rank.",
        )
    if not 0 <= launch.rank < launch.world_size:
        raise UsageError(f"--rank {launch.rank} is outside of a world of {launch.world_size}.")
    return launch.rank, launch.world_size, situation.target


def _take_part(situation: Situation, rank: int, world_size: int, target: Target, timeout_s: float) -> Verdict:
    until = time.monotonic() + timeout_s
    hub: Hub | None = None
    serving: threading.Thread | None = None
    member = Member(rank, world_size, situation.environ, situation.wait_s)
    try:
        if rank == 0:
            hub = _serve(target, world_size, until)
            # It ends by its own limits, and the verdict comes over rank 0's line as it comes to everybody.
            # Leaving its address in torchrun's store takes torch, which is slow to load.
            left = max(1.0, until - time.monotonic())
            serving = threading.Thread(target=hub.run, args=(left,), name="doctor-hub", daemon=True)
            serving.start()
            line, address = place.connect_here(hub.port), "127.0.0.1"
        else:
            line, address = place.connect(target, time.monotonic() + timeout_s * 0.4)
        try:
            return from_json(Verdict, member.take_part(line, address, until))
        except MISFITS as error:
            raise DoctorError(f"rank 0 sent a verdict that cannot be understood ({error}).") from error
        finally:
            line.close()
    finally:
        member.close()
        if serving is not None:
            serving.join(max(0.1, until - time.monotonic()))
        if hub is not None:
            hub.close()
            place.withdraw(target)


def _serve(target: Target, world_size: int, until: float) -> Hub:
    port = place.port_for(target)
    try:
        hub = Hub(port, world_size)
    except OSError as error:
        who = holder(port)
        raise DoctorError(
            f"rank 0 cannot listen at port {port}: {error.strerror or error}{f', held by {who}' if who else ''}.",
            hint="use another port on all ranks, or end that process.",
        ) from error
    try:
        place.publish(target, hub.port, until)
    except OSError as error:
        hub.close()
        raise DoctorError(
            f"rank 0 cannot write at {target}: {error.strerror or error}.", hint="use another file."
        ) from error
    return hub


def _tell_failure(rank: int, error: DoctorError, as_json: bool) -> None:
    if as_json:
        fields = {
            "schema_version": SCHEMA_VERSION,
            "rank": rank,
            "exit_code": 1,
            "error": error.message,
            "fix": error.hint,
        }
        say(json.dumps(fields, indent=2))
    else:
        say(f"rank {rank}: {error}")
