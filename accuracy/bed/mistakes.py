"""Mistakes in a training as people write it, by what is true of the run then: drawn for `bed.scripts`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bed.jobs import Job, half_models
from bed.truth import Answer, Drawn, Truth

Draw = Callable[[random.Random, Job], Drawn]


def scripted(rng: random.Random, job: Job, **changes: Any) -> Job:
    """The job as a script, with an optimizer of torch."""
    given: dict[str, Any] = {
        "batch": 24,
        "epochs": 3,
        "epoch_steps": 36,
        "optimizer": rng.choice(("sgd", "adamw")),
    }
    return replace(job, hook="native", script=True, **{**given, **changes})


def _mistake(name: str, kind: str, *others: str, **changes: Any) -> Draw:
    def draw(rng: random.Random, job: Job) -> Drawn:
        answers = tuple(Answer(one) for one in (kind, *others))
        return Drawn(scripted(rng, job, **changes), {"name": name, "rank": None}, Truth(answers))

    return draw


def _of_one(name: str, kind: str, *, first: bool = False, **numbers: tuple[float, ...]) -> Draw:
    def draw(rng: random.Random, job: Job) -> Drawn:
        # Among two, nobody can tell which one is wrong.
        job = scripted(rng, job, ranks=rng.choice((3, 3, 4)) if not numbers else job.ranks)
        rank = 0 if first else rng.randrange(job.ranks)
        fault = {"name": name, "rank": rank, **{key: rng.choice(some) for key, some in numbers.items()}}
        return Drawn(job, fault, Truth((Answer(kind),), rank))

    return draw


def _no_no_sync(rng: random.Random, job: Job) -> Drawn:
    name = rng.choice(("no no_sync", "no_sync around backward"))
    job = scripted(rng, job, accumulate=rng.choice((2, 4)), batch=12)
    return Drawn(job, {"name": name, "rank": None}, Truth((Answer("missing_no_sync"),)))


def _unreduced(rng: random.Random, job: Job) -> Drawn:
    name = rng.choice(("unfrozen late", "always no_sync", "past the wrapper"))
    return Drawn(scripted(rng, job), {"name": name, "rank": None}, Truth((Answer("unreduced_parameters"),)))


def _buffers(rng: random.Random, job: Job) -> Drawn:
    job = scripted(rng, job, model=half_models(job.model)["batchnorm"], batch=8)
    return Drawn(job, {"name": "buffers", "rank": None}, Truth((Answer("buffer_broadcast"),)))


def _search(rng: random.Random, job: Job) -> Drawn:
    # One bucket or two: beside many, a collective more makes no tenth of a step.
    job = scripted(rng, job, model=half_models(job.model)["layers"], batch=2, cap_mb=4.0)
    return Drawn(job, {"name": "needless search", "rank": None}, Truth((Answer("needless_unused_search"),)))


def _loss(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "loss of each step", "rank": None, "calls": rng.choice((1, 2, 4))}
    return Drawn(scripted(rng, job, batch=6), fault, Truth((Answer("collective_per_step"),)))


def _in_evaluation(rng: random.Random, job: Job) -> Drawn:
    job = scripted(rng, job, model=half_models(job.model)["batchnorm"])
    return Drawn(job, {"name": "left in eval", "rank": None}, Truth((Answer("left_in_eval"),)))


def _by_hand(rng: random.Random, job: Job) -> Drawn:
    return Drawn(
        scripted(rng, job, batch=6), {"name": "by hand", "rank": None}, Truth((Answer("averaged_twice"),))
    )


def _outputs(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "outputs", "rank": None, "values": rng.choice((250_000, 500_000))}
    answers = Answer("other_collectives"), Answer("collective_per_step")
    return Drawn(scripted(rng, job, batch=6), fault, Truth(answers))


def _garbage(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "garbage", "rank": None, "objects": rng.choice((20_000, 50_000))}
    answers = Answer("collector_pauses"), Answer("hot_line")
    return Drawn(scripted(rng, job), fault, Truth(answers))


def _workers(rng: random.Random, job: Job) -> Drawn:
    fault = {"name": "workers", "rank": None, "seconds": rng.choice((0.6, 1.2))}
    return Drawn(scripted(rng, job), fault, Truth((Answer("pause"), Answer("data_wait"))))


MISTAKES: tuple[tuple[str, Draw, bool], ...] = (
    ("same data", _mistake("same data", "same_data"), True),
    ("another learning rate", _of_one("another rate", "different_weights"), True),
    ("weights changed on one rank", _of_one("changed weights", "different_weights"), True),
    ("parameters that nobody averages", _unreduced, True),
    ("rounds each sum by chance", _mistake("rounding", "different_weights", "different_sums"), True),
    ("no no_sync", _no_no_sync, False),
    ("no set_epoch", _mistake("no set_epoch", "epoch_not_set"), True),
    ("search for unused parameters", _search, False),
    ("buffers at each step", _buffers, False),
    ("loss of each step", _loss, False),
    (
        "rank 0 alone between epochs",
        _of_one("alone between epochs", "rank_alone", first=True, share=(0.5, 1.0)),
        False,
    ),
    ("slow start of one rank", _of_one("slow start", "rank_alone", seconds=(3.0, 6.0)), False),
    ("slow end", _of_one("slow end", "rank_alone", first=True, share=(0.5, 1.0)), False),
    ("workers of each epoch", _workers, False),
    ("evaluation in full", _mistake("full evaluation", "full_evaluation"), False),
    ("left in evaluation mode", _in_evaluation, True),
    ("the same checkpoint", _mistake("checkpoint", "same_checkpoint"), True),
    ("a schedule that ends halfway", _mistake("schedule", "schedule_ended"), True),
    ("another optimizer's parameters", _mistake("other parameters", "weights_unchanged"), True),
    ("gradients averaged by hand, too", _by_hand, False),
    ("outputs of each step", _outputs, False),
    ("garbage of each step", _garbage, False),
    ("anomaly detection", _mistake("anomaly", "costly_settings"), False),
)
"""Name, how it is drawn, and whether it counts whatever it costs, because it is wrong and not only slow."""
