"""The interval of a trial's ratio, and what is read back from a sidecar."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyddpdiag.model.trial import TODAY, Block, Trial, TriedCure, trial_from_json, trial_to_json
from pyddpdiag.model.trial_statistics import FEWEST_PAIRS, pseudo_median, with_result

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_too_few_pairs_have_no_interval() -> None:
    assert pseudo_median([0.1] * (FEWEST_PAIRS - 1)) == (pytest.approx(0.1), None, None)


@pytest.mark.parametrize("count", [6, 8, 12])
def test_the_interval_holds_the_middle_in_95_of_100_cases(count: int) -> None:
    draw, held = random.Random(count), 0
    for _ in range(2000):
        _, low, high = pseudo_median([draw.gauss(0.0, 1.0) for _ in range(count)])
        assert low is not None and high is not None
        held += low <= 0 <= high
    # The exact levels are 96.9%, 96.1% and 95.8%; three standard errors are 1.5%.
    assert 0.94 < held / 2000 < 0.985


def _trial() -> Trial:
    today = TriedCure(TODAY, blocks=tuple(Block(at, at, at, passes=3, step_s=0.1) for at in range(0, 16, 2)))
    cure = TriedCure(
        "shared memory",
        {"--shared-memory": "auto"},
        blocks=tuple(Block(at, at, at, 1, 2, 3, 0.15 + at / 1000, 0.01) for at in range(1, 15, 2)),
        left="slow",
    )
    return Trial("running", 0, today, (with_result(cure, today),), on="shared memory", limit_s=60)


def test_a_trial_survives_its_way_through_a_file() -> None:
    trial = _trial()
    result = trial.cures[0].result
    assert result is not None and result.saved_s < 0
    assert trial_from_json(json.loads(json.dumps(trial_to_json(trial)))) == trial


@given(JSON)
def test_whatever_stands_there_is_no_error(raw: Any) -> None:
    trial_from_json(raw)
    full = trial_to_json(_trial())
    for name in full:
        trial_from_json({**full, name: raw})
    trial_from_json({**full, "cures": [{**full["cures"][0], "result": raw, "blocks": [raw]}]})
    result = {"step_s": 1, "today_s": 1, "ratio": 1, "saved_s": raw}
    trial_from_json({**full, "cures": [{**full["cures"][0], "result": result}]})
