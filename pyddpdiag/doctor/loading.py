"""Whether torch loads, found out by another process beside the checks: it takes seconds, may fail, or crash."""

from __future__ import annotations

import time

from pyddpdiag.doctor.check import Outcome, failed, passed
from pyddpdiag.doctor.other_process import OtherProcess
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.shells import Run, Shell
from pyddpdiag.output import clean

_PROGRAM = (
    "import torch, torch.distributed as d\n"
    "print(torch.__version__, *(n for n in ('gloo', 'nccl', 'mpi', 'ucc', 'xccl')"
    " if getattr(d, f'is_{n}_available', lambda: False)()))"
)


def begin() -> OtherProcess:
    """Starts to load torch in a process of its own."""
    return OtherProcess("-c", _PROGRAM)


def outcome(process: OtherProcess, until: float, shell: Shell) -> Outcome:
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
