"""Which of many like events are looked at: the same ones on all ranks, ever more rarely."""

from __future__ import annotations


def is_sampled(number: int) -> bool:
    """Whether the event with this number, from 1 on, is: the first 9, and then the first three of each octave."""
    return number <= 9 or number - (1 << number.bit_length() - 1) <= 2


def next_sampled(number: int) -> int:
    """The next one after the one with this number."""
    following = number + 1
    return following if is_sampled(following) else 1 << following.bit_length()
