"""Which cases of a comparison were selected, and the comparison measured once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def selected(item: pytest.Function, parameter: str) -> list[Any]:
    """Values of `parameter` in the selected cases that differ from `item` in it alone, in the order of the tests."""
    ours = _comparison(item, parameter)
    return [
        other.callspec.params[parameter]
        for other in item.session.items
        if isinstance(other, pytest.Function) and _comparison(other, parameter) == ours
    ]


@dataclass(frozen=True)
class _Ending:
    value: Any = None
    error: BaseException | None = None


class Comparisons:
    """Every comparison of a test session that was measured; one that failed is not tried again by its next case."""

    def __init__(self) -> None:
        self._endings: dict[Hashable, _Ending] = {}

    def measured(
        self,
        item: pytest.Function,
        parameter: str,
        measure: Callable[[list[Any]], T],
        needs: Callable[[Any], Iterable[Any]],
    ) -> T:
        """What `measure` returned for the selected values of `parameter`, and for those that they need."""
        key = _comparison(item, parameter)
        if key not in self._endings:
            values = selected(item, parameter)
            # Each once: a baseline may be selected itself. It comes first: a sweep leaves out the later of two that
            # are the same.
            values = list(dict.fromkeys([*(base for value in values for base in needs(value)), *values]))
            try:
                self._endings[key] = _Ending(measure(values))
            # A skip is no Exception.
            except (Exception, pytest.skip.Exception) as error:
                self._endings[key] = _Ending(error=error)
        ending = self._endings[key]
        if ending.error is not None:
            raise ending.error
        value: T = ending.value
        return value


def _comparison(item: pytest.Function, parameter: str) -> Hashable:
    """Equal for cases that are measured together: the same test with the same values of all other parameters."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    others = frozenset((name, value) for name, value in params.items() if name != parameter)
    return (item.path, item.originalname, parameter in params, others)
