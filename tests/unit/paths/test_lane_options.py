"""Interfaces that carry parts of a bucket at once: what a user may ask for."""

from typing import Any

import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.paths.lanes import Lane, parse
from pyddpdiag.paths.options import path_request


def test_names_and_rates_are_read() -> None:
    assert parse(["eth0", " eth1"]) == (Lane("eth0"), Lane("eth1"))
    seen = parse(["eth0=100", "eth1=2500.5", "eth1=1"])
    assert seen == (Lane("eth0", 100), Lane("eth1", 2500.5), Lane("eth1", 1))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("eth0,eth1", "a list of interface names"),
        (["eth0"], "1 of 2 to 64"),
        (["eth0"] * 65, "65 of 2 to 64"),
        (["eth0", ""], "empty interface name"),
        (["eth0", "=5"], "empty interface name"),
        (["eth0", "eth1=5"], "some interfaces only"),
        (["eth0=1", "eth1=fast"], "'fast' is no rate for eth1"),
        (["eth0=1", "eth1=0"], "'0' is no rate"),
        (["eth0=1", "eth1=-3"], "'-3' is no rate"),
        (["eth0=1", "eth1=nan"], "'nan' is no rate"),
        (["eth0=1", "eth1=inf"], "'inf' is no rate"),
        ([1, 2], "a list of interface names"),
    ],
)
def test_what_cannot_be_is_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match="lanes") as caught:
        path_request(lanes=given)
    assert words in str(caught.value)


@pytest.mark.parametrize("other", [{"compress": "bf16"}, {"shared_memory": "auto"}])
def test_lanes_are_not_combined(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"cannot be combined with {next(iter(other))}"):
        path_request(lanes=["eth0", "eth1"], **other)


def test_a_request_says_what_attach_gets() -> None:
    request = path_request(lanes=["eth0", "eth1"])
    assert request.needs_setup and request.arguments["lanes"] == ("eth0", "eth1")
    assert path_request(**request.arguments) == request
    assert "lanes" not in path_request("bf16").arguments
