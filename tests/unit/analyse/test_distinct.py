"""Columns of numbers by their order: the same as NumPy's functions give, whatever the order."""

from functools import reduce

import numpy as np
import pytest

from pyddpdiag.analyse.distinct import Numbers, distinct, in_all, in_any, numbered, without

RANDOM = np.random.default_rng(7)
COLUMNS = {
    "empty": np.empty(0, np.int64),
    "one": np.array([5]),
    "in order": np.arange(40) // 3,
    "runs in order": np.concatenate([np.arange(3, 20), np.arange(10), np.arange(30)]),
    "descending": np.arange(20)[::-1] // 2,
    "random u32": RANDOM.integers(0, 50, 400).astype(np.uint32),
    "large u64": RANDOM.integers(2**63, 2**64 - 1, 50, np.uint64).repeat(3),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_each_number_comes_once_in_order(column: Numbers) -> None:
    found = distinct(column)
    np.testing.assert_array_equal(found, np.unique(column))
    assert found.dtype == column.dtype


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_values_are_numbered_in_their_order(column: Numbers) -> None:
    names, codes = numbered(column)
    expected_names, expected = np.unique(column, return_inverse=True)
    np.testing.assert_array_equal(names, expected_names)
    np.testing.assert_array_equal(codes, expected)


@pytest.mark.parametrize(
    "columns",
    [
        [np.arange(9)],
        [np.arange(9), np.arange(9), np.arange(9)],
        [np.arange(9), np.arange(4, 30), np.arange(0, 20, 2)],
        [np.arange(9), np.arange(20, 30)],
        [np.arange(9), np.empty(0, np.int64)],
    ],
    ids=["one", "all the same", "overlapping", "apart", "one of them empty"],
)
def test_columns_of_several_ranks(columns: list[Numbers]) -> None:
    np.testing.assert_array_equal(in_any(columns), reduce(np.union1d, columns))
    np.testing.assert_array_equal(in_all(columns), reduce(np.intersect1d, columns))


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("other", COLUMNS.values(), ids=COLUMNS)
def test_numbers_of_one_column_that_another_lacks(column: Numbers, other: Numbers) -> None:
    other = other.astype(column.dtype)
    np.testing.assert_array_equal(without(column, other), np.setdiff1d(column, other))
