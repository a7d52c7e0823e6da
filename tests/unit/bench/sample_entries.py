"""Entries of result files to compare and judge, with rounds that the test chooses."""

from typing import Any

import numpy as np

from pyddpdiag.bench.results import Entry, ResultFile, scaling_entry


def rounds(median_s: float, count: int = 30, spread: float = 0.05, seed: int = 0) -> tuple[float, ...]:
    """Times around a median."""
    values = median_s * np.exp(spread * np.random.default_rng(seed).standard_normal(count))
    return tuple(float(value) for value in values)


def step(median_s: float = 0.01, seed: int = 0, **info: Any) -> Entry:
    """A training step's entry."""
    extra = {
        "kind": "step",
        "world_size": 2,
        "model": "digits-cnn",
        "dataset": "digits",
        "batch_size": 32,
        "hook": "plain",
        "bucket_cap_mb": 25.0,
        "first_bucket_mb": 25.0,
        "dtype": "float32",
        "interface": "lo",
        "system": "Linux",
        "sittings": [6, 6, 6, 6, 6],
        **info,
    }
    name = f"step{sorted((k, str(v)) for k, v in extra.items())}"
    return Entry(name, "step", {}, extra, rounds(median_s, seed=seed))


def reduce(
    interface: str, median_s: float, seed: int = 0, by_rank: list[str] | None = None, spread: float = 0.05
) -> Entry:
    """An entrant of a race."""
    extra = {
        "kind": "allreduce",
        "world_size": 2,
        "bytes": 2**20,
        "chunks": 8,
        "dtype": "float32",
        "interface": interface,
        "interfaces_by_rank": by_rank or [interface, interface],
        "hosts": 2,
    }
    return Entry(f"allreduce-{interface}", "allreduce", {}, extra, rounds(median_s, seed=seed, spread=spread))


def training(world_size: int, duration_s: float, **more: Any) -> Entry:
    """A whole training's entry."""
    options: dict[str, Any] = {"model": "resnet50", "dataset": "mine", "batch_size": 64, **more}
    epochs = [
        {"epoch": e, "loss": 2.0 / (e + 1), "accuracy": 0.5, "elapsed_s": duration_s * (e + 1) / 3}
        for e in range(3)
    ]
    return scaling_entry(world_size=world_size, duration_s=duration_s, epochs=epochs, **options)


def file(name: str, *entries: Entry) -> ResultFile:
    """A result file as it was read."""
    return ResultFile(f"{name}.json", {"system": "Linux"}, entries)
