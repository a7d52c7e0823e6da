"""How the command of `pyddpdiag run` ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pyddpdiag.model.fields import Code, Limit

NAME: Final = "command.json"
"""The file in the run's folder that says it."""


@dataclass(frozen=True)
class CommandEnd:
    """Its exit code, and the signal by which somebody ended it, as "SIGINT"; empty: nobody did.

    `signal_s`: when, in seconds since 1970; 0: not known. `left_s`: when it ended, if processes that it had started
    outlived it, which `pyddpdiag run` then ended; 0: none did.
    """

    exit_code: Code
    signal: Annotated[str, Limit(16)] = ""
    signal_s: Annotated[float, Limit(1e11)] = 0.0
    left_s: Annotated[float, Limit(1e11)] = 0.0
