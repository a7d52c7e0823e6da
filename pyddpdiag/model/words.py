"""Numbers in words, the same in every message and table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def number(value: float) -> str:
    """About three digits: 0.012, 0.12, 1.23, 12.3, 123."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.0995 or size == 0 else f"{value:.3f}"


def size(amount: int) -> str:
    """Bytes in the decimal unit that fits: 512 B, 4.10 kB, 25.2 MB."""
    for unit, bytes_in_it in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= bytes_in_it:
            return f"{number(amount / bytes_in_it)} {unit}"
    return f"{amount} B"


def milliseconds(value: float) -> str:
    """A time in milliseconds with its unit."""
    return f"{number(value)} ms"


def seconds(value: float) -> str:
    """A time in seconds with its unit; short ones in milliseconds."""
    return f"{number(value)} s" if value >= 0.9995 else milliseconds(value * 1e3)


def percent(fraction: float) -> str:
    """A fraction as whole percent."""
    return f"{100 * fraction:.0f}%"


def count(amount: int, noun: str, plural: str = "") -> str:
    """An amount with its noun: 1 step, 3 steps. `plural`: of the noun, where an s is not enough."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {plural or noun + 's'}"


def times(amount: int) -> str:
    """How often: once, 3 times."""
    return "once" if amount == 1 else f"{amount} times"


def listed(items: Iterable[object], limit: int = 8) -> str:
    """Items separated by commas, at most `limit` of them."""
    texts = [str(item) for item in items]
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {more} more" if more > 0 else "")


def ranks(which: Sequence[int]) -> str:
    """Ranks by number: rank 3; ranks 0, 2."""
    return f"{'rank' if len(which) == 1 else 'ranks'} {listed(which)}"


def those(which: Sequence[int], of: int) -> str:
    """Ranks by number, or `all ranks` where these are all `of` several."""
    return "all ranks" if len(which) == of > 1 else ranks(which)


def ranges(which: Iterable[int], limit: int = 4) -> str:
    """Numbers in rising order, neighbours as one: 0, 2 to 511."""
    runs: list[list[int]] = []
    for one in which:
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in runs]
    return ", ".join(texts[:limit]) + (" and others" if len(texts) > limit else "")


def verb(which: Sequence[int], one: str, several: str) -> str:
    """What they do: `one` is said of a single rank, `several` of more."""
    return one if len(which) == 1 else several


def at(place: str | None) -> str:
    """Where something is, as a part of a sentence: ` at train.py:41`; empty: that is not known."""
    return f" at {place}" if place else ""


def closed(text: str) -> str:
    """The text with an end of a sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def sentence(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
