"""Which of the ranks' own reductions differ, by what their sidecars keep of them."""

from __future__ import annotations

from collections import Counter

from pyddpdiag.analyse.calls.reductions import DifferentReductions, different_reductions
from pyddpdiag.model.fields import from_json, to_json
from pyddpdiag.model.reductions import CALLS, LETTERS, ReductionKind, Reductions
from pyddpdiag.model.sidecar import Sidecar
from pyddpdiag.model.training import Training

OPS = ("SUM", "MAX", "MIN")


def calls(letters: str, dtype: str = "float32") -> Reductions:
    """A rank's calls, two in each step: a letter is the place of one in `OPS`."""
    counts = Counter(letters)
    steps = tuple(number // 2 for number in range(len(letters)))
    return Reductions(
        "0",
        "all_reduce",
        len(letters),
        tuple(
            ReductionKind(op, dtype, f"train.py:{place}", counts[LETTERS[place]])
            for place, op in enumerate(OPS)
        ),
        letters[:CALLS],
        letters[-CALLS:],
        steps[:CALLS],
        steps[-CALLS:],
    )


def different(*ranks: Reductions, closed: bool = True) -> DifferentReductions | None:
    made = {
        rank: Sidecar(closed=closed, training=Training(reductions=(one,))) for rank, one in enumerate(ranks)
    }
    found = different_reductions(made)
    assert len(found) < 2
    return found[0] if found else None


def test_the_same_calls_are_no_difference() -> None:
    assert different(calls("abab"), calls("abab"), calls("abab")) is None
    assert different(calls("ab" * 500), calls("ab" * 500)) is None
    assert different(calls("abab")) is None


def test_the_first_call_that_differs_is_found_with_its_step() -> None:
    for before, after in ((4, 10), (10, 300), (300, 10)):
        one = different(calls("a" * before + "b" + "a" * after), calls("a" * (before + 1 + after)))
        assert one is not None and (one.field, one.whole) == ("op", True)
        assert {rank: kind.op for rank, kind in one.kinds.items()} == {0: "MAX", 1: "SUM"}
        assert (one.call, one.step) == (before, before // 2)


def test_an_order_that_differs_is_a_difference() -> None:
    one = different(calls("ab" * 20), calls("ba" * 20))
    assert one is not None and one.call == 0


def test_a_call_that_is_not_kept_is_known_by_numbers_only() -> None:
    one = different(calls("a" * 200 + "c" + "a" * 200), calls("a" * 401))
    assert one is not None and (one.call, one.step) == (None, None)
    assert {rank: kind.op for rank, kind in one.kinds.items()} == {0: "MIN", 1: "SUM"}


def test_the_first_of_the_last_calls_may_not_be_the_first_that_differs() -> None:
    one = different(calls("a" * 150 + "b" * 250), calls("a" * 400))
    assert one is not None and one.call is None


def test_types_of_elements_are_compared_too() -> None:
    one = different(calls("aa"), calls("aa", "int32"))
    assert one is not None and one.field == "dtype"


def test_ranks_that_ended_with_more_calls_than_others_are_not_compared() -> None:
    """DDP's Join makes a rank that has no more batches call what the others call natively."""
    assert different(calls("aab"), calls("ab")) is None
    one = different(calls("aab"), calls("ab"), closed=False)
    assert one is not None and (one.call, one.whole) == (1, False)
    assert different(calls("aab"), calls("aa"), closed=False) is None


def test_what_a_sidecar_keeps_is_read_again() -> None:
    kept = calls("abcabc" * 100)
    assert from_json(Reductions, to_json(kept)) == kept
