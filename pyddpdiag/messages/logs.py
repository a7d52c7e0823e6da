"""Reads the logs of several ranks: which rank is to blame, and which are only its victims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyddpdiag.messages.explain import UNKNOWN, Explanation, condensed, explain, recognise
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell
from pyddpdiag.output import clean

_PREFIX = re.compile(r"^\[(?:default|rank)(\d+)\]:? ?", re.IGNORECASE)
_IN_NAME = re.compile(
    r"(?:rank|local_rank|worker|node|proc)[_\-. ]?(\d+)|(?:^|[/\\])(\d+)[/\\]std(?:out|err)", re.IGNORECASE
)
_RAISED = re.compile(
    r"^(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Failure))(?:: (?P<text>[^\n]*))?$",
    re.MULTILINE,
)
_TRACEBACK = "Traceback (most recent call last)"
OWN_ERROR = "own_error"


@dataclass(frozen=True)
class RankLog:
    """What one rank's log says.

    Attributes:
        name: of the file, with the rank if one file holds several.
        rank: if its name or prefix reveals it.
        found: everything recognised, by importance; empty if nothing was.
    """

    name: str
    rank: int | None
    found: tuple[Explanation, ...]

    @property
    def who(self) -> str:
        """The rank, or the file where that is unknown."""
        return f"rank {self.rank}" if self.rank is not None else self.name

    @property
    def role(self) -> Role | None:
        """That of its most important message that is more than a warning; None if there is none."""
        return next((one.role for one in self.found if one.role is not Role.WARNING), None)


@dataclass(frozen=True)
class LogVerdict:
    """What the logs say together.

    Attributes:
        sentence: who is to blame, as far as the logs reveal it.
        explanation: of the message that decides; its kind is "unknown" if nothing was recognised.
        culprits: ranks (or files) to blame; empty if that is unknown.
        logs: all of them.
    """

    sentence: str
    explanation: Explanation
    culprits: tuple[str, ...]
    logs: tuple[RankLog, ...]


def read(texts: Mapping[str, str], *, lines_for: Shell | None = None) -> LogVerdict:
    """Judges the logs of one job.

    Args:
        texts: the text of each log by its file's name; one may hold several ranks, as torchrun prints them.
        lines_for: see `explain`.
    """
    logs = tuple(_read_one(*part, lines_for) for name, text in texts.items() for part in _split(name, text))
    return _judge(logs, "\n".join(texts.values()), lines_for)


def _split(name: str, text: str) -> Iterator[tuple[str, int | None, str]]:
    """One part per rank whose prefix stands before lines of the log; the rest is the launcher's."""
    lines: dict[int | None, list[str]] = {}
    for line in text.splitlines():
        prefix = _PREFIX.match(line)
        rank = int(prefix.group(1)) if prefix else None
        lines.setdefault(rank, []).append(line[prefix.end() :] if prefix else line)
    named = _IN_NAME.search(name)
    own = int(named.group(1) or named.group(2)) if named else None
    if lines.keys() - {None, own} == set() or (own is not None and len(lines.keys() - {None}) <= 1):
        # One rank: its prefix stands before some of its lines only.
        yield name, own, "\n".join(_PREFIX.sub("", line) for line in text.splitlines())
        return
    for rank, part in sorted(lines.items(), key=lambda item: (item[0] is None, item[0] or 0)):
        yield (name if rank is None else f"{name} [rank {rank}]"), rank, "\n".join(part)


def _read_one(name: str, rank: int | None, text: str, shell: Shell | None) -> RankLog:
    text = condensed(text)
    found = recognise(text, lines_for=shell)
    spans = [(one.position, one.position + len(one.line)) for one in found]
    raised = [m for m in _RAISED.finditer(text) if text.rfind(_TRACEBACK, 0, m.start()) >= 0]
    unknown = [m for m in raised if not any(start <= m.start() <= end + 1 for start, end in spans)]
    if unknown and unknown[-1] is raised[-1]:
        found.append(_own_error(unknown[-1]))
    kinds: dict[str, Explanation] = {}
    for one in found:
        kinds.setdefault(one.kind, one)
    return RankLog(name, rank, tuple(sorted(kinds.values(), key=lambda one: (one.role, one.position))))


def _own_error(match: re.Match[str]) -> Explanation:
    kind = match.group("kind").rpartition(".")[2]
    line = clean(match.group(0), 300)
    return Explanation(
        OWN_ERROR,
        f"This rank failed with an error of its own: {line}",
        "Mend what the traceback in its log shows; the catalog knows no more about it.",
        line=line,
        facts={"error": kind},
        position=match.start(),
    )


def _judge(logs: Sequence[RankLog], text: str, shell: Shell | None) -> LogVerdict:
    by_role: dict[Role | None, list[RankLog]] = {}
    for log in logs:
        by_role.setdefault(log.role, []).append(log)
    for role in (Role.CAUSE, Role.NETWORK):
        guilty = by_role.get(role, [])
        if guilty:
            return _blame(guilty, by_role, logs, role)
    waiting = by_role.get(Role.WAITED, []) + by_role.get(Role.VICTIM, [])
    if not waiting:
        warnings = [one for log in logs for one in log.found]
        explanation = warnings[0] if warnings else explain(text if not warnings else "", lines_for=shell)
        if not warnings:
            explanation = replace(explanation, kind=UNKNOWN)
        said = "Only warnings that are often harmless." if warnings else "No known message is in the logs."
        return LogVerdict(said, explanation, (), tuple(logs))
    decisive = waiting[0].found[0]
    silent = by_role.get(None, [])
    if len(logs) > 1 and silent:
        names = _listed(silent)
        sentence = (
            f"{names} shows no error while others {_suffer(decisive)}: it was killed or stopped, is stuck "
            f"in its own code, "
            "or left its loop earlier (uneven batches)."
        )
        return LogVerdict(sentence, decisive, tuple(log.who for log in silent), tuple(logs))
    if len(logs) == 1:
        sentence = (
            f"{logs[0].who} only suffered from another rank: the logs of the others are needed to name it."
        )
    else:
        sentence = "Every log is that of a victim: the rank to blame has no log here, or left none."
    return LogVerdict(sentence, decisive, (), tuple(logs))


def _blame(
    guilty: Sequence[RankLog],
    by_role: Mapping[Role | None, Sequence[RankLog]],
    logs: Sequence[RankLog],
    role: Role,
) -> LogVerdict:
    decisive = guilty[0].found[0]
    named = [
        log.found[0].facts["rank"] for log in guilty if log.rank is None and "rank" in log.found[0].facts
    ]
    who = tuple(
        dict.fromkeys([*(f"rank {rank}" for rank in named), *(g.who for g in guilty if g.rank is not None)])
    )
    culprits = who or tuple(log.who for log in guilty)
    victims = [
        log.who
        for part in (Role.WAITED, Role.VICTIM)
        for log in by_role.get(part, [])
        if log.who not in culprits
    ]
    verb = "failed first for a reason of its own" if role is Role.CAUSE else "could not reach another rank"
    if len(culprits) > 1:
        verb = "failed for reasons of their own" if role is Role.CAUSE else "could not reach other ranks"
    sentence = (
        f"{', '.join(culprits)} {verb} ({decisive.kind})"
        if len(logs) > 1 or named
        else f"Recognised: {decisive.kind}"
    )
    if victims:
        sentence += f"; {', '.join(victims)} only went down with it"
    return LogVerdict(sentence + ".", decisive, culprits, tuple(logs))


def _suffer(decisive: Explanation) -> str:
    return "waited for it in vain" if decisive.role is Role.WAITED else "lost it"


def _listed(logs: Sequence[RankLog]) -> str:
    return ", ".join(log.who for log in logs)
