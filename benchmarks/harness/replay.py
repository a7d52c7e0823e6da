"""A clock that replays rounds measured before, for pytest-benchmark to read its times from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Replay:
    """Read before and after each round of `benchmark.pedantic`, it makes the round last as long as the measured one.

    Each round begins at 0, so its end minus its start is the measured value to the last bit.
    """

    # pytest-benchmark writes its timer's name into the JSON.
    __name__ = "replay_of_measured_rounds"

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, round_s: Sequence[float]) -> None:
        """Sets the seconds of the rounds to come."""
        self._readings = iter([reading for seconds in round_s for reading in (0.0, seconds)])

    def __call__(self) -> float:
        return next(self._readings)
