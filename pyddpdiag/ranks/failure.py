"""What a rank's error says, and which rank failed first for a reason of its own, from everything that the launcher saw.

When one rank dies, its neighbours fail, too, within milliseconds and with errors that blame the network. So a
rank whose error is a broken connection is a victim as long as any other rank has a reason of its own.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from pyddpdiag.errors import PyddpdiagError, RankFailedError
from pyddpdiag.messages.exit_codes import ended
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.source import without_source
from pyddpdiag.model import words
from pyddpdiag.system import KILLS_WHEN_OUT_OF_MEMORY

# What torch appends to some of Gloo's messages; `blame` knows better.
_ADVICE = re.compile(r"\.?\s*This is typically caused by.*", re.DOTALL)
_TRACEBACK_LIMIT = 12_000


@dataclass(frozen=True)
class Failure:
    """An error that a rank was still able to report itself.

    Attributes:
        kind: name of the exception's class.
        message: its text.
        traceback: its formatted traceback; empty for errors that the user can fix (bad arguments and the
            like).
        connection: the error says that a peer is gone.
        timeout: the error says that the rank waited for a peer in vain.
        hint: what to do next, if the error said.
    """

    rank: int
    kind: str
    message: str
    traceback: str = ""
    connection: bool = False
    timeout: bool = False
    hint: str = ""

    @property
    def secondary(self) -> bool:
        """Whether another rank may be the cause."""
        return self.connection or self.timeout


def describe(error: BaseException, rank: int) -> Failure:
    """The failure of `rank` by `error`."""
    if isinstance(error, RankFailedError) or not isinstance(error, PyddpdiagError):
        text = str(error)
        ours = False
    else:
        text, ours = error.message, True
    # torch wraps some network errors in plain RuntimeErrors, so the text decides, whatever the class.
    network = isinstance(error, (ConnectionError, RuntimeError)) and not ours
    found = explain(text) if network else None
    role = found.role if found is not None and found.known else None
    connection = network and (role in (Role.NETWORK, Role.VICTIM) or isinstance(error, ConnectionError))
    timeout = network and not connection and role is Role.WAITED
    hint = error.hint if isinstance(error, PyddpdiagError) else ""
    if found is not None and role is Role.CAUSE:
        hint = " ".join([found.fix, *found.lines])
    return Failure(
        rank=rank,
        kind=type(error).__name__,
        message=text,
        traceback="" if ours else _format_traceback(error),
        connection=connection,
        timeout=timeout,
        hint=hint,
    )


def _format_traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    if len(text) <= _TRACEBACK_LIMIT:
        return text
    half = _TRACEBACK_LIMIT // 2
    return f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def short(message: str, limit: int = 140) -> str:
    """The first line of an error of Gloo or torch, without the source position it starts with."""
    lines = _ADVICE.sub("", without_source(message)).strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= limit else line[: limit - 3] + "..."


def sentence(failure: Failure) -> str:
    """One sentence with the rank and the reason."""
    text = short(failure.message)
    return f"rank {failure.rank} failed with {failure.kind}" + (f": {text}" if text else ".")


def describe_exit(rank: int, exit_code: int) -> str:
    """One sentence about a rank that ended without giving a reason."""
    if exit_code < 0:
        return f"rank {rank} {ended(exit_code)}."
    if exit_code == 0:
        return f"rank {rank} ended with exit code 0 before its job was done."
    return f"rank {rank} {ended(exit_code)} and no error message."


@dataclass(frozen=True)
class Trouble:
    """A rank in trouble, as the launcher saw it: when (monotonic s), its failure or its exit code."""

    rank: int
    at: float
    failure: Failure | None = None
    exit_code: int | None = None

    @property
    def secondary(self) -> bool:
        """Whether another rank may be the cause."""
        return self.failure is not None and self.failure.secondary

    def sentence(self) -> str:
        """One sentence with the rank and the reason."""
        if self.failure is not None:
            return sentence(self.failure)
        return describe_exit(self.rank, self.exit_code if self.exit_code is not None else 0)


def blame(
    troubles: list[Trouble], silent: dict[int, str] | None = None, unaware: Sequence[int] = ()
) -> RankFailedError:
    """The error that names the rank which failed first for a reason of its own, or says that this is unknown.

    Args:
        troubles: every rank that failed or ended, at least one.
        silent: ranks that neither failed nor ended, with the stacks of their threads ("" if they didn't
            answer). They matter only when all the others waited in vain.
        unaware: ranks that neither failed nor ended, and that no other rank waited for.
    """
    ordered = sorted(troubles, key=lambda trouble: trouble.at)
    first = next((t for t in ordered if not t.secondary), None)
    if first is None and silent and any(t.failure is not None and t.failure.timeout for t in ordered):
        return _blame_silent(ordered, silent)
    if first is None:
        return _blame_unknown(ordered, unaware)
    details = []
    hint = ""
    if first.failure is not None:
        details.append(first.failure.traceback)
        hint = first.failure.hint
    elif first.exit_code == -9 and KILLS_WHEN_OUT_OF_MEMORY:
        hint = "if nobody killed it, the system may have run out of memory: see the kernel's log (dmesg)."
    others = [_victim(t) for t in ordered if t is not first]
    return RankFailedError(
        "\n".join([first.sentence(), *others, *_unaware(unaware)]),
        rank=first.rank,
        details="\n".join(text for text in details if text),
        hint=hint,
    )


def _unaware(ranks: Sequence[int]) -> list[str]:
    if not ranks:
        return []
    return [f"  {words.ranks(ranks)} had noticed nothing yet and {words.verb(ranks, 'was', 'were')} ended."]


def _blame_unknown(ordered: list[Trouble], unaware: Sequence[int]) -> RankFailedError:
    """Every failed rank is a victim, and the culprit is unknown."""
    first = ordered[0]
    return RankFailedError(
        "\n".join(
            [
                first.sentence(),
                "  which rank failed first is unknown: this error only says that another one was lost.",
                *(_victim(t) for t in ordered[1:]),
                *_unaware(unaware),
            ]
        ),
        details=first.failure.traceback if first.failure is not None else "",
        hint="see the output of ranks on other machines, and compare all traces with 'pyddpdiag report'.",
    )


def _victim(trouble: Trouble) -> str:
    if trouble.failure is None or not trouble.secondary:
        return f"  also: {trouble.sentence()}"
    return f"  rank {trouble.rank} went down with it: {short(trouble.failure.message, 100)}"


def _blame_silent(ordered: list[Trouble], silent: dict[int, str]) -> RankFailedError:
    ranks = ", ".join(str(rank) for rank in sorted(silent))
    plural = len(silent) > 1
    details = [f"Where rank {rank} was:\n{text}" for rank, text in sorted(silent.items()) if text]
    mute = [rank for rank, text in silent.items() if not text]
    message = f"{'ranks' if plural else 'rank'} {ranks} did not take part in time; the others waited in vain."
    return RankFailedError(
        "\n".join([message, *(_victim(t) for t in ordered)]),
        rank=min(silent),
        details="\n".join(details),
        hint=(
            f"rank {mute[0]} did not even answer: it was stopped, or is stuck outside Python."
            if mute
            else "its stack above shows what it was doing; a longer --timeout helps if it was only slow."
        ),
    )
