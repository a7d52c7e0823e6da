"""What a trial of cures is asked for: checked, without torch. `pyddpdiag.Trial` for a script of one's own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyddpdiag.cures.names import Named, together_of
from pyddpdiag.cures.options import layout_of
from pyddpdiag.errors import UsageError
from pyddpdiag.model.trial import Keep

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from pyddpdiag.record.recorder import Recorder

CURES: Final = {
    "shared-memory": "ranks of one host average in memory that they share",
    "views": "gradients are views of the buckets",
    "buckets": "other bucket sizes",
    "compress": "gradients travel as bfloat16",
    "compress-fp16": "gradients travel as float16",
    "error-feedback": "bfloat16, and what it lost is added to the next step's gradients",
}
"""What can be tried in a running training, by its name in `--cures`."""

BY_STARTS: Final = ("interface", "threads", "pin-ranks", "workers")
"""What only another process can have: `pyddpdiag try --restart` tries it."""

DEFAULT: Final = ("shared-memory", "buckets")
"""Tried unless others are named: each only where the training's result stays the same, to the last bit. Not `views`: a
script may call `detach_()` on its gradients, which views refuse, or keep gradients of its own."""


@dataclass(frozen=True)
class Trial:
    """A trial of cures, for `recorder.attach(ddp, trial=pyddpdiag.Trial())`; the same on all ranks.

    Attributes:
        cures: names of `CURES`, also `buckets=4` and `buckets=1:4:25` in MiB, and several at once as `views+compress`;
            empty: those of `DEFAULT` that keep the bits.
        minutes: the time that the trial may take.
        keep: with what the training goes on: "best", or "none" for what it had.
        stop: end the training when the trial is over, by `SystemExit` with code 0 from the forward pass in every rank.

    Raises:
        UsageError: there is no such cure, or a value is out of its range.
    """

    cures: Sequence[str] = ()
    minutes: float = 2.0
    keep: Keep = "best"
    stop: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.cures, str):
            raise UsageError(f"cures must be a list of names, not the text {self.cures!r}.")
        for each in self.cures:
            named_of(each)
        if not (math.isfinite(self.minutes) and self.minutes > 0):
            raise UsageError(
                f"a trial of {self.minutes} minutes cannot be right.", hint="give a number above 0."
            )
        if self.keep not in ("best", "none"):
            raise UsageError(f"keep must be 'best' or 'none', not {self.keep!r}.")

    def begin(self, recorder: Recorder, ddp: DistributedDataParallel, given: Any = None) -> None:
        """For this package: begins the trial on an attached module; all ranks of its group call it together.

        Args:
            recorder: to which the module is attached.
            ddp: the module.
            given: torch.compile's module of it; None: the script calls `ddp` itself.
        """
        from pyddpdiag.cures.trial_engine import begin

        begin(recorder, ddp, ddp if given is None else given, self)


def named_of(text: str) -> tuple[Named, ...]:
    """The cures of a trial that are on together.

    Raises:
        UsageError: there is no such cure in a running training, one is named twice, or a value is none of it.
    """
    hint = f"choose from {', '.join(CURES)}."
    if any(part.partition("=")[0].strip() in BY_STARTS for part in text.split("+")):
        hint = f"pyddpdiag try --restart takes it; in a running training, {hint}"
    found = together_of(text, CURES, hint)
    for one in found:
        if one.value and one.name != "buckets":
            raise UsageError(
                f"{one.name}={one.value}: {one.name} takes no value here.",
                hint="with --restart it may; in a running training only buckets takes one, in MiB.",
            )
        if one.value:
            layout_of(one.value)
    return found


def to_text(trial: Trial) -> str:
    """For an environment variable."""
    return json.dumps(asdict(trial) | {"cures": list(trial.cures)})


def from_text(text: str) -> Trial:
    """The reverse.

    Raises:
        UsageError, ValueError, TypeError: it was not made by that.
    """
    return Trial(**json.loads(text))


__all__ = ["CURES", "DEFAULT", "Trial", "from_text", "named_of", "to_text"]
