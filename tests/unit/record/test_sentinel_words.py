"""What the sentinel makes of fingerprints, without processes."""

from typing import Any

import numpy as np
import pytest

from pyddpdiag.errors import UsageError
from pyddpdiag.record.sentinel import FINGERPRINT, NO_PARAMETER, Fingerprints, compare, require_mode

NAMES = ["first.weight", "second.weight"]


def one_pass(buckets: int = 3, **changes: Any) -> Fingerprints:
    """A healthy rank's fingerprints; `changes` are put into the middle bucket."""
    marks = np.zeros(buckets, FINGERPRINT)
    marks["sequence"] = 100 + np.arange(buckets)
    marks["collectives"] = 200 + np.arange(buckets)
    marks["identity"] = 7 + np.arange(buckets)
    marks["bytes"] = 4096
    marks["checksum"] = 1000 + np.arange(buckets)
    marks["bucket"] = np.arange(buckets)
    marks["step"] = 12
    marks["parameter"] = NO_PARAMETER
    for field, value in changes.items():
        marks[buckets // 2][field] = value
    return marks


def test_a_healthy_pass_has_nothing_to_tell() -> None:
    assert compare({rank: one_pass() for rank in range(4)}, NAMES) == []


def test_a_non_finite_value_names_rank_parameter_and_step() -> None:
    bad = one_pass(non_finite=3, first_non_finite=17, parameter=1, checksum=5)
    (line,) = compare({0: one_pass(), 1: bad}, NAMES)
    assert line == "rank 1 put 3 non-finite values into bucket 1 of step 12, the first in 'second.weight'"


def test_different_sums_name_the_odd_rank() -> None:
    (line,) = compare({0: one_pass(), 1: one_pass(checksum=0xBAD), 2: one_pass()}, NAMES)
    assert "bucket 1 of step 12" in line
    assert "on ranks 0, 2; 0000000000000bad on rank 1" in line
    assert "another collective" in line


def test_different_weights_are_told_where_all_else_agrees() -> None:
    (line,) = compare({0: one_pass(weights=5), 1: one_pass(weights=6), 2: one_pass(weights=5)}, NAMES)
    assert line.startswith("bucket 1 of step 12: the ranks hold different weights") and "6 on rank 1" in line
    assert compare({0: one_pass(weights=5), 1: one_pass(weights=0)}, NAMES) == []
    (line,) = compare({0: one_pass(weights=5), 1: one_pass(weights=6, checksum=0xBAD)}, NAMES)
    assert "different sums" in line


def test_different_sums_after_a_skipped_call_tell_who_skipped() -> None:
    (line,) = compare({0: one_pass(), 1: one_pass(checksum=0xBAD, collectives=200)}, NAMES)
    assert "201 on rank 0; 200 on rank 1" in line and "one skipped a call" in line


def test_different_counts_alone_are_no_finding() -> None:
    """One rank may send and receive more than another."""
    assert compare({0: one_pass(), 1: one_pass(collectives=999)}, NAMES) == []


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("step", 13, "step differs: 12 on rank 0; 13 on rank 1"),
        ("sequence", 99, "number of the all-reduce"),
        ("identity", 1, "parameters of the bucket"),
        ("bytes", 8, "bytes differs"),
        ("type", 3, "dtype or operation"),
    ],
)
def test_different_all_reduces_are_named(field: str, value: int, word: str) -> None:
    (line,) = compare({0: one_pass(), 1: one_pass(**{field: value})}, NAMES)
    assert word in line


def test_a_missing_bucket_is_reported() -> None:
    lines = compare({0: one_pass(3), 1: one_pass(2)}, NAMES)
    assert lines[0] == "the ranks reduced different numbers of buckets: 3 on rank 0; 2 on rank 1"


def test_a_paused_rank_says_nothing_and_is_not_blamed() -> None:
    assert compare({0: one_pass(), 1: one_pass(0), 2: one_pass()}, NAMES) == []
    assert compare({0: one_pass(0), 1: one_pass(0)}, NAMES) == []


def test_results_that_were_not_checked_are_not_compared() -> None:
    assert compare({0: one_pass(checksum=0), 1: one_pass(checksum=0)}, NAMES) == []


def test_every_rank_is_told_the_same() -> None:
    theirs = {0: one_pass(checksum=1), 1: one_pass(non_finite=1), 2: one_pass(bytes=1)}
    assert compare(theirs, NAMES) == compare(dict(reversed(theirs.items())), NAMES) != []


def test_an_unknown_parameter_does_not_break_the_message() -> None:
    (line,) = compare({0: one_pass(non_finite=1)}, NAMES)
    assert "a parameter" in line


def test_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="'off', 'warn', 'raise', not 'loud'"):
        require_mode("loud")
