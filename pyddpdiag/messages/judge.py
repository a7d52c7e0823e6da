"""Who is to blame, by what the logs of a job say. Each rule looks at one kind of evidence, the strongest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyddpdiag.messages import ends
from pyddpdiag.messages.ends import End
from pyddpdiag.messages.exit_codes import shown
from pyddpdiag.messages.explain import Explanation, explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import HANG, READ_LOGS, Shell
from pyddpdiag.output import clean

OWN_ERROR: Final = "own_error"
THREAD_ERROR: Final = "thread_error"
NO_ERROR: Final = "no_error"
# A line that says that something failed, in words that nobody knows.
_FAILURE = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|^\W*(?i:error|fatal|panic)\b|^[EF]\d{4} |^[\w.]+(?:Error|Exception)\b",
    re.MULTILINE,
)
_MOST_NAMES = 8
_SOMEBODY = "A process of the job"
# Seen by the rank that gets the other one's data.
_EITHER_RANK = {"sizes_differ"}
# What a rank meets when a process beside it was ended.
_AFTERMATH = {
    "BrokenPipeError",
    "EOFError",
    *(f"Connection{how}Error" for how in ("Reset", "Refused", "Aborted")),
}


@dataclass(frozen=True)
class RankLog:
    """What one rank's log says.

    Attributes:
        name: of the file, with the rank if one file holds several.
        rank: if its name or prefix reveals it.
        found: everything recognised, by importance; empty if nothing was.
        launcher: it is not a rank's, but a launcher's, a scheduler's or a node's.
    """

    name: str
    rank: int | None
    found: tuple[Explanation, ...]
    launcher: bool = False

    @property
    def who(self) -> str:
        """The rank, or the file where that is unknown."""
        return f"rank {self.rank}" if self.rank is not None else self.name

    @property
    def role(self) -> Role | None:
        """That of its most important message that is more than a warning; None if there is none."""
        return next((one.role for one in self.found if one.role < Role.SUMMARY), None)


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


@dataclass(frozen=True)
class Case:
    """The evidence.

    Attributes:
        logs: what the ranks say.
        outside: what launchers, schedulers and nodes say in words.
        missing: ranks that never began, where a log shows it.
        first: the end that came first, as the launcher saw it.
        death: what its exit code means; None if it says only that there was an error.
        text: all logs.
        shell: to write lines for.
    """

    logs: tuple[RankLog, ...]
    outside: tuple[Explanation, ...]
    missing: Explanation | None
    first: End | None
    death: Explanation | None
    text: str
    shell: Shell | None

    def by(self, *roles: Role | None) -> list[RankLog]:
        """Logs whose most important message has one of these roles."""
        return [log for role in roles for log in self.logs if log.role is role]


def judge(case: Case) -> LogVerdict:
    """The verdict of the first rule that has one."""
    for rule in _RULES:
        verdict = rule(case)
        if verdict is not None:
            return verdict
    return _nothing(case)


def _known_cause(case: Case) -> LogVerdict | None:
    guilty = [log for log in case.by(Role.CAUSE) if log.found[0].kind != OWN_ERROR]
    return _blame(case, guilty, Role.CAUSE) if guilty else None


def _never_there(case: Case) -> LogVerdict | None:
    """Ranks that never began: the others wait until somebody ends the job."""
    one = case.missing
    ended = any(fact.kind == "job_cancelled" for fact in case.outside) or case.by(Role.WAITED)
    if one is None or not ended:
        return None
    missing = tuple(f"rank {rank}" for rank in one.facts["missing"].split(", "))
    return LogVerdict(f"{_listed(missing)} never began ({one.kind}).", one, missing, case.logs)


def _hard_fact(case: Case) -> LogVerdict | None:
    facts = [one for one in case.outside if one.kind in ends.HARD]
    own = [log for log in case.by(Role.CAUSE) if log.found[0].facts.get("error") not in _AFTERMATH]
    if facts and (not own or facts[0].kind != "out_of_memory"):
        return _from_outside(case, facts[0])
    return None


def _own_error_of_a_rank(case: Case) -> LogVerdict | None:
    guilty = case.by(Role.CAUSE)
    return _blame(case, guilty, Role.CAUSE) if guilty and not _died_before(case, guilty) else None


def _died_before(case: Case, guilty: Sequence[RankLog]) -> bool:
    """The launcher saw a signal end a rank first, and the error may be of any rank."""
    first = case.first
    return (
        first is not None
        and first.deadly
        and case.death is not None
        and all(log.rank is None for log in guilty)
    )


def _death(case: Case) -> LogVerdict | None:
    end, death = case.first, case.death
    if end is None or death is None or death.role is not Role.CAUSE or _only_an_aborted_victim(case, end):
        return None
    if death.kind == "rank_killed":
        # The system says why, where it says anything.
        death = next((one for one in case.outside if one.kind == "out_of_memory"), death)
    sentence = f"{end.who or _SOMEBODY} failed first ({death.kind}), as the launcher reports{_with(case, (end.who,))}."
    return LogVerdict(sentence, death, _named(end), case.logs)


def _named(end: End) -> tuple[str, ...]:
    return (end.who,) if end.who else ()


def _only_an_aborted_victim(case: Case, end: End) -> bool:
    """Gloo aborts a process that lost another one, too."""
    return end.code == -6 and bool(case.by(Role.VICTIM))


def _soft_fact(case: Case) -> LogVerdict | None:
    return _from_outside(case, case.outside[0]) if case.outside else None


def _named_by_others(case: Case) -> LogVerdict | None:
    """A rank whose name stands in a message of another one, which waited for it."""
    for log in case.logs:
        for one in log.found:
            if one.facts.get("missing"):
                missing = tuple(
                    f"rank {rank.strip()}" for rank in one.facts["missing"].split(",") if rank.strip()
                )
                verb = "did not come in time" if one.role is Role.WAITED else "ended before the others"
                sentence = f"{', '.join(missing)} {verb} ({one.kind}){_with(case, missing)}."
                return LogVerdict(sentence, one, missing, case.logs)
    return None


def _network(case: Case) -> LogVerdict | None:
    guilty = case.by(Role.NETWORK)
    return _blame(case, guilty, Role.NETWORK) if guilty else None


def _victims_only(case: Case) -> LogVerdict | None:
    waiting = case.by(Role.WAITED, Role.VICTIM)
    if not waiting:
        return None
    decisive = waiting[0].found[0]
    silent = [log for log in case.by(None) if not log.launcher]
    if len(case.logs) > 1 and silent:
        names = _listed([log.who for log in silent])
        suffer = "waited for it" if decisive.role is Role.WAITED else "lost it"
        sentence = (
            f"{names} shows no error while others {suffer}: "
            "it was killed or stopped, is stuck in its own code, or left its loop earlier (uneven batches)."
        )
        return LogVerdict(sentence, decisive, tuple(log.who for log in silent), case.logs)
    look_at = decisive.facts.get("look_at")
    if look_at is not None:
        sentence = f"{waiting[0].who} only suffered from another rank: the log of rank {look_at} names it."
    elif len([log for log in case.logs if not log.launcher]) == 1:
        sentence = (
            f"{waiting[0].who} only suffered from another rank: the logs of the others are needed to name it "
            f"({READ_LOGS} FILE FILE ...)."
        )
    else:
        sentence = "Every log is that of a victim: the rank to blame has no log here, or left none."
    return LogVerdict(sentence, decisive, (), case.logs)


def _summary_only(case: Case) -> LogVerdict | None:
    """The launcher says that a rank failed, and nothing says why."""
    end = case.first
    if end is None:
        return None
    explanation = explain(f"ChildFailedError\n{end.line}", lines_for=case.shell)
    explanation = replace(explanation, line=end.line, facts={"exitcode": str(end.code)}, others=())
    who, code = end.who or _SOMEBODY, shown(end.code)
    sentence = f"{who} failed first, with exit code {code}, as the launcher reports; its error is not here."
    return LogVerdict(sentence, explanation, _named(end), case.logs)


def _nothing(case: Case) -> LogVerdict:
    warnings = [one for log in case.logs for one in log.found]
    if not warnings:
        return _unknown(case)
    first = min(warnings, key=lambda one: one.role)
    if first.kind == THREAD_ERROR:
        said = "No rank failed: only a thread, or a clean-up, beside a main thread ended with an error."
    elif first.role is Role.WARNING:
        said = "Only warnings that are often harmless."
    else:
        said = f"The logs only say that the job ended ({first.kind})."
    return LogVerdict(said, first, (), case.logs)


def _unknown(case: Case) -> LogVerdict:
    """Either nothing failed, or something that nobody here knows."""
    failure = _FAILURE.search(case.text)
    if failure is None:
        explanation = Explanation(
            NO_ERROR,
            "The job ended well, or still runs; or a rank hangs, or was killed without a word.",
            "If it did not end well, give the logs of all ranks, of the launcher and of the scheduler. Of a job that "
            f"still runs, '{HANG}' says who waits for whom.",
        )
        return LogVerdict("No error is in the logs.", explanation, (), case.logs)
    line = case.text[failure.start() :].lstrip().partition("\n")[0]
    explanation = replace(explain("", lines_for=case.shell), line=clean(line.strip(), 300))
    return LogVerdict("No known message is in the logs.", explanation, (), case.logs)


def _from_outside(case: Case, one: Explanation) -> LogVerdict:
    end = case.first
    named = end.who if end is not None and end.deadly else ""
    who = named or _SOMEBODY
    how = "could not be started" if one.kind == "launcher_broken" else "was ended from outside"
    sentence = f"{who} {how} ({one.kind}), as {ends.speaker(one)} reports"
    return LogVerdict(f"{sentence}{_with(case, (named,))}.", one, (named,) if named else (), case.logs)


def _blame(case: Case, guilty: Sequence[RankLog], role: Role) -> LogVerdict:
    decisive = guilty[0].found[0]
    either = _either_of_two(case, guilty[0].who, decisive)
    if either is not None:
        return either
    named = [
        log.found[0].facts["rank"] for log in guilty if log.rank is None and "rank" in log.found[0].facts
    ]
    who = tuple(
        dict.fromkeys([*(f"rank {rank}" for rank in named), *(g.who for g in guilty if g.rank is not None)])
    )
    seen = _seen_first(case, guilty) if not who else ()
    culprits = who or seen or tuple(log.who for log in guilty)
    verb = "failed first for a reason of its own" if role is Role.CAUSE else "could not reach another rank"
    if len(culprits) > 1:
        verb = "failed for reasons of their own" if role is Role.CAUSE else "could not reach other ranks"
    what = decisive.kind if decisive.kind != OWN_ERROR else _raised(decisive)
    named_here = bool(who or seen) or len(case.logs) > 1
    sentence = f"{', '.join(culprits)} {verb} ({what})" if named_here else f"Recognised: {what}"
    return LogVerdict(f"{sentence}{_with(case, culprits)}.", decisive, culprits, case.logs)


def _either_of_two(case: Case, who: str, one: Explanation) -> LogVerdict | None:
    """Two ranks do different things, and it is not known which of them is wrong."""
    pair = [f"rank {one.facts[key]}" for key in ("rank", "other") if key in one.facts]
    if len(pair) == 2:
        sentence = f"{' and '.join(pair)} do different things ({one.kind}){_with(case, pair)}."
        return LogVerdict(sentence, one, tuple(pair), case.logs)
    if one.kind in _EITHER_RANK:
        sentence = (
            f"{who} and another rank do different things ({one.kind}); this log does not say which is wrong."
        )
        return LogVerdict(sentence, one, (), case.logs)
    return None


def _seen_first(case: Case, guilty: Sequence[RankLog]) -> tuple[str, ...]:
    """The rank that the launcher saw fail first, where the log does not say whose error it is."""
    end = case.first
    taken = {log.who for log in case.logs if log.rank is not None and log.role is not None}
    if end is None or not end.who or end.who in taken or any(log.rank is not None for log in guilty):
        return ()
    return (end.who,)


def _raised(one: Explanation) -> str:
    place = one.facts.get("place")
    return f"{one.line}, at {place}" if place else one.line


def _with(case: Case, culprits: Sequence[str]) -> str:
    victims = [log.who for log in case.by(Role.WAITED, Role.VICTIM) if log.who not in culprits]
    return f"; {', '.join(victims)} only went down with it" if victims else ""


def _listed(names: Sequence[str]) -> str:
    """The first of them, where there are many."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


_RULES: Final[tuple[Callable[[Case], LogVerdict | None], ...]] = (
    _known_cause,
    _never_there,
    _hard_fact,
    _own_error_of_a_rank,
    _death,
    _soft_fact,
    _named_by_others,
    _network,
    _victims_only,
    _summary_only,
)
