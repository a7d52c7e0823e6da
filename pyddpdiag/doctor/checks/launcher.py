"""The variables of launchers: numbers, and in agreement with each other."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag import system
from pyddpdiag.doctor.check import LAUNCHERS, TORCH, Outcome, Situation, failed, number, passed
from pyddpdiag.messages import torchrun
from pyddpdiag.messages.shells import SetVariable, UnsetVariable
from pyddpdiag.output import clean

_NAME = "launcher"


def check(situation: Situation) -> Iterator[Outcome]:
    """Rank, world size, local rank and local world size: whole, within each other, and the same for every launcher."""
    environ, launch = situation.environ, situation.launch
    problems = [*_unreadable(situation), *_impossible(situation), *_contradictions(situation)]
    yield from problems
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if 0 < len(missing) < 4 and not (launch.rank is not None and situation.target is not None):
        names = ", ".join(
            name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in missing
        )
        # An address and port alone are what a shell profile may hold, and harm nobody.
        if "RANK" not in missing or "WORLD_SIZE" not in missing:
            problems.append(
                failed(
                    _NAME,
                    f"{names} {'is' if len(missing) == 3 else 'are'} set, but not {', '.join(missing)}: "
                    "init_process_group needs all four.",
                    "Start the script by torchrun, which sets them, or set the rest.",
                    *torchrun.lines(system.WINDOWS),
                )
            )
            yield problems[-1]
    if problems:
        return
    if launch.world_size is None:
        yield passed(_NAME, "this process is not a rank; --world-size and --local-world-size check for one")
        return
    place = (
        f"rank {launch.rank} of {launch.world_size}"
        if launch.rank is not None
        else f"{launch.world_size} ranks"
    )
    here = f", {launch.local_world_size} on this machine" if launch.local_world_size is not None else ""
    yield passed(_NAME, f"{launch.by or 'by hand'}: {place}{here}")


def _unreadable(situation: Situation) -> Iterator[Outcome]:
    for name in (*TORCH.values(), "MASTER_PORT"):
        text = situation.environ.get(name)
        if text is not None and number(situation.environ, name) is None:
            yield failed(
                _NAME,
                f"{name} is '{clean(text, 60)}', which is not a whole number.",
                f"Set {name} to a number, or unset it.",
                UnsetVariable(name),
            )
    port = number(situation.environ, "MASTER_PORT")
    if port is not None and not 0 < port < 65536:
        yield failed(
            _NAME,
            f"MASTER_PORT is {port}, which is not a TCP port.",
            "Use 1024 to 65535.",
            SetVariable("MASTER_PORT", "29500"),
        )


def _impossible(situation: Situation) -> Iterator[Outcome]:
    launch = situation.launch
    world, local_world = launch.world_size, launch.local_world_size
    if world is not None and world < 1:
        yield failed(
            _NAME,
            f"the world size is {world}.",
            "It is the number of all ranks.",
            SetVariable("WORLD_SIZE", "2"),
        )
    elif world is not None and launch.rank is not None and not 0 <= launch.rank < world:
        yield failed(
            _NAME,
            f"rank {launch.rank} is outside of a world of {world}: ranks are 0 to {world - 1}.",
            "Give each process a rank of its own below the world size; the first is 0.",
            SetVariable("RANK", "0"),
        )
    if world is not None and local_world is not None and local_world > world >= 1:
        yield failed(
            _NAME,
            f"{local_world} ranks are on this machine, but the world has only {world}.",
            "WORLD_SIZE counts the ranks of all machines, LOCAL_WORLD_SIZE those of this one.",
            SetVariable("WORLD_SIZE", str(local_world)),
        )
    if launch.local_rank is not None and local_world is not None and not 0 <= launch.local_rank < local_world:
        yield failed(
            _NAME,
            f"local rank {launch.local_rank} is outside of the {local_world} ranks of this machine.",
            "LOCAL_RANK counts from 0 on each machine.",
            SetVariable("LOCAL_RANK", "0"),
        )


def _contradictions(situation: Situation) -> Iterator[Outcome]:
    """A launcher started this process under another number than torch would read."""
    environ, launch = situation.environ, situation.launch
    if launch.by not in ("Open MPI", "MPICH"):
        return
    for part, name in LAUNCHERS[launch.by].items():
        torch_name = TORCH[part]
        theirs, torchs = number(environ, name), number(environ, torch_name)
        if theirs is not None and torchs is not None and theirs != torchs:
            yield failed(
                _NAME,
                f"{torch_name} is {torchs}, but {launch.by} says {theirs} ({name}).",
                f"Set {torch_name} from {name} in each process; a fixed value makes all ranks the same.",
                SetVariable(torch_name, str(theirs)),
            )
