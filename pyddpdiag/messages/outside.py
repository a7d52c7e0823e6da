"""Lines that no rank prints: the launcher, the scheduler, the node and the shell say how a process ended."""

from __future__ import annotations

import re

from pyddpdiag.messages.explain import Explanation

_WHO = re.compile(
    r"(?P<slurm>slurmstepd|srun: |CANCELLED AT)|(?P<kubernetes>kubelet|OOMKilled|Evicted|low on resource)"
    r"|(?P<ray>raylet|\bray\b|memory pressure|running low on memory)"
    r"|(?P<kernel>Out of memory: Killed process|oom-kill|oom_reaper|Memory cgroup out of memory)"
    r"|(?P<shell>^Killed$|: line \d+: +\d+ (?:Killed|Bus error|Segmentation fault|Aborted)|^\[\d+\].*\bKilled\b)"
    r"|(?P<launcher>SignalException|death signal)",
    re.MULTILINE,
)
_NAMES = {
    "slurm": "SLURM",
    "kubernetes": "Kubernetes",
    "ray": "Ray",
    "kernel": "the kernel",
    "shell": "the shell",
    "launcher": "the launcher",
}
# A hard fact; the others may be what a launcher does after a first failure.
_HARD = ("out_of_memory", "job_cancelled", "terminal_closed", "launcher_terminated")


def is_outside(one: Explanation) -> bool:
    """Whether a message comes from outside the ranks."""
    return _WHO.search(one.line) is not None


def speaker(one: Explanation) -> str:
    """Who says it, for a sentence."""
    match = _WHO.search(one.line)
    return _NAMES[match.lastgroup] if match is not None and match.lastgroup else "the launcher"


def is_hard(one: Explanation) -> bool:
    """Whether it can only be a cause, never what follows from a rank's failure."""
    return one.kind in _HARD
