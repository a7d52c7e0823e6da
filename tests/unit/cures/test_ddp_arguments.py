"""Arguments of a constructor like DDP's, in place of what a script gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyddpdiag.cures.options import overridden


def make(
    module: str,
    device_ids: Any = None,
    bucket_cap_mb: float | None = None,
    gradient_as_bucket_view: bool = False,
    bucket_cap_mb_list: list[float] | None = None,
) -> dict[str, Any]:
    return dict(locals())


def older(module: str, bucket_cap_mb: float = 25) -> dict[str, Any]:
    return dict(locals())


def called(wanted: dict[str, Any], *arguments: Any, **options: Any) -> tuple[dict[str, Any], list[str]]:
    given, named, notes = overridden(make, arguments, options, wanted)
    return make(*given, **named), notes


def test_what_the_script_leaves_out_is_given_without_a_word() -> None:
    got, notes = called({"bucket_cap_mb": 1, "gradient_as_bucket_view": True}, "net", None)
    assert (got["bucket_cap_mb"], got["gradient_as_bucket_view"], notes) == (1, True, [])


@pytest.mark.parametrize(("arguments", "options"), [(("net", None, 4), {}), (("net",), {"bucket_cap_mb": 4})])
def test_the_option_wins_over_the_scripts_value_and_says_so(
    arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    got, notes = called({"bucket_cap_mb": 1}, *arguments, **options)
    assert got["bucket_cap_mb"] == 1 and got["module"] == "net"
    assert notes == ["the script gives bucket_cap_mb=4; --bucket-cap-mb is used instead."]


def test_the_same_value_and_other_arguments_are_not_mentioned() -> None:
    got, notes = called({"bucket_cap_mb": 4}, "net", [0], bucket_cap_mb=4, gradient_as_bucket_view=True)
    assert (got["device_ids"], got["gradient_as_bucket_view"], notes) == ([0], True, [])


def test_one_size_replaces_a_list_which_would_outdo_it() -> None:
    got, notes = called({"bucket_cap_mb": 1}, "net", bucket_cap_mb_list=[2, 4])
    assert (got["bucket_cap_mb"], got["bucket_cap_mb_list"]) == (1, None)
    assert notes == ["the script gives bucket_cap_mb_list=[2, 4]; --bucket-cap-mb is used instead."]


def test_what_this_torch_lacks_is_said_and_not_given() -> None:
    given, named, notes = overridden(older, ("net",), {}, {"bucket_cap_mb_list": [1, 2]})
    assert older(*given, **named) == {"module": "net", "bucket_cap_mb": 25}
    assert notes == [
        "--bucket-cap-mb-list is not applied: DistributedDataParallel of torch "
        f"{torch.__version__} has no bucket_cap_mb_list."
    ]


def test_a_wrong_call_is_left_to_the_constructor() -> None:
    assert overridden(make, (), {"no": 1}, {"bucket_cap_mb": 1}) == ((), {"no": 1}, [])
