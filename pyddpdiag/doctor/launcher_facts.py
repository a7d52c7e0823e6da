"""Who started the ranks, and what place this one has: from the variables of the launchers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
