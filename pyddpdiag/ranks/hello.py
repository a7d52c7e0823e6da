"""How a rank introduces itself to the others, and which introductions are accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from pyddpdiag.output import clean

#: Every introduction begins with this, so that it can be found in the raw bytes of a store's file.
MARK: Final = '{"pyddpdiag_hello": '
#: The longest introduction, in bytes. Ours have some hundred, and two paths of any length that a system takes.
MAX_BYTES: Final = 64 * 1024
_VERSION = 1
_MAX_TEXT = 16 * 1024
_MAX_PROBLEM = 2000
_MAX_SETTINGS = 256
_MAX_RANKS = 2**31
_MAX_PID = 2**32
# Seconds since 1970 that are a date of some five digits at most: nothing overflows.
_MAX_TIME_S = 1e12


@dataclass(frozen=True)
class Hello:
    """How a rank introduces itself.

    `settings` are what all ranks must agree on, `payload` is for whatever they do then, and `problem` says why this
    one cannot start, "" if it can.
    """

    rank: int
    world_size: int
    machine: str
    pid: int
    started: float
    at: float
    settings: dict[str, str]
    payload: str | None
    problem: str = ""

    def to_json(self) -> str:
        """One line of ASCII."""
        fields = asdict(self)
        fields["problem"] = self.problem[:_MAX_PROBLEM]
        return json.dumps({"pyddpdiag_hello": _VERSION, **fields})

    @classmethod
    def from_json(cls, text: str | bytes) -> Hello:
        """The inverse of `to_json`.

        Raises:
            ValueError: it is not an introduction. Nothing else is raised, whatever the text.
        """
        if len(text) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES} bytes")
        try:
            fields = json.loads(text.decode("ascii") if isinstance(text, bytes) else text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError:
            raise ValueError("it is not JSON") from None
        if not isinstance(fields, dict) or fields.pop("pyddpdiag_hello", None) != _VERSION:
            raise ValueError("it is not an introduction of this version")
        if fields.keys() != _PLAUSIBLE.keys():
            raise ValueError("it has other fields")
        for name, plausible in _PLAUSIBLE.items():
            if not plausible(fields[name]):
                raise ValueError(f"its '{name}' cannot be right")
        hello = cls(**fields)
        if hello.rank >= hello.world_size:
            raise ValueError("its rank is outside of its world")
        return hello

    def who(self) -> str:
        """The rank with its process, for messages."""
        return f"rank {self.rank} (pid {self.pid} on {clean(self.machine.split(' ')[0], 100)})"


def _whole(least: int, end: int) -> Callable[[object], bool]:
    def plausible(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value < end

    return plausible


def _time(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return 0 <= value < _MAX_TIME_S  # so it is not NaN either


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT and "\0" not in value


def _settings(value: object) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= _MAX_SETTINGS
        and all(_text(name) and _text(setting) for name, setting in value.items())
    )


_PLAUSIBLE: Final[dict[str, Callable[[object], bool]]] = {
    "rank": _whole(0, _MAX_RANKS),
    "world_size": _whole(1, _MAX_RANKS + 1),
    "machine": _text,
    "pid": _whole(1, _MAX_PID),
    "started": _time,
    "at": _time,
    "settings": _settings,
    "payload": lambda value: value is None or _text(value),
    "problem": _text,
}
