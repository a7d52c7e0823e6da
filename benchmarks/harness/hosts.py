"""Sweeps between two hosts over shaped links: network namespaces of this machine, one rank in each.

Run as `python -m harness.hosts RANK SPEC.json`, this module is one such rank; see `sweep_over`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from support.links import NAMES, on_hosts, two_hosts

from pyddpdiag.bench.cases import Case
from pyddpdiag.bench.engine.collect import ResultWriter
from pyddpdiag.bench.engine.plan import SweepPlan
from pyddpdiag.bench.engine.sweep import run_sweep
from pyddpdiag.bench.results import Entry, read
from pyddpdiag.ranks.rendezvous import join_url

URL = "tcp://10.77.0.1:29518"


def sweep_over(
    mbit: tuple[int, int],
    cases: Sequence[Case],
    folder: Path,
    *,
    rounds: int,
    launches: int = 1,
) -> list[Entry]:
    """The entries of cases with 2 ranks, each on a host; their `picks` are places in `support.links.NAMES`.

    Each launch is a pair of new processes that goes on with the result file of the one before.

    Args:
        mbit: rates of the two links.
        cases: all measured by each launch, interleaved.
        folder: for the result file.
        rounds: of each case and launch.
    """
    spec = folder / "cases.json"
    result = folder / "hosts.json"
    with two_hosts(mbit) as hosts:
        for launch in range(launches):
            orders = {
                "cases": [asdict(case) for case in cases],
                "rounds": rounds,
                "launch": launch,
                "result": str(result),
            }
            spec.write_text(json.dumps(orders), encoding="utf-8")
            commands = [[sys.executable, "-m", "harness.hosts", str(rank), str(spec)] for rank in range(2)]
            for rank, (code, _, errors) in enumerate(on_hosts(hosts, commands, folder, 600)):
                if code != 0:
                    raise RuntimeError(f"rank {rank} ended with {code}:\n{errors}")
    return list(read(result).entries)


def _rank(rank: int, spec: Path) -> None:
    orders = json.loads(spec.read_text(encoding="utf-8"))
    cases = tuple(Case(**{**case, "picks": tuple(case["picks"])}) for case in orders["cases"])
    writer = ResultWriter(Path(orders["result"]), resume=True) if rank == 0 else None
    # What rank 0 resumes has the rounds of the earlier launches.
    plan = SweepPlan(cases, NAMES, rounds=orders["rounds"] * (1 + orders["launch"]), timeout_s=120)
    outcome = run_sweep(plan, writer, place=join_url(URL, 2, rank))
    if outcome.error is not None:
        raise outcome.error


if __name__ == "__main__":
    _rank(int(sys.argv[1]), Path(sys.argv[2]))
