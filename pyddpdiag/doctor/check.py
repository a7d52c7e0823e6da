"""What a check is, what it may look at, who started the ranks, and what a check finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pyddpdiag.messages.shells import Line, Shell
from pyddpdiag.ranks.rendezvous import Target

#: What torch reads.
TORCH: Final = {
    "rank": "RANK",
    "world_size": "WORLD_SIZE",
    "local_rank": "LOCAL_RANK",
    "local_world_size": "LOCAL_WORLD_SIZE",
}
#: What each launcher sets, by the same words. The first one that is there counts.
LAUNCHERS: Final[dict[str, dict[str, str]]] = {
    "SLURM": {"rank": "SLURM_PROCID", "world_size": "SLURM_NTASKS", "local_rank": "SLURM_LOCALID"},
    "Open MPI": {
        "rank": "OMPI_COMM_WORLD_RANK",
        "world_size": "OMPI_COMM_WORLD_SIZE",
        "local_rank": "OMPI_COMM_WORLD_LOCAL_RANK",
        "local_world_size": "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    "MPICH": {"rank": "PMI_RANK", "world_size": "PMI_SIZE", "local_rank": "MPI_LOCALRANKID"},
    "SageMaker": {"world_size": "SM_NUM_HOSTS", "local_world_size": "SM_NUM_GPUS"},
}


@dataclass(frozen=True)
class Launch:
    """The place of this process, each part None where nothing tells it.

    Attributes:
        by: the launcher's name; "" if none is recognised.
        rank: among all ranks.
        world_size: number of ranks.
        local_rank: among the ranks of this machine.
        local_world_size: ranks of this machine.
        agent: torchrun serves the store itself.
    """

    by: str = ""
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    agent: bool = False

    @property
    def several_machines(self) -> bool | None:
        """Whether the ranks are on more than one machine; None if that is unknown."""
        if self.world_size is None or self.local_world_size is None:
            return None
        return self.world_size > self.local_world_size


def number(environ: Mapping[str, str], name: str) -> int | None:
    """The whole number in a variable; None if it is not set or no number."""
    try:
        return int(environ.get(name, ""))
    except ValueError:
        return None


def read(
    environ: Mapping[str, str],
    rank: int | None = None,
    world_size: int | None = None,
    local_world_size: int | None = None,
) -> Launch:
    """The launch that the variables describe; arguments replace what they say."""
    by = "torchrun" if "TORCHELASTIC_RUN_ID" in environ else ""
    if not by:
        by = next(
            (
                name
                for name, parts in LAUNCHERS.items()
                if all(parts[key] in environ for key in list(parts)[:2])
            ),
            "",
        )
    values = {part: number(environ, name) for part, name in TORCH.items()}
    for part, name in LAUNCHERS.get(by, {}).items():
        # SageMaker counts hosts, and an interactive SLURM shell is no rank.
        if values[part] is None and by not in ("SageMaker", "SLURM"):
            values[part] = number(environ, name)
    return Launch(
        by,
        values["rank"] if rank is None else rank,
        values["world_size"] if world_size is None else world_size,
        values["local_rank"],
        values["local_world_size"] if local_world_size is None else local_world_size,
        environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )


class Status(IntEnum):
    """How a check went; the higher, the worse."""

    PASS = 0
    WARN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """In lower case, for tables and JSON."""
        return self.name.lower()


@dataclass(frozen=True)
class Outcome:
    """One line of the table.

    Attributes:
        name: what was looked at.
        status: how it went.
        text: what was found.
        fix: what to do, if it did not pass.
        lines: the fix as lines to paste.
    """

    name: str
    status: Status
    text: str
    fix: str = ""
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Situation:
    """What the checks look at, beside the machine itself.

    Attributes:
        environ: the environment variables that a rank started from here would have.
        launch: rank, world and launcher, as far as options and variables tell.
        target: where the ranks are to meet; None if that is unknown.
        problem: why the place to meet cannot be understood; "" if it can, or none was given.
        shell: for which to write lines.
        wait_s: longest wait of a check for anything outside of this process.
        batch_size: of each rank, for the note about the learning rate.
    """

    environ: Mapping[str, str]
    launch: Launch
    target: Target | None
    problem: str
    shell: Shell
    wait_s: float = 1.0
    batch_size: int | None = None


Check = Callable[[Situation], Iterator[Outcome]]
"""Looks at one concern; never raises for what the machine is like, and waits no longer than `wait_s`."""


def passed(name: str, text: str) -> Outcome:
    """An outcome with nothing to do."""
    return Outcome(name, Status.PASS, text)


def warned(name: str, text: str, fix: str, *lines: Line) -> Outcome:
    """An outcome that may cost time or trouble."""
    return Outcome(name, Status.WARN, text, fix, lines)


def failed(name: str, text: str, fix: str, *lines: Line) -> Outcome:
    """An outcome that will keep the job from working."""
    return Outcome(name, Status.FAIL, text, fix, lines)
