"""The modules below a module and their parameters, read from where torch keeps them.

A class of the script's may override each method that tells of them, draw random numbers there, or count the calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from pyddpdiag.record.held import attribute


def modules_in(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """As `named_modules`: the module itself and all below it, each once, in torch's order."""
    seen: set[int] = set()
    stack = [("", module)]
    while stack:
        name, one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield name, one
        below = [(f"{name}.{part}" if name else part, each) for part, each in _held(one, "_modules")]
        stack += reversed(below)


def parameters_in(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """As `named_parameters`: each once."""
    seen: set[int] = set()
    for prefix, one in modules_in(module):
        for name, parameter in _held(one, "_parameters"):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield (f"{prefix}.{name}" if prefix else name), parameter


def inside(ddp: nn.Module) -> nn.Module:
    """What a DDP module wraps; any other module itself."""
    return next((one for name, one in _held(ddp, "_modules") if name == "module"), ddp)


def trains(module: nn.Module) -> bool:
    """Whether a module is in training mode; one that tells it by a property of its own is not asked."""
    # Asked in every step: as held.attribute(), in one function.
    return object.__getattribute__(module, "__dict__").get("training") is not False


def _held(module: nn.Module, name: str) -> list[tuple[str, Any]]:
    """What it holds in one of torch's dictionaries, without the places that are empty."""
    held = attribute(module, name)
    if not issubclass(type(held), dict):
        return []
    return [(key, one) for key, one in dict.items(held) if one is not None]
