"""The effective batch size of a world, and what it means for the learning rate."""

from __future__ import annotations

from collections.abc import Iterator

from pyddpdiag.doctor.check import Outcome, Situation, passed


def check(situation: Situation) -> Iterator[Outcome]:
    """Only with a batch size and a world size."""
    world, batch = situation.launch.world_size, situation.batch_size
    if world is None or world < 2:
        return
    if batch is None:
        yield passed("batch", f"{world} ranks: the effective batch is {world} times that of one rank")
        return
    yield passed(
        "batch",
        f"{world} ranks with {batch} samples each make steps of {world * batch}; "
        f"DDP averages, so a learning rate that fits one process is often multiplied by up to {world} (with warm-up)",
    )
