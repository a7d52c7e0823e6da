"""Which weights count as spoiled by a cure."""

from __future__ import annotations

import torch

from pyddpdiag.cures.trial_agreement import Weights
from pyddpdiag.model.tried import TODAY

NAMES = ("a", "b")


def _weights() -> Weights:
    return Weights({name: torch.ones(2) for name in NAMES})


def test_marks_tell_single_bits() -> None:
    ones, others = torch.ones(3), torch.ones(3)
    others[1] = torch.nextafter(others[1], torch.tensor(2.0))
    assert (
        Weights({"a": ones}).marks()
        == Weights({"a": torch.ones(3)}).marks()
        != Weights({"a": others}).marks()
    )


def test_what_differed_before_is_nobodys_fault() -> None:
    weights = _weights()
    assert not weights.judge([["1", "1"], ["2", "1"]], TODAY)
    assert not weights.judge([["3", "2"], ["4", "2"]], "buckets")


def test_what_comes_apart_with_todays_setting_is_the_scripts() -> None:
    weights = _weights()
    weights.judge([["1", "1"]] * 2, TODAY)
    assert not weights.judge([["1", "1"], ["2", "1"]], TODAY)
    assert not weights.judge([["1", "1"], ["3", "1"]], "buckets")


def test_what_comes_apart_with_a_cure_is_named() -> None:
    weights = _weights()
    weights.judge([["1", "1"]] * 3, TODAY)
    assert weights.judge([["2", "2"], ["2", "2"], ["2", "3"]], "buckets") == "'b' is different on rank 2"
    two = _weights()
    two.judge([["1", "1"]] * 2, TODAY)
    assert two.judge([["1", "2"], ["1", "3"]], "views") == "'b' is different on ranks 0, 1"
