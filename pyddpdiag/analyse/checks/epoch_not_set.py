"""A DistributedSampler that gives the same order in each epoch, because nobody called `set_epoch`."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding


def _look(view: RunView) -> Iterator[Finding]:
    """Only of samplers that shuffle: without, the order is the same on purpose."""
    stale = [
        (rank, one)
        for rank, sidecar in view.sidecars.items()
        for one in sidecar.training.loaded
        if one.distributed and one.shuffle and one.epochs > 1 and one.distinct == 1
    ]
    if not stale:
        return
    _, one = max(stale, key=lambda entry: entry[1].epochs)
    yield Finding(
        kind="epoch_not_set",
        severity="warning",
        message=f"{one.sampler}.set_epoch was never called: it gave the same order of samples, and each rank the same "
        f"samples, in all {one.epochs} epochs.",
        confidence="high",
        since_step=0,
        cost_ms=None,  # it costs no time: the model sees less than it could
        evidence={
            "epochs": one.epochs,
            "distinct_epochs": one.distinct,
            "samples_per_epoch": one.length,
            "ranks": len({rank for rank, _ in stale}),
        },
        change_mind="The same order in each epoch is meant, or the data set shuffles by itself.",
        advice="for epoch in range(epochs): sampler.set_epoch(epoch), before the loop over the loader.",
    )


CHECK = Check(("epoch_not_set",), _look, rests_on="records")
