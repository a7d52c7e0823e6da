"""Samples of a rank's GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from pyddpdiag.model.untrusted import number

LOW_PERCENT: Final = 50.0
"""A GPU with a lower median use than this is worth a sentence."""

_MOST: Final = 2.0**62


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

    rank: int
    samples: int
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None

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


def gpu_to_json(use: GpuUse) -> dict[str, Any]:
    """As it stands in the rank's own sidecar."""
    return {name: value for name, value in asdict(use).items() if name != "rank"}


def gpu_from_json(entry: Any, rank: int) -> GpuUse | None:
    """What a sidecar says, which nobody vouches for; None: nothing of use."""
    if not isinstance(entry, dict):
        return None
    samples = number(entry.get("samples"), _MOST)
    if not samples:
        return None
    percent, used, total = (
        number(entry.get(key), _MOST)
        for key in ("utilisation_percent", "memory_used_bytes", "memory_total_bytes")
    )
    return GpuUse(
        rank,
        int(samples),
        percent if percent is not None and percent <= 100 else None,
        None if used is None else int(used),
        None if total is None else int(total),
    )
