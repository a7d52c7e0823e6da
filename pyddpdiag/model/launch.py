"""The command that `pyddpdiag run` ran, and what it applied to its ranks: for advice with a line to paste."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from pyddpdiag.model.fields import IF_ANY, Form, Limit, maybe_from_json
from pyddpdiag.output import clean

ARGUMENTS_LIMIT: Final = 256
LENGTH_LIMIT: Final = 4096


def _whole(command: Any) -> tuple[str, ...]:
    """The command; nothing of one that is too long or would control a terminal."""
    texts = [each for each in command[: ARGUMENTS_LIMIT + 1] if isinstance(each, str) and clean(each) == each]
    fits = len(texts) == len(command) <= ARGUMENTS_LIMIT and sum(map(len, texts)) <= LENGTH_LIMIT
    return tuple(texts) if fits else ()


_Command = Annotated[tuple[str, ...], Form(lambda command: list(_whole(command)), _whole)]
_Text = Annotated[str, Limit(LENGTH_LIMIT)]
_Options = Annotated[Mapping[_Text, _Text], Limit(32)]


@dataclass(frozen=True)
class Launch:
    """A launch command.

    `command`: the program and its arguments as they were given; empty: not known. `cures`: the options of `pyddpdiag
    run` that change the training, with their values; "" for a flag. `start`: those that make it start the ranks of
    `command`, which is a script then. `node`: the random name of that `pyddpdiag run` (`NodeNote`); empty: not known.
    """

    forgiving: ClassVar[bool] = True

    command: _Command = ()
    cures: _Options = field(default_factory=dict)
    start: Annotated[_Options, IF_ANY] = field(default_factory=dict)
    node: Annotated[str, IF_ANY, Limit(16)] = ""


def launch_of(text: str) -> Launch | None:
    """The one that a JSON text holds; None: it holds none."""
    try:
        return maybe_from_json(Launch, json.loads(text))
    except ValueError:
        return None
