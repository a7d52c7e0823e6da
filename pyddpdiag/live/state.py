"""What `pyddpdiag hang` answers, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyddpdiag.model.findings import Finding

Status = Literal["moving", "ended", "found", "cannot_tell"]

State = Literal["moving", "waiting", "busy", "stopped", "dead", "closed", "unseen", "absent"]
"""`waiting`: an operation of it is in flight. `busy`: it runs, and none is. `unseen`: its process is out of sight and
gives no sign of life. `absent`: it has no trace."""

EXIT_CODES: Final[dict[Status, int]] = {"moving": 0, "ended": 0, "found": 1, "cannot_tell": 2}


@dataclass(frozen=True)
class Operation:
    """A bucket or another collective. `parameters`, `bytes` and `step` as far as they are known.

    `open_s`: for how long at least it has been in flight; None where it never began. `shared`: it is summed in shared
    memory, and Gloo has a part in it only between hosts.
    """

    kind: str
    what: str
    parameters: tuple[str, ...] = ()
    bytes: int | None = None
    step: int | None = None
    open_s: float | None = None
    shared: bool = False


@dataclass(frozen=True)
class RankState:
    """One rank now. `silent_s`: since its newest record. `beat_s`: since its last heartbeat; None: it has none.

    `waits_in` is its oldest operation in flight, `missing_from` what others wait in and it never began. `error` is the
    text of its first failed operation, `error_at_ms` when that was, on the common clock since recording began. `line`
    is that of the script at which it was seen since its newest record; empty: not known.
    """

    rank: int
    state: State
    host: str = ""
    pid: int | None = None
    last_step: int | None = None
    silent_s: float | None = None
    beat_s: float | None = None
    waits_in: Operation | None = None
    missing_from: Operation | None = None
    error: str | None = None
    error_at_ms: float | None = None
    line: str = ""


@dataclass(frozen=True)
class Stack:
    """The stack of one rank's process, or why there is none."""

    rank: int
    pid: int
    text: str
    why: str = ""


@dataclass(frozen=True)
class Hang:
    """The answer: one line, the findings behind it, every rank, and the stacks of the ranks in question.

    `looked_s` is how long the run was looked at; `suspects` are the ranks whose stacks say more.
    """

    folder: str
    run_id: str
    world_size: int
    status: Status
    line: str
    findings: tuple[Finding, ...]
    ranks: tuple[RankState, ...]
    suspects: tuple[int, ...]
    looked_s: float
    stacks: tuple[Stack, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 it moves or ended normally, 1 found, 2 cannot tell."""
        return EXIT_CODES[self.status]
