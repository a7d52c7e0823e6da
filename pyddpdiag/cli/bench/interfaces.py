"""`pyddpdiag bench interfaces`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from pyddpdiag.cli._options import Force, leave_failed
from pyddpdiag.cli.bench import options
from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.output import say

if TYPE_CHECKING:
    from pyddpdiag.bench.engine.collect import ResultWriter
    from pyddpdiag.bench.engine.plan import SweepPlan
    from pyddpdiag.bench.engine.sweep import Outcome
    from pyddpdiag.ranks.rendezvous import Place


def interfaces(
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="This rank's interfaces; ranks pair them by place. Default: all that have an address.",
        ),
    ] = None,
    ranks: Annotated[
        int, typer.Option("--nproc", "--ranks", min=2, max=64, help="Ranks to launch on this machine.")
    ] = 2,
    dist_url: Annotated[
        str | None,
        typer.Option(help="Race between machines: run the same command, with this URL, on each of them."),
    ] = None,
    world_size: Annotated[int | None, typer.Option(help="With --dist-url: the number of ranks.")] = None,
    rank: Annotated[int | None, typer.Option(help="With --dist-url: the rank of this process.")] = None,
    repeat: Annotated[
        int, typer.Option(help="Also race each interface repeated this many times, as in eth0,eth0.")
    ] = 1,
    size: Annotated[str, typer.Option(help="Bytes per round, sent as 8 all-reduces at once.")] = "8M",
    rounds: Annotated[
        int,
        typer.Option(
            help="Rounds of each interface; the race ends after a quarter or half of them if the winner is clear."
        ),
    ] = 120,
    budget: options.Budget = None,
    output: options.Output = None,
    force: Force = False,
    timeout: options.Timeout = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Race network interfaces against each other, each alone and all at once, and print the lines to export.

    A name may be repeated, as in eth0,eth0: Gloo then opens two devices, each with its own connections.
    """
    started = time.time()
    from pyddpdiag.bench.cases import race_cases
    from pyddpdiag.bench.engine.collect import ResultWriter
    from pyddpdiag.bench.engine.plan import Budget, SweepPlan
    from pyddpdiag.ranks import interfaces as known
    from pyddpdiag.ranks.rendezvous import join_url

    place = None
    if dist_url is not None:
        place = join_url(dist_url, world_size, rank)
    elif world_size is not None or rank is not None:
        raise UsageError("--world-size and --rank need --dist-url.", hint="--nproc N launches N ranks here.")
    names = known.parse(interface) if interface is not None else _all(local=place is None)
    if not names:
        raise UsageError("no interface of this machine has an address.")
    amounts = options.sizes(size)
    if len(amounts) != 1:
        raise UsageError(f"--size {size}: a race is run with one size.")
    world = ranks if place is None else place.world_size
    plan = SweepPlan(
        cases=tuple(race_cases(names, world, amounts[0], repeat=repeat)),
        names=names,
        rounds=rounds,
        budget=None if budget is None else Budget(options.seconds(budget), started),
        timeout_s=timeout,
        race=True,
    )
    writer = (
        ResultWriter(options.output_path(output, False), force) if place is None or place.rank == 0 else None
    )
    _race(plan, writer, place, as_json)


def _all(local: bool) -> tuple[str, ...]:
    """All interfaces with an address, but for the loopback interface: it reaches no other machine."""
    from pyddpdiag.ranks import interfaces as known

    loopback = known.loopback()
    return tuple(name for name in sorted(known.available()) if local or name != loopback)


def _race(plan: SweepPlan, writer: ResultWriter | None, place: Place | None, as_json: bool) -> None:
    from pyddpdiag.cli.bench import running

    try:
        outcome = running.run(plan, writer, place)
    except PyddpdiagError as error:
        if place is None:
            raise
        say(f"error: {error}", sys.stderr)
        leave_failed()
    if place is None or place.rank == 0:
        _tell(outcome, as_json, launched=place is None)
    if outcome.error is not None and place is not None:
        leave_failed()
    running.finish(outcome)


def _tell(outcome: Outcome, as_json: bool, launched: bool) -> None:
    from pyddpdiag.bench.race import judge
    from pyddpdiag.cli.bench import running

    race = judge(outcome.entries)
    if as_json:
        say(json.dumps(asdict(race), indent=1, allow_nan=False))
        return
    running.show(outcome, False)
    say()
    for line in race.lines:
        say(line)
    say("\nOn each rank, before init_process_group:")
    lines = dict.fromkeys(race.exports)
    if len(lines) == 1:
        say(f"  {race.exports[0]}")
    else:
        for number, line in enumerate(race.exports):
            say(f"  rank {number}: {line}")
    if launched:
        say("All ranks were on one machine: this says little about the way to another one (--dist-url).")
