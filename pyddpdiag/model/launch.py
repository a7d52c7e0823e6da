"""The command that `pyddpdiag run` ran, and what it applied to its ranks: for advice with a line to paste."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyddpdiag.output import clean

ARGUMENTS_LIMIT: Final = 256
LENGTH_LIMIT: Final = 4096
_CURES_LIMIT: Final = 32
_NODE_LIMIT: Final = 16


@dataclass(frozen=True)
class Launch:
    """A launch command.

    `command`: the program and its arguments as they were given; empty: not known. `cures`: the options of `pyddpdiag
    run` that change the training, with their values; "" for a flag. `start`: those that make it start the ranks of
    `command`, which is a script then. `node`: the random name of that `pyddpdiag run` (`NodeNote`); empty: not known.
    """

    command: tuple[str, ...] = ()
    cures: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[str, str] = field(default_factory=dict)
    node: str = ""


def launch_to_json(launch: Launch) -> dict[str, Any]:
    """As it stands in the sidecar and in the ranks' environment. A command of more than its limits is left out."""
    whole = len(launch.command) <= ARGUMENTS_LIMIT and sum(map(len, launch.command)) <= LENGTH_LIMIT
    start = {"start": dict(launch.start)} if launch.start else {}
    node = {"node": launch.node} if launch.node else {}
    return {"command": list(launch.command) if whole else [], "cures": dict(launch.cures), **start, **node}


def launch_of(text: str) -> Launch | None:
    """The one that a JSON text holds; None: it holds none."""
    try:
        return launch_from_json(json.loads(text))
    except ValueError:
        return None


def launch_from_json(raw: Any) -> Launch:
    """What can be understood of it. A command that would control a terminal is none."""
    if not isinstance(raw, dict):
        return Launch()
    command = raw.get("command")
    texts = command if isinstance(command, list) else []
    whole = len(texts) <= ARGUMENTS_LIMIT and all(
        isinstance(each, str) and clean(each) == each for each in texts
    )
    if not whole or sum(map(len, texts)) > LENGTH_LIMIT:
        texts = []
    node = raw.get("node")
    return Launch(
        tuple(texts),
        _options(raw.get("cures")),
        _options(raw.get("start")),
        clean(node, _NODE_LIMIT) if isinstance(node, str) else "",
    )


def _options(raw: Any) -> dict[str, str]:
    pairs = list(raw.items())[:_CURES_LIMIT] if isinstance(raw, dict) else []
    return {
        clean(name, LENGTH_LIMIT): clean(value, LENGTH_LIMIT)
        for name, value in pairs
        if isinstance(name, str) and isinstance(value, str)
    }


__all__ = ["Launch", "launch_from_json", "launch_of", "launch_to_json"]
