"""The arguments of DistributedDataParallel, with those that a run was asked for in place of the script's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# torch ignores the first where the second is given.
_OUTDOES = {"bucket_cap_mb": "bucket_cap_mb_list"}


def overridden(
    make: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    wanted: Mapping[str, Any],
) -> tuple[Sequence[Any], Mapping[str, Any], list[str]]:
    """What to call `make` with.

    Args:
        make: the constructor.
        arguments, options: what the script calls it with.
        wanted: values by name that go in their place.

    Returns:
        Positional and named arguments; and sentences on each value that differs from the script's own, or cannot be
            given.
    """
    signature = inspect.signature(make)
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError:
        return arguments, options, []  # the constructor will say what is wrong
    notes = []
    for name, value in wanted.items():
        why_not = _refused(signature, name)
        if why_not:
            notes.append(f"{option(name)} is not applied: {why_not}.")
            continue
        for changed, new in ((name, value), (_OUTDOES.get(name, name), None)):
            if changed == name and new is None:
                continue
            given = bound.arguments.get(changed)
            known = signature.parameters.get(changed)
            if known is not None and given is not None and given not in (known.default, new):
                notes.append(f"the script gives {changed}={given!r}; {option(name)} is used instead.")
            if known is not None:
                bound.arguments[changed] = new
    return bound.args, bound.kwargs, notes


def option(name: str) -> str:
    """The option of `pyddpdiag run` for an argument."""
    return "--" + name.replace("_", "-")


def _refused(signature: inspect.Signature, name: str) -> str:
    """Why this torch does not take an argument; empty: it does."""
    if name not in signature.parameters:
        return f"DistributedDataParallel of torch {sys.modules['torch'].__version__} has no {name}"
    dynamo = sys.modules.get("torch._dynamo.config")
    if name == "bucket_cap_mb_list" and getattr(dynamo, "optimize_ddp", "") == "python_reducer":
        return "torch's python_reducer does not take it"
    return ""
