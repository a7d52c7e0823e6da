"""torchrun on Windows: what fails there, how a command of it is recognised, and the lines that work.

Its rendezvous, of every kind, makes TCP stores that ask for libuv, which torch's Windows wheels lack; USE_LIBUV changes
nothing there. Over a file, and with no store that torchrun shares with the ranks, none is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PureWindowsPath
from typing import Final

from pyddpdiag.messages.shells import Line, Run, SetVariable

OLDEST_FAILING: Final = (2, 11)
NEWEST_FAILING: Final = (2, 13)
"""What a later torch does is not known."""

UNSHARED: Final = SetVariable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
OVER_A_FILE: Final = "store_type=file"
COMMAND: Final = "torchrun --nproc-per-node 2 SCRIPT.py"
"""On all other systems."""

COMMAND_ON_WINDOWS: Final = (
    f"torchrun --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint D:/rdzv --rdzv-conf {OVER_A_FILE} --rdzv-id ID "
    "SCRIPT.py"
)
LINES_ON_WINDOWS: Final[tuple[Line, ...]] = (UNSHARED, Run(COMMAND_ON_WINDOWS))

WHY: Final = (
    "torchrun's own TCP stores ask for libuv, which torch's Windows wheels do not have; they ignore USE_LIBUV"
)
FIX: Final = (
    "Let torchrun meet over a file, with a new file or --rdzv-id for each run, or start the ranks without it "
    "(init_method file:// or tcp://, pyddpdiag train --nproc)."
)

_MODULES = {"torch.distributed.run", "torch.distributed.launch"}


def lines(windows: bool) -> tuple[Line, ...]:
    """The lines that start two ranks by torchrun."""
    return LINES_ON_WINDOWS if windows else (Run(COMMAND),)


def is_torchrun(command: Sequence[str]) -> bool:
    """Whether a command line is one of torchrun."""
    # The names of both systems' paths.
    program = PureWindowsPath(command[0]).name.lower().removesuffix(".exe") if command else ""
    modules = {two for one, two in pairwise(command) if one == "-m"}
    return program == "torchrun" or not modules.isdisjoint(_MODULES)


def works_on_windows(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether torchrun, started so, makes no TCP store that fails on Windows.

    `command`: its command line, as far as it is known. `environ`: its variables, which may hold its options, too:
    PET_RDZV_CONF and the like.
    """
    words = [*command, environ.get("PET_RDZV_CONF", "")]
    return environ.get(UNSHARED.name) == UNSHARED.value and any(OVER_A_FILE in word for word in words)
