"""Lines that no rank prints: the launcher, the scheduler, the node and the shell say how a process ended.

Only a line in the form that they themselves write is theirs: their names stand in paths and texts of ranks, too.
"""

from __future__ import annotations

import re

from pyddpdiag.messages import ends
from pyddpdiag.messages.explain import Explanation
from pyddpdiag.messages.tracebacks import is_raised

_WHO = re.compile(
    r"(?P<slurm>(?:^|\s)(?:slurmstepd|slurmd|srun)(?:-\S+)?: |\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT"
    r"|\bCANCELLED by \d+)"
    r"|(?P<kubernetes>\bkubelet[,:\[]|\bEvicted\b[^\n]*\bkubelet\b|\bOOMKilled\b|\bThe node was low on resource: "
    r"|\bContainer \S+ exceeded memory limit)"
    r"|(?P<ray>^\(raylet\b|\bray\.exceptions\.\w+: |^Task was killed due to the node running low on memory"
    r"|\bWorkers \(tasks / actors\) killed due to memory pressure|^Memory on the node \(IP: )"
    r"|(?P<kernel>\bOut of memory: Killed process \d+ \(|\boom-kill:constraint=|\boom_reaper: reaped process \d+"
    r"|\bMemory cgroup out of memory: Killed process \d+)"
    r"|(?P<shell>^Killed$|: line \d+: +\d+ (?:Killed|Bus error|Segmentation fault|Aborted)|^\[\d+\].*\bKilled\b)"
    r"|(?P<launcher>\bSignalException: Process \d+ got signal: |\bReceived \S+ death signal)",
    re.MULTILINE,
)
_NAMES = {
    "slurm": "SLURM",
    "kubernetes": "Kubernetes",
    "ray": "Ray",
    "kernel": "the kernel",
    "shell": "the shell",
}
# A hard fact; the others may be what a launcher does after a first failure.
HARD = ("out_of_memory", "job_cancelled", "terminal_closed", "launcher_terminated")
# What may follow from a rank's failure: somebody ends the rest of the job.
_STOPS = ("job_cancelled", "launcher_terminated")
# Exceptions in which launchers speak.
_SPEAKING = re.compile(r"\b(?:ray\.exceptions\.\w+|SignalException): ")


def is_outside(one: Explanation) -> bool:
    """Whether a message comes from outside the ranks."""
    return _speaks(one) is not None


def speaker(one: Explanation) -> str:
    """Who says it, for a sentence."""
    match = _speaks(one)
    return _NAMES.get((match and match.lastgroup) or "", "the launcher")


def _speaks(one: Explanation) -> re.Match[str] | None:
    # An exception is a rank's, whatever stands in it.
    own = is_raised(one.line) and not _SPEAKING.search(one.line)
    return None if own else _WHO.search(one.line)


def follows_a_failure(one: Explanation, text: str) -> bool:
    """Whether the job was ended because one of its processes had failed: the text of the log says so before."""
    if one.kind not in _STOPS or one.facts.get("reason"):
        return False
    _, seen = ends.cut(text[: max(0, text.find(one.line))])
    return any(end.deadly or end.code > 0 for end in seen)
