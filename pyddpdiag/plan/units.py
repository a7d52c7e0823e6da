"""Numbers of ranks, rates and times as they are typed."""

from __future__ import annotations

import math
import re
from typing import Final

from pyddpdiag.errors import UsageError

MOST_RANKS: Final = 4096

_BITS: Final = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def ranks_of(text: str) -> tuple[int, ...]:
    """Numbers of ranks, in the order given, each once.

    Raises:
        UsageError: it is not that.
    """
    found = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[0-9]{1,6}\s*", part) or not 1 <= int(part) <= MOST_RANKS:
            raise UsageError(
                f"--ranks {text}: '{part.strip()}' is no number of ranks from 1 to {MOST_RANKS}.",
                hint="for example --ranks 2,8,64.",
            )
        found.append(int(part))
    return tuple(dict.fromkeys(found))


def caps_of(text: str) -> tuple[tuple[float, ...], ...]:
    """Bucket layouts in the order given, each once: a size in MiB for all buckets, or one for each as `1:4:25`.

    Raises:
        UsageError: it is not that.
    """
    found = []
    for part in text.split(","):
        values = [_number(each) for each in part.split(":")]
        sizes = tuple(value for value in values if value is not None and value > 0)
        if len(sizes) < len(values):
            raise UsageError(
                f"--bucket-cap-mb {text}: '{part.strip()}' is no size above 0.",
                hint="in MiB, for example --bucket-cap-mb 5,25, or 1:4:25 for a size of each bucket.",
            )
        found.append(sizes)
    return tuple(dict.fromkeys(found))


def ms_per_byte_of(text: str) -> float:
    """A bandwidth such as 10Gbit (per second), as milliseconds for each byte.

    Raises:
        UsageError: it is not that.
    """
    return 8e3 / _with_unit(text, _BITS, "--bandwidth", "a rate above 0", "--bandwidth 10Gbit")


def latency_ms_of(text: str) -> float:
    """A latency such as 0.2ms.

    Raises:
        UsageError: it is not that.
    """
    return _with_unit(text, _MS, "--latency", "a time above 0", "--latency 0.2ms")


def _with_unit(text: str, units: dict[str, float], option: str, what: str, example: str) -> float:
    match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)(?:/s)?\s*", text, re.IGNORECASE)
    value = _number(match.group(1)) if match else None
    unit = units.get(match.group(2).lower()) if match else None
    if value is None or unit is None or value <= 0:
        raise UsageError(
            f"{option} {text}: this is not {what} in {', '.join(units)}.", hint=f"for example {example}."
        )
    return value * unit


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
