"""For functions that stand between a script and one of torch's: the script shall see no difference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

Wrapper = TypeVar("Wrapper", bound=Callable[..., Any])


def between(torchs: Callable[..., Any]) -> Callable[[Wrapper], Wrapper]:
    """As `functools.wraps`, and no warning is given for the wrapper's line.

    torch warns with `stacklevel=2` of the line that called it. From there on outwards Python counts no frame of a file
    that has "importlib" and "_bootstrap" in its name, as if it were the import system's (`is_internal_frame` in
    CPython's Python/_warnings.c; `logging` does the same). So filters, and what a warning shows, are as without us.
    """

    def made(wrapper: Wrapper) -> Wrapper:
        code = cast(FunctionType, wrapper).__code__
        named = code.replace(co_filename=f"{code.co_filename}:importlib._bootstrap")
        cast(FunctionType, wrapper).__code__ = named
        return cast(Wrapper, functools.wraps(torchs)(wrapper))

    return made
