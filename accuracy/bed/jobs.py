"""What is trained, and the two halves of seeds and models: one to develop with, one for the final measurement only."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

Half = Literal["open", "held out"]

MODELS: dict[Half, tuple[str, ...]] = {"open": ("mlp", "conv", "thin"), "held out": ("transformer", "deep")}
"""Networks of `bed.models`. Bars are derived and checks developed with the open half only."""


MANY_LAYERS = {"mlp": "thin", "conv": "thin", "thin": "thin", "transformer": "deep", "deep": "deep"}
"""For each network one of the same half with many layers of one size, where the size of buckets makes a difference."""


def half_of(seed: int) -> Half:
    """Even seeds are open, odd ones held out."""
    return "held out" if seed % 2 else "open"


@dataclass(frozen=True)
class Job:
    """A training.

    Attributes:
        model: a name in `bed.models`.
        ranks: processes; each computes with `threads` threads.
        batch: samples per rank and step.
        cap_mb: DDP's bucket size in MiB.
        hook: label of an `Averaging` that records.
        accumulate: backward passes per synchronised step.
        evaluate_every: steps between evaluations on all ranks, 0: none; each takes `evaluate_steps` steps' time.
        loader_share: time that the loader takes, as a share of the step.
        unused: the model has layers that some steps do not use.
        pin: rank i runs on core i modulo the number of cores.
        script: it is a training as people write it, of `bed.scripts`, and none of `bed.rank`; the rest is for it.
        command: the script is started by `pyddpdiag run --nproc` with ranks of its own, as a user starts it.
        optimizer: `sgd`, `sgd plain` (without momentum, for gradients that are sparse) or `adamw`.
        compiled: by torch.compile.
        epochs, epoch_steps: how many, and steps in each.
    """

    model: str
    ranks: int = 2
    batch: int = 96
    cap_mb: float = 1.0
    threads: int = 1
    hook: str = "native"
    accumulate: int = 1
    evaluate_every: int = 0
    evaluate_steps: float = 0.0
    loader_share: float = 0.0
    unused: bool = False
    pin: bool = False
    script: bool = False
    command: bool = False
    optimizer: str = ""
    compiled: bool = False
    epochs: int = 0
    epoch_steps: int = 0


def half_models(model: str) -> dict[str, str]:
    """Further networks of the half that a network is of, by sort."""
    wide = model in MODELS["held out"] or model.endswith(" wide")
    sorts = {
        name: f"{name} wide" if wide else name
        for name in ("batchnorm", "lstm", "embedding", "sparse", "front")
    }
    return {**sorts, "layers": MANY_LAYERS["deep" if wide else "thin"]}


def draw(random_: random.Random, half: Half) -> Job:
    """An ordinary training with a model of that half."""
    return Job(
        model=random_.choice(MODELS[half]),
        ranks=random_.choice((2, 2, 3, 4)),
        batch=random_.choice((64, 96, 160)),
        cap_mb=random_.choice((0.5, 1.0, 4.0)),
        hook=random_.choice(("native", "native", "timed")),
    )


HEALTHY = (
    "plain",
    "large batch",
    "more ranks than cores",
    "loader",
    "accumulation",
    "evaluation",
    "bf16",
    "unused parameters",
    "two threads",
    "three ranks",
    "script",
    "script, no_sync",
    "script, AdamW",
    "script, compiled",
    "script, 30 steps",
    "batch norm",
    "LSTM",
    "embedding",
    "sparse embedding",
    "script, pyddpdiag run",
)
"""Kinds of healthy training, in turn."""

SCRIPTED = frozenset(
    {
        "batch norm",
        "LSTM",
        "embedding",
        "sparse embedding",
        *(kind for kind in HEALTHY if kind[:6] == "script"),
    }
)
"""Those that are trainings as people write them, watched as `pyddpdiag run` does."""


def draw_healthy(random_: random.Random, half: Half, kind: str) -> Job:
    """A healthy training of one of the kinds in `HEALTHY`."""
    job = draw(random_, half)
    changes: dict[str, dict[str, object]] = {
        "plain": {},
        "large batch": {"batch": 320, "ranks": 2},
        "more ranks than cores": {"ranks": 4},
        "loader": {"loader_share": random_.uniform(0.03, 0.1)},
        "accumulation": {"accumulate": random_.choice((2, 4)), "batch": 48},
        # Rare and short: a twentieth of the time, below what is worth a finding.
        "evaluation": {"evaluate_every": 40, "evaluate_steps": 2.0},
        "bf16": {"hook": "native+bf16"},
        "unused parameters": {"unused": True},
        "two threads": {"threads": 2, "ranks": 2},
        "three ranks": {"ranks": 3},
        "script": {},
        "script, no_sync": {"accumulate": random_.choice((2, 4))},
        "script, AdamW": {"optimizer": "adamw"},
        # torch.compile refuses DDP with buckets below its first one, of 1 MiB.
        "script, compiled": {"compiled": True, "ranks": 2, "cap_mb": max(1.0, job.cap_mb)},
        "script, 30 steps": {"epochs": 3, "epoch_steps": 10},
        "batch norm": {"model": half_models(job.model)["batchnorm"]},
        "LSTM": {"model": half_models(job.model)["lstm"]},
        "embedding": {"model": half_models(job.model)["embedding"]},
        "sparse embedding": {"model": half_models(job.model)["sparse"], "optimizer": "sgd plain"},
        "script, pyddpdiag run": {"command": True},
    }
    if kind in SCRIPTED:
        plain = {"hook": "native", "script": True, "optimizer": "sgd", "epochs": 3, "epoch_steps": 36}
        return replace(job, **{**plain, **changes[kind]})  # type: ignore[arg-type]
    return replace(job, **changes[kind])  # type: ignore[arg-type]
