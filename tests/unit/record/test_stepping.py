"""One optimizer as it steps: its settings and state, its learning rate, and what schedules that."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
)

from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.training import Stepped, Training
from pyddpdiag.record.stepping import Stepping


def _parameters(count: int = 2) -> list[torch.Tensor]:
    return [torch.ones(3, requires_grad=True) for _ in range(count)]


def _seen(stepping: Stepping) -> Stepped:
    (one,) = stepping.stepped()
    return one


@pytest.mark.parametrize(("for_each", "rate"), [(1, 1.0), (3, 3.0)])
def test_a_schedule_that_ends(for_each: int, rate: float) -> None:
    optimizer = torch.optim.SGD(_parameters(), lr=0.5)
    schedule = LambdaLR(optimizer, lambda step: max(0.0, 1 - step / 12))
    stepping = Stepping(optimizer)
    for _ in range(20):
        stepping.begins(optimizer)
        stepping.look(optimizer, [])
        optimizer.step()
        for _ in range(for_each):
            schedule.step()
    one = _seen(stepping)
    facts = (one.steps, one.zero_since, one.scheduler, one.scheduler_rate)
    assert facts == (20, 12 // for_each, "LambdaLR", rate)
    assert one.module is None and one.idle == one.looks == 20
    seen = Training((one,))
    assert from_json(Training, to_json(seen)) == seen


def _of_transformers(step: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("scheduled", "planned"),
    [
        (lambda one: OneCycleLR(one, 0.1, total_steps=40), 40),
        (lambda one: CosineAnnealingLR(one, 12, eta_min=0.01), 12),
        (lambda one: PolynomialLR(one, 30), 30),
        (lambda one: SequentialLR(one, [LinearLR(one), CosineAnnealingLR(one, 8)], [4]), 12),
        (lambda one: LambdaLR(one, partial(_of_transformers, num_warmup_steps=2, num_training_steps=24)), 24),
        (lambda one: LinearLR(one, total_iters=12), None),  # a warm-up: what comes after it is meant
    ],
)
def test_how_far_a_schedule_was_of_what_it_was_made_for(
    scheduled: Callable[[torch.optim.Optimizer], LRScheduler], planned: int | None
) -> None:
    optimizer = torch.optim.SGD(_parameters(), lr=0.5)
    scheduler, stepping = scheduled(optimizer), Stepping(optimizer)
    for _ in range(16):
        stepping.begins(optimizer)
        optimizer.step()
        for _ in range(2):
            scheduler.step()
    one = _seen(stepping)
    ends = planned is not None and planned <= 30
    assert (one.scheduler_rate, one.planned) == (2.0, planned)
    assert (one.planned_since, one.scheduled) == ((planned // 2, planned) if ends and planned else (None, 30))


def test_what_rests_is_what_nothing_is_kept_of() -> None:
    """A step that is only counted leaves the same behind as one that is looked at, whatever the rate does meanwhile."""
    optimizers = [torch.optim.SGD(_parameters(), lr=0.5) for _ in range(2)]
    schedules = [LambdaLR(one, lambda step: float(not 300 <= step < 310)) for one in optimizers]
    counted, looked_at = (Stepping(one) for one in optimizers)
    rested = 0
    for _ in range(700):
        for one in optimizers:
            one.step()
        if counted.rests(optimizers[0]):
            rested += 1
        else:
            counted.begins(optimizers[0])
        looked_at.begins(optimizers[1])
        assert not (counted.rested(optimizers[0]) and looked_at.closely) and counted.due is looked_at.due
        assert _seen(counted) == _seen(looked_at)
        for schedule in schedules:
            schedule.step()
    assert rested > 400


def test_a_rate_that_rises_again_has_not_ended() -> None:
    optimizer = torch.optim.SGD(_parameters(), lr=0.5)
    stepping = Stepping(optimizer)
    for rate in (0.5, 0.0, 0.0, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        stepping.begins(optimizer)
    assert _seen(stepping).zero_since is None


@pytest.mark.parametrize("rate", [torch.tensor(0.0), None, "auto"])
def test_a_rate_that_cannot_be_read_is_not_0(rate: object) -> None:
    optimizer = torch.optim.SGD(_parameters(), lr=0.5)
    optimizer.param_groups[0]["lr"] = rate
    stepping = Stepping(optimizer)
    stepping.begins(optimizer)
    assert _seen(stepping).zero_since is None


def test_a_state_that_was_loaded_is_a_setting() -> None:
    trained = _parameters()
    adam = torch.optim.Adam(trained)
    settings = []
    for _ in range(3):
        stepping = Stepping(adam)
        stepping.begins(adam)
        settings.append(_seen(stepping).settings[1].rpartition("state=")[2])
        for one in trained:
            one.grad = torch.ones(3)
        adam.step()
    assert settings == ["none", "of step 1", "of step 2"]
