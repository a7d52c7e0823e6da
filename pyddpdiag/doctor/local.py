"""Runs the checks of this machine, all at once and within a limit, and loads torch beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from pyddpdiag.doctor.check import Check, Outcome, Situation, failed, passed
from pyddpdiag.doctor.checks import (
    addresses,
    batch,
    firewall,
    installed,
    launcher,
    rendezvous,
    threads,
    torchrun,
    variables,
)
from pyddpdiag.doctor.other_process import OtherProcess
from pyddpdiag.doctor.torch_facts import find
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.shells import Run, Shell
from pyddpdiag.output import clean

_PROGRAM = (
    "import torch, torch.distributed as d\n"
    "print(torch.__version__, *(n for n in ('gloo', 'nccl', 'mpi', 'ucc', 'xccl')"
    " if getattr(d, f'is_{n}_available', lambda: False)()))"
)


def _begin_loading() -> OtherProcess:
    """Starts to load torch in a process of its own."""
    return OtherProcess("-c", _PROGRAM)


def _loaded(process: OtherProcess, until: float, shell: Shell) -> Outcome:
    """How it went, at `until` (monotonic s) at the latest; then the process is ended."""
    name = "torch loads"
    output = process.output(max(0.05, until - time.monotonic()))
    if output is None:
        return passed(name, "not done in time; its files are there")
    out, errors = output
    if process.exit_code == 0:
        version, *backends = out.split()
        return passed(name, f"{version} with {', '.join(backends) or 'no backend'}")
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "it ended without a word")
    found = explain(errors, lines_for=shell)
    if found.known:
        return failed(name, f"{clean(last, 200)}: {found.cause}", found.fix, *map(Run, found.lines))
    return failed(
        name, f"import torch fails: {clean(last, 200)}", "Install torch again.", Run("pip install torch")
    )


#: In the order of the table.
CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("installation", installed.check),
    ("launcher", launcher.check),
    ("torchrun", torchrun.check),
    ("variables", variables.check),
    ("addresses", addresses.check),
    ("firewall", firewall.check),
    ("rendezvous", rendezvous.check),
    ("threads", threads.check),
    ("batch", batch.check),
)
#: All local checks together take no longer.
LIMIT_S: Final = 2.2
# Torch may take that much of it: a slow load is not a finding, and starting Python comes on top.
_TORCH: Final = 0.85


def run(situation: Situation, *, limit_s: float = LIMIT_S) -> list[Outcome]:
    """What all checks find. One that does not answer within the limit is reported as such."""
    begin = time.monotonic()
    until = begin + limit_s
    torch = _begin_loading() if find() is not None else None
    results: list[list[Outcome]] = [[] for _ in CHECKS]
    workers = [
        threading.Thread(
            target=_run_one, args=(check, name, situation, results[place]), name=f"doctor-{name}", daemon=True
        )
        for place, (name, check) in enumerate(CHECKS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
    late = [name for (name, _), worker in zip(CHECKS, workers, strict=True) if worker.is_alive()]
    outcomes = [outcome for found in results for outcome in list(found)]
    if torch is not None:
        outcomes.append(_loaded(torch, begin + _TORCH * limit_s, situation.shell))
    outcomes += [
        failed(
            name,
            f"this check got no answer from the system within {limit_s:g} s.",
            "A file system or name server hangs.",
        )
        for name in late
    ]
    return outcomes


def _run_one(check: Check, name: str, situation: Situation, results: list[Outcome]) -> None:
    try:
        results.extend(check(situation))
    except Exception as error:
        # A machine that surprises one check must not cost the others.
        text = clean(f"{type(error).__name__}: {error}", 200)
        results.append(failed(name, f"this check itself failed: {text}", "Please report it."))


def worst(outcomes: Sequence[Outcome]) -> int:
    """The exit code: 0 all passed, 1 something to mend."""
    return 1 if any(outcome.status for outcome in outcomes) else 0
