"""What a script's signal handler raises is known as the script's, however the handler is made."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pyddpdiag.system.handlers import by_handler, quietly


def _late(*_: Any) -> None:
    raise TimeoutError("late")


class _Handler:
    def __call__(self, *_: Any) -> None:
        _late()

    def method(self, *_: Any) -> None:
        _late()


@pytest.mark.parametrize("handler", [_late, partial(_late, 1), _Handler(), _Handler().method])
def test_what_a_handler_raises_passes(handler: Callable[..., Any]) -> None:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(TimeoutError) as caught, quietly:
            signal.raise_signal(signal.SIGTERM)
        assert by_handler(caught.value)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_is_raised_otherwise_ends_there() -> None:
    with quietly:
        raise KeyError("ours")
    with pytest.raises(ValueError, match="no handler") as caught:
        raise ValueError("no handler")
    assert not by_handler(caught.value)
    with pytest.raises(KeyboardInterrupt), quietly:
        raise KeyboardInterrupt
