"""Failures of ranks: told by the rank that failed, weighed by whoever looks at all of them.

When one rank goes, its neighbours fail as well, within milliseconds and with errors that blame the network.
So a rank whose error is a broken connection is a victim as long as any other rank has a reason of its own.
"""

from __future__ import annotations

import re
import signal
import traceback
from dataclasses import dataclass

from pyddpdiag.errors import PyddpdiagError, RankFailedError
from pyddpdiag.train.system import KILLS_WHEN_OUT_OF_MEMORY

# What Gloo, torch's stores and the sockets under them say when a peer has gone.
_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused|aborted|timed out)|broken pipe|socket closed|connectfullmesh"
    r"|failed to (send|recv|connect)|recvvalue|sendbytes|recvbytes|forcibly closed|econnreset"
    r"|software caused connection|store.*(unreachable|connection)",
    re.IGNORECASE,
)
# Only in the words of Gloo and torch: a training script has other things that time out by themselves.
_TIMEOUT = re.compile(
    r"timed out waiting \d+ ?ms|timed out after \d+ ?ms|wait timeout|socket timeout|timeout waiting for key"
    # Gloo's word for the buckets that were queued behind the one that timed out; either may come up first.
    r"|application timeout caused pair closure",
    re.IGNORECASE,
)
_GLOO_SOURCE = re.compile(r"\[[^\[\]]*?\.(?:cc|cpp|h):\d+\]\s*")
# What torch appends to some of Gloo's messages; `blame` knows better.
_ADVICE = re.compile(r"\.?\s*This is typically caused by.*", re.DOTALL)
_TRACEBACK_LIMIT = 12_000
# Exit codes by which Windows tells how a process crashed.
_WINDOWS_CRASHES = {
    0xC0000005: "an access violation",
    0xC00000FD: "a stack overflow",
    0xC0000017: "a lack of memory",
    0xC0000409: "a failed security check (abort)",
    0xC000013A: "Ctrl-C",
}


@dataclass(frozen=True)
class Failure:
    """An error that a rank could still tell about itself.

    Attributes:
        kind: name of the exception's class.
        message: its text.
        traceback: its formatted traceback; empty for errors that are the user's to mend (bad arguments and
            the like).
        connection: the error says that a peer is gone.
        timeout: the error says that a peer was waited for in vain.
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
    connection = network and bool(_CONNECTION.search(text) or isinstance(error, ConnectionError))
    timeout = network and not connection and bool(_TIMEOUT.search(text))
    return Failure(
        rank=rank,
        kind=type(error).__name__,
        message=text,
        traceback="" if ours else _format_traceback(error),
        connection=connection,
        timeout=timeout,
        hint=error.hint if isinstance(error, PyddpdiagError) else "",
    )


def _format_traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    if len(text) <= _TRACEBACK_LIMIT:
        return text
    half = _TRACEBACK_LIMIT // 2
    return f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def short(message: str, limit: int = 140) -> str:
    """The first line of an error of Gloo or torch, without the source position it starts with."""
    lines = _ADVICE.sub("", _GLOO_SOURCE.sub("", message)).strip().splitlines()
    line = lines[0] if lines else ""
    return line if len(line) <= limit else line[: limit - 3] + "..."


def sentence(failure: Failure) -> str:
    """One sentence with the rank and the reason."""
    text = short(failure.message)
    return f"rank {failure.rank} failed with {failure.kind}" + (f": {text}" if text else ".")


def describe_exit(rank: int, exit_code: int) -> str:
    """One sentence about a rank that ended without telling why."""
    if exit_code < 0:
        try:
            name = f" ({signal.Signals(-exit_code).name})"
        except ValueError:
            name = ""
        return f"rank {rank} was killed by signal {-exit_code}{name}."
    if exit_code == 0:
        return f"rank {rank} ended with exit code 0 before the training was done."
    crash = _WINDOWS_CRASHES.get(exit_code)
    if crash is not None:
        return f"rank {rank} was ended by {crash} (exit code 0x{exit_code:08X})."
    return f"rank {rank} ended with exit code {exit_code} and no error message."


@dataclass(frozen=True)
class Trouble:
    """A rank in trouble as the launcher saw it: when (monotonic seconds), its failure or its exit code."""

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


def blame(troubles: list[Trouble], silent: dict[int, str] | None = None) -> RankFailedError:
    """The error that names the rank which failed first for a reason of its own.

    Args:
        troubles: every rank that failed or ended, at least one.
        silent: ranks that neither failed nor ended, with the stacks of their threads ("" if they didn't
            answer). They matter only when all the others waited in vain.
    """
    ordered = sorted(troubles, key=lambda trouble: trouble.at)
    first = next((t for t in ordered if not t.secondary), None)
    if first is None and silent and any(t.failure is not None and t.failure.timeout for t in ordered):
        return _blame_silent(ordered, silent)
    first = first or ordered[0]
    details = []
    hint = ""
    if first.failure is not None:
        details.append(first.failure.traceback)
        hint = first.failure.hint
    elif first.exit_code == -9 and KILLS_WHEN_OUT_OF_MEMORY:
        hint = "if nobody killed it, the system may have run out of memory: see the kernel's log (dmesg)."
    others = [_victim(t) for t in ordered if t is not first]
    return RankFailedError(
        "\n".join([first.sentence(), *others]),
        rank=first.rank,
        details="\n".join(text for text in details if text),
        hint=hint,
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
