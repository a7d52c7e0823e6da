"""Rows of embeddings that no batch can use."""

import pytest

from pyddpdiag.analyse.tables import unused_rows
from pyddpdiag.model.sidecar import Module, Sidecar
from pyddpdiag.model.training import Training

NET = {
    "user.weight": (9000, 32),
    "item.weight": (8000, 32),
    "tower.weight": (4000, 32),
    "tower.bias": (4000,),
}


def found(
    values: int, shapes: dict[str, tuple[int, ...]] = NET, name: str = "Net"
) -> tuple[dict[str, int], float] | None:
    """The tables and the share of zeros, where a batch has so many values."""
    module = Module(
        name=name,
        parameters=tuple(shapes),
        shapes=tuple(shapes.values()),
        dtypes=("float32",) * len(shapes),
    )
    training = Training(batch_values={0: {1: values // 2, 2: values}})
    one = unused_rows({0: module}, {0: Sidecar(training=training)})
    return None if one is None else (dict(one.rows), one.share)


def test_most_of_the_gradients_are_zeros() -> None:
    tables, share = found(1000) or ({}, 0.0)
    assert tables == {"user.weight": 9000, "item.weight": 8000}
    # 8,000 and 7,000 rows of 32 of the 17,000, and 132,000 values that are no table's.
    assert share == pytest.approx(15_000 * 32 / (17_000 * 32 + 132_000))


@pytest.mark.parametrize("values", [0, 4000, 100_000])
def test_without_batches_or_with_large_ones_nothing_is_said(values: int) -> None:
    assert found(values) is None


def test_what_takes_no_sparse_gradients_is_not_told_to() -> None:
    assert found(1000, name="GradientReducer") is None


def test_a_layer_with_a_bias_computes_with_all_rows() -> None:
    assert found(100, {"head.weight": (9000, 32), "head.bias": (9000,)}) is None
