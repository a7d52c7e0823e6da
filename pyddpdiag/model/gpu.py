"""Samples of a rank's GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pyddpdiag.model.fields import ELSEWHERE, Limit

LOW_PERCENT: Final = 50.0
"""A GPU with a lower median use than this is worth a sentence."""


@dataclass(frozen=True)
class GpuUse:
    """What a rank's own GPU did during the training; medians over the samples.

    Attributes:
        rank: whose GPU it is.
        samples: the number of samples.
        utilisation_percent: share of the time in which a kernel ran, 0 to 100; None if the GPU does not
            report it.
        memory_used_bytes: by all programs on it; None if the GPU does not report it.
        memory_total_bytes: of the GPU; None if the GPU does not report it.
    """

    rank: Annotated[int, ELSEWHERE]
    samples: int
    utilisation_percent: Annotated[float | None, Limit(101)]
    memory_used_bytes: int | None
    memory_total_bytes: int | None

    @property
    def sound(self) -> bool:
        """Whether there were any samples."""
        return self.samples > 0

    @property
    def low(self) -> bool:
        """Whether it was used less than half of the time; False if that is not known."""
        return self.utilisation_percent is not None and self.utilisation_percent < LOW_PERCENT

    def __str__(self) -> str:
        """One sentence for people."""
        used = (
            "use not known" if self.utilisation_percent is None else f"{self.utilisation_percent:.0f}% used"
        )
        memory = ""
        if self.memory_used_bytes is not None and self.memory_total_bytes is not None:
            memory = f", {self.memory_used_bytes / 1e9:.2f} of {self.memory_total_bytes / 1e9:.2f} GB memory"
        of = "1 sample" if self.samples == 1 else f"{self.samples} samples"
        return f"GPU of rank {self.rank}: {used}{memory} (median of {of})."
