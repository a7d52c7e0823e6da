"""How much a rank's GPU was used, and why it was used little, as far as the trace tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyddpdiag.model import RunReport

#: A GPU that is used less than this in the median is worth a sentence.
LOW_PERCENT: Final = 50.0

Cause = Literal["data_wait", "exposed_communication", "small_batch", "cannot_tell"]

_ADVICE: Final[dict[Cause, str]] = {
    "data_wait": "the largest part of its step is waiting for data ({share:.0%}): give more --workers, or keep the "
    "data on a faster disk.",
    "exposed_communication": "the largest part of its step is waiting for gradients after backward ({share:.0%}); over "
    "Gloo they go through the CPU. The report tells whether a rank is late or the transfer slow; a larger --batch-size "
    "makes both rarer.",
    "small_batch": "neither data nor gradients hold it up (compute is {share:.0%} of its step), so the work of a step "
    "is too small to fill it: give a larger --batch-size.",
    "cannot_tell": "why cannot be told: no trace tells this rank's steps apart (--hook native records one).",
}


@dataclass(frozen=True)
class GpuUse:
    """What a rank's own GPU was seen doing during the training; medians over the samples.

    Attributes:
        rank: whose GPU it is.
        samples: how often it was looked at.
        utilisation_percent: of the time in which a kernel ran, 0 to 100; None where the GPU does not tell.
        memory_used_bytes: by all programs on it; None where it does not tell.
        memory_total_bytes: of the GPU; None where it does not tell.
    """

    rank: int
    samples: int
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None

    @property
    def low(self) -> bool:
        """Whether it was used less than half of the time; not if that is not known."""
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


@dataclass(frozen=True)
class LowUse:
    """Why a GPU was used little: the largest part of its rank's step.

    Attributes:
        cause: what it waits for. `small_batch`: for nothing that the trace knows.
        share: that part of the step, 0 to 1; None if it cannot be told.
    """

    cause: Cause
    share: float | None

    def __str__(self) -> str:
        """One sentence for people, with what to do."""
        return "Low use: " + _ADVICE[self.cause].format(share=self.share)


def explain(use: GpuUse, report: RunReport | None) -> LowUse | None:
    """The reason for low use by the medians of the rank's steps; None if the use is not low.

    Args:
        use: of one rank.
        report: of the trace; None if there is none.
    """
    if not use.low:
        return None
    stats = next((rank for rank in report.ranks if rank.rank == use.rank), None) if report else None
    parts: dict[Cause, float | None] = {}
    if stats is not None:
        parts = {
            "data_wait": stats.data_wait_ms.median,
            "exposed_communication": stats.exposed_ms.median,
            "small_batch": stats.compute_ms.median,
        }
    known = {cause: part for cause, part in parts.items() if part is not None}
    # A part that is not known may be the largest.
    if len(known) < 3 or sum(known.values()) <= 0:
        return LowUse("cannot_tell", None)
    cause = max(known, key=lambda name: known[name])
    return LowUse(cause, known[cause] / sum(known.values()))
