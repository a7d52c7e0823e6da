"""What a trial of cures is asked for: checked, without torch. `pyddpdiag.Trial` for a script of one's own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyddpdiag.cures.trial_candidates import Wanted, wanted_of
from pyddpdiag.errors import UsageError
from pyddpdiag.model.tried import Keep

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from pyddpdiag.record.recorder import Recorder


@dataclass(frozen=True)
class Trial:
    """A trial of cures, for `recorder.attach(ddp, trial=pyddpdiag.Trial())`; the same on all ranks.

    Attributes:
        cures: names as in docs/cures.md, also `buckets=4` and `buckets=1:4:25` in MiB, and several at once as
            `views+compress`; empty: shared memory and bucket sizes, where they keep the bits.
        minutes: the time that the trial may take, at most.
        keep: with what the training goes on: "best", or "none" for what it had.
        stop: end the training when the trial is over, by `SystemExit` with code 0 from the forward pass in every rank.

    Raises:
        UsageError: there is no such cure, or a value is out of its range.
    """

    cures: Sequence[str] = ()
    minutes: float = 5.0
    keep: Keep = "best"
    stop: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.cures, str):
            raise UsageError(f"cures must be a list of names, not the text {self.cures!r}.")
        self.wanted()
        if not (math.isfinite(self.minutes) and self.minutes > 0):
            raise UsageError(
                f"a trial of {self.minutes} minutes cannot be right.", hint="give a number above 0."
            )
        if self.keep not in ("best", "none"):
            raise UsageError(f"keep must be 'best' or 'none', not {self.keep!r}.")

    def wanted(self) -> list[Wanted]:
        """For this package: the cures by name and value."""
        return [wanted_of(each, in_run=True) for each in self.cures]

    def begin(self, recorder: Recorder, ddp: DistributedDataParallel, given: Any = None) -> None:
        """For this package: begins the trial on an attached module; all ranks of its group call it together.

        `given`: torch.compile's module of it; None: the script calls `ddp` itself.
        """
        from pyddpdiag.cures.trial_engine import begin

        begin(recorder, ddp, ddp if given is None else given, self)


def to_text(trial: Trial) -> str:
    """For an environment variable."""
    return json.dumps(asdict(trial) | {"cures": list(trial.cures)})


def from_text(text: str) -> Trial:
    """The reverse.

    Raises:
        UsageError, ValueError, TypeError: it was not made by that.
    """
    return Trial(**json.loads(text))
