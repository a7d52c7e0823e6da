"""Options of a command that come from a table instead of its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol, TypeVar

import typer


class Named(Protocol):
    """What a flag is made of."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...


Command = TypeVar("Command", bound=Callable[..., None])


def flags(table: Sequence[Named]) -> Callable[[Command], Command]:
    """Gives a command a flag for each row of a table; the command takes them as keywords, `**name: bool`."""

    def extended(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        given = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        made = [
            inspect.Parameter(
                row.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False,
                annotation=Annotated[bool, typer.Option(f"--{row.name}", help=row.help)],
            )
            for row in table
        ]
        # typer reads a command's options from both of these.
        command.__signature__ = own.replace(parameters=[*given, *made])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*given, *made]}
        return command

    return extended
