"""What `pyddpdiag run` asks of the processes below it, by their environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyddpdiag.start import environment

if TYPE_CHECKING:
    from pyddpdiag.cures.trial_options import Trial
    from pyddpdiag.model.launch import Launch

FOLDER: Final = "PYDDPDIAG_RUN_FOLDER"
"""The environment variable that names the run's folder; empty: the ranks agree on a new one."""
LINES: Final = "PYDDPDIAG_RUN_LINES"
"""The environment variable that says whether the ranks look at their Python stacks: "0" if not."""
LAUNCH: Final = "PYDDPDIAG_RUN_LAUNCH"
"""The one with the launch command and the cures to apply (`pyddpdiag.model.launch`), as JSON."""
TRIAL: Final = "PYDDPDIAG_RUN_TRIAL"
"""The one with what is asked of a trial of cures (`pyddpdiag.cures.trial_options.to_text`); unset: there is none."""


def folder() -> str:
    """Of the run; empty: the ranks have yet to agree on one."""
    return environment.get(FOLDER)


def lines() -> bool:
    """Whether the ranks look at their Python stacks."""
    return environment.get(LINES) != "0"


def is_launched() -> bool:
    """Whether this is below a command that `pyddpdiag run` ran."""
    return bool(environment.get(LAUNCH))


def launch() -> Launch | None:
    """The command that `pyddpdiag run` ran; None: this is not below one."""
    from pyddpdiag.model.launch import launch_of

    return launch_of(environment.get(LAUNCH))


def trial() -> Trial | None:
    """The trial of cures that `pyddpdiag try` asks for; None: none."""
    if not (text := environment.get(TRIAL)):
        return None
    from pyddpdiag.cures import trial_options

    return trial_options.from_text(text)
