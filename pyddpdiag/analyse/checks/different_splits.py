"""A sampler divides among the ranks what is not the same data on each: random_split without a seed, as a rule."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.analyse.check import Check
from pyddpdiag.analyse.view import RunView
from pyddpdiag.model import Finding


def _look(view: RunView) -> Iterator[Finding]:
    """By the loaders that all ranks have alike."""
    picked: dict[tuple[object, ...], dict[int, int]] = {}
    for rank, sidecar in view.sidecars.items():
        loaders = [*sidecar.training.loaded, *(each.loader for each in sidecar.training.evaluated)]
        for one in loaders:
            if one.distributed and one.picked is not None and one.replicas == view.run.world_size:
                key = one.sampler, one.shuffle, one.seed, one.length, one.batch_size
                picked.setdefault(key, {}).setdefault(rank, one.picked)
    found = [
        (key, by_rank)
        for key, by_rank in picked.items()
        if len(by_rank) == view.run.world_size and len(set(by_rank.values())) > 1
    ]
    if not found:
        return
    (sampler, *_), by_rank = found[0]
    yield Finding(
        kind="different_splits",
        severity="error",
        message=f"{sampler} divides other samples on each rank: the Subset that it is for (random_split makes some) "
        "holds others there. So some samples are trained on twice in an epoch and some never, and what one rank "
        "validates on, another one trains on.",
        confidence="high",
        since_step=0,
        evidence={"loaders": len(found), "splits": len(set(by_rank.values())), "ranks": len(by_rank)},
        change_mind="Each rank has data of its own, and another sampler would do.",
        advice="Split alike on all ranks: random_split(data, lengths, generator=torch.Generator().manual_seed(0)).",
    )


CHECK = Check(("different_splits",), _look, rests_on="records")
