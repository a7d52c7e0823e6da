"""How launchers, schedulers, nodes and shells report the end of a process: never a cause, but they hold facts.

Only a line in the form that they themselves write is theirs: their names stand in paths and texts of ranks, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyddpdiag.messages.explain import Explanation
from pyddpdiag.messages.tracebacks import is_raised

_RANK = re.compile(r"^\s*rank +: (?P<rank>\d+) \(local_rank: \d+\)")
_TIME = re.compile(r"^\s*time +: (?P<time>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)")
_CODE = re.compile(r"^\s*exitcode *: *(?P<code>-?\d+)")
_TRACEBACK = re.compile(r"^(?P<indent>\s*)traceback : (?P<text>.*)")
_ROOT = re.compile(r"Root Cause \(first observed failure\)")
_RULE = re.compile(r"^\s*(?:=+|-+|\[\d+\]:)\s*$")
_TITLE = re.compile(r"^\s*(?:\S.* FAILED|Failures:|<NO_OTHER_FAILURES>|host +: .*|error_file: .*)\s*$")
_LOCAL = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
_SPAWN = re.compile(
    r"process (?P<rank>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))"
)
_SPAWN_ERROR = re.compile(r"^-- Process (?P<rank>\d+) terminated with the following error:")
_SRUN = re.compile(r"srun: error: \S+: tasks? (?P<rank>\d+)(?P<more>[\d,-]*): (?P<how>.+)")
_MPI = re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<code>\d+)")
_HOROVOD = re.compile(r"^Process (?P<rank>\d+) exit with status code (?P<code>\d+)")
# Without a rank: DeepSpeed names the last process of its list, not the one that failed.
_SOMEBODY = re.compile(
    r"exits with return code = (?P<deepspeed>-?\d+)|died with <Signals\.SIG\w+: (?P<died>\d+)>"
    r"|returned non-zero exit status (?P<subprocess>-?\d+)|^=\s+EXIT CODE: (?P<mpich>\d+)"
)
_CONTAINER = re.compile(r"(?P<name>[\w.-]+) exited with code (?P<code>\d+)")

# Words of which every line above has one: nearly all lines of a log have none.
_HINT = re.compile(
    r"rank +:|time +:|host +:|exitcode|traceback :|error_file|Root Cause|FAILED|FAILURES|Failures:|terminated with"
    r"|srun: |process rank|exit |exited|exits|died|returned|EXIT CODE|={9}|-{9}"
)

_SIGNALS: Final = {
    "HUP": 1,
    "INT": 2,
    "ILL": 4,
    "ABRT": 6,
    "BUS": 7,
    "FPE": 8,
    "KILL": 9,
    "SEGV": 11,
    "TERM": 15,
}
# What srun says of a task's end.
_WORDS: Final = (
    ("killed", -9),
    ("out of memory", -9),
    ("segmentation fault", -11),
    ("bus error", -7),
    ("aborted", -6),
    ("illegal instruction", -4),
    ("terminated", -15),
)
# Two failures within this time may stand in either order: the launcher looks from time to time.
_AT_ONCE_S = 5.0
_OWN_ENDS = (-15, -2, -1)


@dataclass(frozen=True)
class End:
    """The end of one process, as its launcher saw it.

    Attributes:
        who: the process in the launcher's words: "rank 1", "local rank 0", "task 3"; "" if they name none.
        rank: its rank, if the launcher says so.
        code: exit code; negative: minus the signal that ended it.
        line: as it was printed, or the line that says most.
        text: the process's own traceback, if the launcher passes it on.
        root: the launcher calls it the first.
        time: of the end; None if that is not said.
    """

    who: str
    rank: int | None
    code: int
    line: str
    text: str = ""
    root: bool = False
    time: float | None = None

    @property
    def deadly(self) -> bool:
        """A signal that nobody sends for a clean end, or a crash on Windows."""
        return (self.code < 0 and self.code not in _OWN_ENDS) or self.code >= 0xC0000000


def cut(text: str) -> tuple[str, list[End]]:
    """Takes the reports of launchers out of a text: what remains of it, and what they say."""
    lines = text.splitlines()
    kept: list[str] = []
    ends: list[End] = []
    root = False
    at = 0
    while at < len(lines):
        line = lines[at]
        if not _HINT.search(line):
            kept.append(line)
        elif _ROOT.search(line):
            root = True
        elif _RANK.match(line):
            end, at = _block(lines, at, root)
            ends.append(end)
            continue
        elif spawn := _SPAWN_ERROR.match(line):
            stop = _end_of_traceback(lines, at + 1)
            rank = int(spawn.group("rank"))
            ends.append(End(f"rank {rank}", rank, 1, line, "\n".join(lines[at + 1 : stop]), root=True))
            at = stop
            continue
        elif not _of_summary(line):
            found = list(_one_line(line))
            ends += found
            if not found:
                kept.append(line)
        at += 1
    return "\n".join(kept), _without_twins(ends)


def _of_summary(line: str) -> bool:
    return bool(_TITLE.match(line) or _TIME.match(line) or (_RULE.match(line) and len(line) > 30))


def _block(lines: Sequence[str], at: int, root: bool) -> tuple[End, int]:
    """One failure of torchrun's summary, and the line after it."""
    match = _RANK.match(lines[at])
    assert match is not None
    rank, code, said, text = int(match.group("rank")), 1, lines[at], []
    time = next((t for t in map(_TIME.match, lines[max(0, at - 2) : at]) if t is not None), None)
    at += 1
    while at < len(lines) and not _RULE.match(lines[at]) and not _RANK.match(lines[at]):
        if (number := _CODE.match(lines[at])) is not None:
            code, said = int(number.group("code")), lines[at]
        elif (begin := _TRACEBACK.match(lines[at])) is not None:
            text.append(begin.group("text"))
        elif text and lines[at].startswith("  "):
            text.append(lines[at][2:])
        elif not _of_summary(lines[at]):
            break
        at += 1
    own = "\n".join(text) if text and text[0].startswith("Traceback") else ""
    when = datetime.strptime(time.group("time"), "%Y-%m-%d_%H:%M:%S").timestamp() if time else None
    return End(f"rank {rank}", rank, code, said.strip(), own, root, when), at


def _end_of_traceback(lines: Sequence[str], at: int) -> int:
    """The line after a traceback that begins here, with the exceptions that led to it and the last one's message."""
    frames = False
    for place in range(at, len(lines)):
        line = lines[place]
        frames = frames or line.startswith("  File ")
        begins = line.startswith("Traceback ") or "above exception" in line
        if not frames or not line or line[0].isspace() or begins:
            continue
        if "above exception" in "\n".join(lines[place + 1 : place + 4]):
            continue
        end = place + 1
        while end < len(lines) and lines[end].strip() and not lines[end].startswith("Traceback "):
            end += 1
        return end
    return len(lines)


def _one_line(line: str) -> Iterator[End]:
    if local := _LOCAL.search(line):
        yield End(f"local rank {local['rank']}", None, int(local["code"]), line.strip())
    elif spawn := _SPAWN.search(line):
        signal = spawn["signal"]
        yield _of_rank(
            spawn, -_SIGNALS.get(signal[3:], 9) if signal else _signed(int(spawn["code"])), root=True
        )
    elif srun := _SRUN.search(line):
        how = srun["how"].lower()
        code = next((code for word, code in _WORDS if word in how), 1)
        if how.startswith("exited with exit code "):
            code = _signed(int(how.rpartition(" ")[2])) if how.rpartition(" ")[2].isdigit() else 1
        who = f"tasks {srun['rank']}{srun['more']}" if srun["more"] else f"task {srun['rank']}"
        yield End(who, None, code, line.strip())
    elif mpi := _MPI.search(line):
        yield _of_rank(mpi, -int(mpi["code"]), root=True)
    elif (other := _HOROVOD.match(line)) is not None:
        yield _of_rank(other, _signed(int(other["code"])))
    elif (box := _CONTAINER.search(line)) is not None and box["code"] != "0":
        yield End(box["name"], None, _signed(int(box["code"])), line.strip())
    elif some := _SOMEBODY.search(line):
        code = int(next(value for value in some.groups() if value is not None))
        # MPICH does not tell the number of a signal from an exit code.
        signalled = some["died"] is not None or (some["mpich"] is not None and code in _SIGNALS.values())
        yield End("", None, -code if signalled else _signed(code), line.strip())


def _of_rank(said: re.Match[str], code: int, *, root: bool = False) -> End:
    return End(f"rank {said['rank']}", int(said["rank"]), code, said.string.strip(), root=root)


def _signed(code: int) -> int:
    """A shell says 128 more than the signal."""
    return 128 - code if 128 < code < 160 else code


def _without_twins(ends: Sequence[End]) -> list[End]:
    """torchrun says each end in a line, and again in its summary, where it stands with its rank."""
    summary = any(end.rank is not None and end.root for end in ends)
    return [end for end in ends if not (summary and end.who.startswith("local rank"))]


def first_of(ends: Sequence[End]) -> End | None:
    """The end that came first, as far as the launchers know; None if they say nothing of the kind.

    A rank that a signal ended comes before one that ended with an error at the same time: that one may have noticed.
    """
    root = next((end for end in ends if end.root), None)
    if root is not None and (root.deadly or root.text):
        return root
    deadly = [end for end in ends if end.deadly and _at_once(end, root)]
    # An abort is what Gloo does on a rank that has lost another one, too.
    deadly.sort(key=lambda end: end.code == -6)
    return deadly[0] if deadly else root or (ends[0] if ends and _alone(ends) else None)


def _alone(ends: Sequence[End]) -> bool:
    return len({end.who for end in ends if end.code != -15}) == 1


def _at_once(end: End, root: End | None) -> bool:
    if root is None or root.time is None or end.time is None:
        return True
    return abs(end.time - root.time) <= _AT_ONCE_S


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
    _, seen = cut(text[: max(0, text.find(one.line))])
    return any(end.deadly or end.code > 0 for end in seen)
