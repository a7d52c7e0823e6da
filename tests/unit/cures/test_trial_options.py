"""What can be asked of a trial, and which cures a module allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pyddpdiag
from pyddpdiag.cures.trial_candidates import Module, Setting, bucket_sizes, candidates
from pyddpdiag.cures.trial_options import from_text, to_text
from pyddpdiag.errors import UsageError
from pyddpdiag.paths.options import PathRequest

MODULE = Module(PathRequest(), 2, True, 100 * 2**20, frozenset({"float32"}), 25, True, False, False)


@pytest.mark.parametrize(
    "options",
    [
        {"cures": ["magic"]},
        {"cures": ["views+magic"]},
        {"cures": ["views+views"]},
        {"cures": ["compress+compress-fp16"]},
        {"cures": ["buckets=x"]},
        {"cures": ["buckets=-1"]},
        {"cures": ["buckets=1:0"]},
        {"cures": ["views=2"]},
        {"cures": ["threads=2"]},
        {"cures": "views"},
        {"minutes": 0},
        {"minutes": float("nan")},
        {"keep": "all"},
    ],
)
def test_what_cannot_be_right_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        pyddpdiag.Trial(**options)


def test_options_reach_the_ranks() -> None:
    trial = pyddpdiag.Trial(["views+buckets=1:4", "compress"], minutes=0.5, keep="none", stop=True)
    assert from_text(to_text(trial)) == trial


def _tried(module: Module, *names: str) -> dict[str, dict[str, str]]:
    _, found = candidates(names, module)
    return {each.cure.name: dict(each.cure.options) for each in found if not each.cure.left}


def test_defaults_at_two_ranks() -> None:
    assert _tried(MODULE) == {
        "shared memory": {"--shared-memory": "auto"},
        "buckets of 110 MiB": {"--bucket-cap-mb": "110"},
        "buckets of 50 MiB": {"--bucket-cap-mb": "50"},
        "buckets of 6.3 MiB": {"--bucket-cap-mb": "6.3"},
    }


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"ranks": 4}, {"shared memory"}),
        ({"ranks": 3}, set()),  # a hook divides by 3, DDP multiplies by a third
        ({"one_host": False, "ranks": 4}, set()),
        ({"dtypes": frozenset({"bfloat16"}), "ranks": 4}, set()),
        ({"no_rebuild": "static"}, {"shared memory"}),
        ({"path": PathRequest(shared_memory="auto"), "no_rebuild": "static"}, set()),
    ],
)
def test_defaults_keep_the_bits(change: dict[str, Any], left: set[str]) -> None:
    module = replace(MODULE, **change)
    assert set(_tried(module)) == left
    _, found = candidates((), module)
    assert all(each.cure.same_bits for each in found if not each.cure.left)
    assert all("; --cures" in each.cure.left for each in found if not each.cure.same_bits)


@pytest.mark.parametrize(
    ("ranks", "keeps_layout", "same"),
    [(2, False, True), (4, False, False), (4, True, True), (3, True, False)],
)
def test_views_keep_the_bits_where_the_layout_stays(ranks: int, keeps_layout: bool, same: bool) -> None:
    _, [views] = candidates(["views"], replace(MODULE, ranks=ranks, keeps_layout=keeps_layout))
    assert views.cure.same_bits is same


def test_lossy_cures_are_named() -> None:
    assert _tried(replace(MODULE, ranks=4), "error-feedback", "buckets")["bf16 with error feedback"] == {
        "--compress": "bf16",
        "--error-feedback": "",
    }


def test_sizes_are_named_and_cures_are_on_together() -> None:
    assert _tried(MODULE, "buckets=4", "buckets=1:4:25", "shared-memory+views", "compress+buckets=0.5") == {
        "buckets of 4 MiB": {"--bucket-cap-mb": "4"},
        "buckets of 1, 4, 25 MiB": {"--bucket-cap-mb-list": "1,4,25"},
        "shared memory + views": {"--shared-memory": "auto", "--gradient-as-bucket-view": ""},
        "bf16 + buckets of 0.5 MiB": {"--compress": "bf16", "--bucket-cap-mb": "0.5"},
    }
    _, found = candidates(["shared-memory+compress+views+buckets=2:3"], MODULE)
    [all_of_it] = found
    assert all_of_it.setting == Setting(PathRequest("bf16", False, "require"), (2, 3), True)
    assert not all_of_it.cure.same_bits
    # Each size that fits the module, and views with it.
    assert len(_tried(MODULE, "views+buckets")) == 3


def test_cures_together_are_left_for_the_reason_of_one() -> None:
    _, [found] = candidates(["compress+views"], replace(MODULE, views=True))
    assert found.cure.left == "views: gradients are views of the buckets already"
    _, [found] = candidates(["compress+views"], replace(MODULE, no_rebuild="static"))
    assert found.cure.left == "static"


@pytest.mark.parametrize(
    ("parameters", "sizes"),
    [
        ((900 * 2**10,), []),  # one parameter is one bucket, whatever the cap
        ((450 * 2**10,) * 2, [0.22]),  # 0.44 MiB holds a little more than one of them: one bucket, as today
    ],
)
def test_each_bucket_layout_is_offered_once(parameters: tuple[int, ...], sizes: list[float]) -> None:
    module = replace(MODULE, gradient_bytes=sum(parameters), parameter_bytes=parameters)
    assert bucket_sizes(module) == sizes
