"""One optimizer as it steps: its settings and state, its learning rate, and what schedules that."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

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
    assert (one.steps, one.zero_since, one.scheduler, one.scheduler_rate) == (
        20,
        12 // for_each,
        "LambdaLR",
        rate,
    )
    assert one.module is None and one.idle == one.looks == 20
    seen = Training((one,))
    assert from_json(Training, to_json(seen)) == seen


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
