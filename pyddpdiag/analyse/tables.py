"""Embeddings of which a batch uses few rows: the rest of their gradients, which the ranks exchange, are zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from pyddpdiag.analyse.assignment import ITEM_BYTES, NO_SPARSE
from pyddpdiag.analyse.bounds import MOST, SEVERAL, TWICE
from pyddpdiag.model.sidecar import Module, Sidecar
from pyddpdiag.model.words import listed, percent


@dataclass(frozen=True)
class UnusedRows:
    """Parameters and their rows, `values` of the largest batch, and the least share of zeros in all gradients."""

    rows: Mapping[str, int]
    values: int
    share: float

    @property
    def words(self) -> str:
        """In a sentence."""
        rows = listed((f"'{name}' has {rows:,} rows" for name, rows in self.rows.items()), SEVERAL)
        return (
            f"{rows}, and a batch has {self.values:,} values: of an embedding it looks up no more rows, and at least "
            f"{percent(self.share)} of all gradients are zeros then."
        )


def unused_rows(modules: Mapping[int, Module], sidecars: Mapping[int, Sidecar]) -> UnusedRows | None:
    """Of the module where most of the gradients are such rows; None: there is none, or its batches are not known.

    A value of a batch looks up one row of a table at most.
    """
    for index, module in modules.items():
        given = [
            most for one in sidecars.values() for most in one.training.batch_values.get(index, {}).values()
        ]
        values = max(given, default=0)
        if (
            not values
            or module.name == NO_SPARSE
            or not len(module.parameters) == len(module.shapes) == len(module.dtypes)
        ):
            continue
        sizes = {
            name: ITEM_BYTES.get(dtype, 0) * prod(shape)
            for name, shape, dtype in zip(module.parameters, module.shapes, module.dtypes, strict=True)
        }
        tables = {
            name: shape[0]
            for name, shape in zip(module.parameters, module.shapes, strict=True)
            # A layer with a bias computes with all of its rows.
            if len(shape) == 2
            and shape[0] >= TWICE * values
            and f"{name.rpartition('.')[0]}.bias" not in sizes
        }
        unused = sum(sizes[name] * (1 - values / rows) for name, rows in tables.items())
        if unused > MOST * sum(sizes.values()):
            return UnusedRows(tables, values, unused / sum(sizes.values()))
    return None
