"""What a rank's error says: reported by the rank that failed, weighed by `blame`."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from pyddpdiag.errors import PyddpdiagError, RankFailedError
from pyddpdiag.messages.explain import explain
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.source import without_source

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
