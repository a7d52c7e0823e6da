"""A trial of cures with its defaults: the training's result is that of the untouched script, to the last bit."""

from pathlib import Path
from typing import Any

import pytest
from support.ranks import run_ranks
from support.trial_job import short_blocks, train

import pyddpdiag
from pyddpdiag.model.tried import TODAY, tried_from_json

PASSES = 110
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unused": {"unused": True, "accumulate": 3},
    "unused views": {"unused": True, "views": True, "accumulate": 2},
}
# `views` is tried only by its name, and buckets change bits from 3 ranks on: with 4 ranks, shared memory alone.
CURES = {2: ["shared-memory", "views", "buckets"], 4: []}
MANY = ("plain", "unused views")


def _job(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    short_blocks()
    seen = {}
    passes = PASSES if ranks == 2 else PASSES // 2
    for kind in KINDS if ranks == 2 else MANY:
        untouched, _ = train(rank, None, passes, **KINDS[kind])
        trial = pyddpdiag.Trial(CURES[ranks], minutes=5)
        tried, noted = train(rank, Path(folder, kind), passes, trial, **KINDS[kind])
        seen[kind] = (untouched, tried, noted)
    return seen


@pytest.mark.parametrize("ranks", [2, 4])
def test_weights_keep_their_bits(tmp_path: Path, ranks: int) -> None:
    answers = run_ranks(_job, ranks, tmp_path, str(tmp_path / "run"), timeout_s=400)
    for kind in answers[0]:
        untouched, tried, noted = zip(*(each[kind] for each in answers), strict=True)
        assert set(tried) == set(untouched) and len(set(untouched)) == 1, kind
        # All ranks have decided alike, and have changed settings.
        assert all(each == noted[0] for each in noted), kind
        trial = tried_from_json(noted[0])
        assert trial is not None and trial.today.blocks
        on = {each.name for each in trial.cures if each.blocks}
        assert "shared memory" in on, kind
        if ranks == 2:
            assert ("views" in on) is not kind.endswith("views"), kind
            assert any(name.startswith("buckets of") for name in on), kind
        else:
            assert not any(name.startswith("buckets") for name in on), kind
        assert trial.now == TODAY or trial.now in {each.name for each in trial.cures}


NAMED = ("buckets=0.0005:0.001:0.01", "shared-memory+views", "views+buckets=0.002")


def _named(rank: int, _: int, folder: str) -> tuple[str, str, Any]:
    short_blocks()
    untouched, _ = train(rank, None, PASSES)
    tried, noted = train(rank, Path(folder), PASSES, pyddpdiag.Trial(NAMED, minutes=5))
    return untouched, tried, noted


def test_a_size_of_each_bucket_and_cures_together_keep_the_bits(tmp_path: Path) -> None:
    for untouched, tried, noted in run_ranks(_named, 2, tmp_path, str(tmp_path / "run"), timeout_s=400):
        assert tried == untouched
        trial = tried_from_json(noted)
        assert trial is not None
        assert {each.name: dict(each.options) for each in trial.cures} == {
            "buckets of 0.0005, 0.001, 0.01 MiB": {"--bucket-cap-mb-list": "0.0005,0.001,0.01"},
            "shared memory + views": {"--shared-memory": "auto", "--gradient-as-bucket-view": ""},
            "buckets of 0.002 MiB + views": {"--bucket-cap-mb": "0.002", "--gradient-as-bucket-view": ""},
        }
        assert all(each.blocks and each.same_bits for each in trial.cures), trial
