"""Reads the logs of several ranks: what each says, what launchers and the system say, and who is to blame."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from pyddpdiag.messages import ends, prefixes, tracebacks
from pyddpdiag.messages.ends import End
from pyddpdiag.messages.explain import MAX_TEXT, Explanation, condensed, recognise
from pyddpdiag.messages.judge import NO_ERROR, OWN_ERROR, THREAD_ERROR, Case, LogVerdict, RankLog, judge
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell
from pyddpdiag.messages.tracebacks import Raised
from pyddpdiag.output import clean

__all__ = ["NO_ERROR", "OWN_ERROR", "THREAD_ERROR", "LogVerdict", "RankLog", "read"]

# Exceptions by which a launcher says that another process failed.
_REPORTS = {
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "CalledProcessError",
    "SignalException",
    "KeyboardInterrupt",
    "RayTaskError",
    "TrainingFailedError",
}
# torch's own log says so of what it survived.
_WARNS = re.compile(r"\[W[\d ]")


def read(texts: Mapping[str, str], *, lines_for: Shell | None = None) -> LogVerdict:
    """Judges the logs of one job.

    `texts`: the text of each log by its file's name; one may hold several ranks, as torchrun prints them.
    `lines_for`: see `explain`.
    """
    logs: list[RankLog] = []
    facts: list[Explanation] = []
    seen: list[End] = []
    for name, text in texts.items():
        parts, reported = _split(name, text[-MAX_TEXT:])
        seen += reported
        for part in parts:
            rest = part[0] == name and (bool(reported) or len(parts) > 1)
            log, more = _read_one(*part, lines_for, text, mixed=rest)
            facts += more
            logs.append(log)
    logs += _ended_without_a_word(logs, seen)
    first = ends.first_of(seen)
    death = _meaning(first, lines_for) if first is not None else None
    missing = missing_of(texts.values())
    text = "\n".join(texts.values())
    return judge(Case(tuple(logs), tuple(facts), missing, first, death, text, lines_for))


def _split(name: str, text: str) -> tuple[list[tuple[str, int | None, str]], list[End]]:
    """One part per rank, or name, whose prefix stands before lines of the log; the rest is of unknown ranks."""
    lines: dict[int | str | None, list[str]] = {}
    whole: list[str] = []
    for rank, line in prefixes.lines_of(text):
        lines.setdefault(rank, []).append(line)
        whole.append(line)
    own = prefixes.rank_in(name)
    ranks = lines.keys() - {None}
    if not ranks - {own} or (own is not None and len(ranks) <= 1):
        # One rank: its prefix stands before some of its lines only.
        rest, reported = ends.cut("\n".join(whole))
        lines = {own: [rest]}
    else:
        rest, reported = ends.cut("\n".join(lines.pop(None, [])))
        if rest.strip() or reported:
            lines[None] = [rest]
    for end in reported:
        if end.text and end.rank is not None:
            lines.setdefault(end.rank, []).append(end.text)
    several = len(lines.keys() - {None}) > 1 or (None in lines and len(lines) > 1)
    parts: list[tuple[str, int | None, str]] = []
    for who, part in sorted(lines.items(), key=_place):
        if isinstance(who, str):
            parts.append((who, None, "\n".join(part)))
        else:
            parts.append(
                (name if who is None or not several else f"{name} [rank {who}]", who, "\n".join(part))
            )
    return parts, reported


def _place(item: tuple[int | str | None, list[str]]) -> tuple[int, int, str]:
    """Ranks come first, then names, then what is of nobody."""
    who = item[0]
    return (0, who, "") if isinstance(who, int) else (1, 0, who) if who is not None else (2, 0, "")


def _read_one(
    name: str, rank: int | None, text: str, shell: Shell | None, around: str, *, mixed: bool
) -> tuple[RankLog, list[Explanation]]:
    """What one part of a log says, and what launchers and the system say in it.

    Args:
        name: of the part.
        rank: whose it is.
        around: the whole log.
        mixed: a launcher collected it, or all that ranks print has their prefix: it may be of several, or of
            none.
    """
    last = text.rstrip().rpartition("\n")[2]
    text = condensed(text)
    # That there are ranks is known by the log's name, too.
    found = recognise(text, lines_for=shell, around=around if rank is None else f"[rank{rank}] {around}")
    raised = tracebacks.find(text, last)
    beside = {one.start for one in raised if one.aside}
    facts = [one for one in found if ends.is_outside(one) and not ends.follows_a_failure(one, around)]
    # What ended a thread, and not the rank, is no more than a warning.
    inside = [
        replace(one, role=Role.WARNING)
        if one.position in beside
        else replace(one, role=Role.SUMMARY)
        if ends.is_outside(one)
        else one
        for one in found
        if one not in facts
    ]
    inside += _own_errors(raised, found, anywhere=mixed and rank is None)
    if not raised and not mixed and all(_WARNS.match(one.line) for one in inside):
        inside = [replace(one, role=Role.WARNING) for one in inside]
    kinds = _one_of_each_kind(inside)
    launcher = rank is None and (mixed or bool(facts)) and all(one.role >= Role.SUMMARY for one in inside)
    log = RankLog(name, rank, tuple(sorted(kinds, key=lambda one: (one.role, one.position))), launcher)
    return log, facts


def _one_of_each_kind(found: Sequence[Explanation]) -> list[Explanation]:
    """The first of each kind, with all the ranks that any of them misses."""
    kinds: dict[str, Explanation] = {}
    for one in found:
        first = kinds.setdefault(one.kind, one)
        if "missing" in one.facts:
            ranks = {*first.facts.get("missing", "").split(","), *one.facts["missing"].split(",")}
            missing = ", ".join(sorted({rank.strip() for rank in ranks} - {""}, key=int))
            kinds[one.kind] = replace(first, facts={**first.facts, "missing": missing})
    return list(kinds.values())


def _own_errors(
    raised: Sequence[Raised], found: Sequence[Explanation], *, anywhere: bool
) -> Iterator[Explanation]:
    """Errors that the catalog does not know: the one that ended the rank, or the first one of any rank; else the
    first one that ended a thread.
    """
    spans = [(one.position, one.position + len(one.line)) for one in found]
    ended = [one for one, after in pairwise([*raised, None]) if one is not None and _ended(one, after)]
    unknown = [
        one
        for one in ended
        if not any(start <= one.start <= end + 1 or one.start <= start < one.until for start, end in spans)
    ]
    own = [one for one in unknown if not one.aside]
    if own and (anywhere or own[-1] is [one for one in ended if not one.aside][-1]):
        yield _explained(own[0] if anywhere else own[-1])
    elif not own and unknown:
        yield _explained(unknown[0])


def _ended(one: Raised, after: Raised | None) -> bool:
    """Whether an exception ended something. One in whose place came a launcher's report of it did."""
    if one.kind in _REPORTS:
        return False
    return not one.handled or (after is not None and after.kind in _REPORTS)


def _explained(raised: Raised) -> Explanation:
    line = clean(raised.line, 300)
    place = f", at {raised.place}" if raised.place else ""
    if raised.aside:
        kind, role = THREAD_ERROR, Role.WARNING
        cause = f"A thread or a clean-up beside the main thread failed, and the rank went on: {line}{place}"
        fix = "See whether what it did is missing now."
    else:
        kind, role = OWN_ERROR, Role.CAUSE
        cause = f"This rank failed with an error of its own: {line}{place}"
        fix = "Fix what the traceback in its log shows; the catalog knows no more about it."
    return Explanation(
        kind,
        cause,
        fix,
        role,
        line=line,
        facts={"error": raised.kind, **({"place": raised.place} if raised.place else {})},
        position=raised.start,
    )


def _ended_without_a_word(logs: Sequence[RankLog], seen: Sequence[End]) -> list[RankLog]:
    """Ranks that printed nothing and that the launcher ended at last: they were still busy."""
    if not any(log.rank is not None for log in logs):
        return []
    known = {log.rank for log in logs}
    busy = sorted({end.rank for end in seen if end.rank is not None and end.code == -15} - known)
    return [RankLog(f"rank {rank}, which has no lines", rank, ()) for rank in busy]


def _meaning(end: End, shell: Shell | None) -> Explanation | None:
    """What the exit code of a process means; None if it says only that there was an error."""
    if not end.deadly and end.code != -15:
        return None
    found = recognise(f"exitcode : {end.code}\n{end.line}", lines_for=shell)
    if not found:
        return None
    facts = {"rank": str(end.rank)} if end.rank is not None else {}
    best = min(found, key=lambda one: (one.role, one.position))
    return replace(best, line=clean(end.line, 300), facts={**facts, "exitcode": str(end.code)})


_MEMBER = re.compile(r"\bGLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<size>\d+)")
_ALL_THERE = re.compile(r"\bAll distributed processes registered\b")


def missing_of(texts: Iterable[str]) -> Explanation | None:
    """The ranks of a job that its log does not show to have begun, though it shows others; None: none is missing.

    A log of one rank alone says nothing of the others.
    """
    for text in texts:
        begun = Counter((int(one["rank"]), int(one["size"])) for one in _MEMBER.finditer(text))
        size = max((size for _, size in begun), default=0)
        ranks = {rank for rank, of in begun if of == size}
        if begun.total() < 2 or len(ranks) >= size or _ALL_THERE.search(text):
            continue
        missing = ", ".join(str(rank) for rank in range(size) if rank not in ranks)
        line = next(one.group() for one in _MEMBER.finditer(text) if int(one["size"]) == size)
        if len(ranks) == 1:
            cause = (
                f"{begun.total()} processes began, each as rank {min(ranks)} of {size}: none knows who it is."
            )
        else:
            cause = f"{len(ranks)} of {size} ranks began, and wait for the others."
        return Explanation(
            "ranks_missing",
            cause,
            "Start the script with srun, with as many tasks on each node as the Trainer has devices "
            "(--ntasks-per-node), and as many nodes as its num_nodes.",
            Role.WAITED,
            lines=("srun --ntasks-per-node=RANKS-PER-NODE python SCRIPT.py",),
            line=line,
            facts={"missing": missing},
        )
    return None
