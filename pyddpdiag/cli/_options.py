"""Options that several commands share, each defined once; and how a command takes a whole table of them.

A command's first help shows the options that most need; `--help-all` also shows those that are hidden there.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from pyddpdiag.cures.options import OPTIONS
from pyddpdiag.output import say


class Shared(str, Enum):
    """Modes of shared memory."""

    OFF = "off"
    AUTO = "auto"
    REQUIRE = "require"


class Half(str, Enum):
    """Types of 16 bits in which gradients travel."""

    BF16 = "bf16"
    FP16 = "fp16"


Command = TypeVar("Command", bound=Callable[..., None])
Table = Sequence[inspect.Parameter]

_BY_KEYWORD = {each.name.removeprefix("--").replace("-", "_"): each for each in OPTIONS}

Folder = Annotated[
    str, typer.Argument(metavar="DIR_OR_URL", help="Folder with the traces of all ranks, or its URL.")
]
Attempt = Annotated[
    int | None,
    typer.Option(min=0, help="For a restarted job: which attempt to read instead of the newest."),
]
Memory = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="GB",
        help="About how much the records may take: of more, only the newest are read. 0: no limit. Usually 0.4.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
TheirCommand = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND", help="How you start the training, such as torchrun train.py, with its own options."
    ),
]


def option(
    name: str, kind: Any, text: str, default: Any = None, *declared: str, **more: Any
) -> inspect.Parameter:
    """A row of a table of options.

    Args:
        name: of the command's keyword.
        kind: its type; with the default None, that or None.
        text: what --help says.
        default: of a bool that is not given: False.
        declared: how it is typed, where that is not `--name`.
        more: as `typer.Option` takes it, such as `hidden`, `metavar`, `rich_help_panel`.
    """
    if kind is bool and default is None:
        default, declared = False, declared or (f"--{name.replace('_', '-')}",)
    made = typer.Option(*declared, help=text, **more)
    return row(name, Annotated[kind if default is not None else kind | None, made], default)


def row(name: str, annotated: Any, default: Any = None) -> inspect.Parameter:
    """A row of a table for an option that is defined as a type."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotated)


def with_options(*tables: Table) -> Callable[[Command], Command]:
    """Gives a command the options of these tables, as keywords: `**given: Any`."""

    def extended(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        rows = [row for table in tables for row in table]
        if any(row.annotation.__metadata__[0].hidden for row in rows):
            rows.append(HELP_ALL)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        # typer reads a command's options from both of these.
        command.__signature__ = own.replace(parameters=[*kept, *rows])  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in [*kept, *rows]}
        return command

    return extended


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in context.command.params:
            if hasattr(parameter, "hidden"):
                parameter.hidden = False
        say(context.get_help())
        raise typer.Exit


HELP_ALL = option(
    "help_all",
    bool,
    "Show all options, also the rarer ones.",
    is_eager=True,
    callback=_show_all,
    expose_value=False,
)


def ranks_of(text: str, **nproc: Any) -> Table:
    """Which ranks a command starts itself, as `start_of` takes them. text: of --nproc; nproc: more for it."""
    return (
        option("nproc", int, text, min=1, **nproc),
        option("nnodes", int, "With --nproc: the number of machines.", 1, min=1, hidden=True),
        option(
            "node_rank",
            int,
            "With --nproc: which machine this is, from 0; where a scheduler starts one task on each, its number.",
            min=0,
            hidden=True,
        ),
        option(
            "rendezvous",
            str,
            "With --nproc: where the ranks of all machines meet.",
            "",
            metavar="HOST:PORT",
            hidden=True,
        ),
    )


def cures_table(panel: str, shown: Sequence[str], **words: str) -> Table:
    """The options that name cures, as `cures_given` reads them.

    `shown`: those that the first help shows. `words`: a text of its own for some of them; empty: the command has no
    such option.
    """
    choices = {"shared_memory": Shared, "compress": Half}
    return [
        option(
            name,
            choices.get(name, each.read if each.read in (bool, float, int) else str),
            words.get(name, each.help),
            Shared.OFF if name == "shared_memory" else None,
            hidden=name not in shown,
            rich_help_panel=panel if name in shown else f"{panel}: more",
            metavar=each.typed,
        )
        for name, each in _BY_KEYWORD.items()
        if words.get(name, each.help)
    ]


def cures_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed for a table of cures, by the names of `Cures`' fields.

    Raises:
        UsageError: interfaces or sizes cannot be used, with the reason.
    """
    from pyddpdiag.ranks import interfaces

    typed = {each: getattr(given.get(name), "value", given.get(name)) for name, each in _BY_KEYWORD.items()}
    found = {
        each.field: each.read(value) if isinstance(value, str) else value
        for each, value in typed.items()
        if value is not None and value is not False and value != ""  # 0 is a value, which is refused
    }
    if given["interface"] is not None:
        found["interfaces"] = interfaces.parse(given["interface"])
        interfaces.check(found["interfaces"], "from --interface")
    return found | {"lanes": lanes_of(given["lanes"])}


def lanes_of(text: str | None, option: str = "--lanes") -> tuple[str, ...]:
    """The lanes in NAME,NAME or NAME=MBIT,NAME=MBIT, each over an interface that this machine has; None: none.

    Raises:
        UsageError: they cannot be used, with the reason.
    """
    from pyddpdiag.paths import lanes
    from pyddpdiag.ranks import interfaces

    if text is None:
        return ()
    names = tuple(text.split(","))
    interfaces.check(tuple(lane.interface for lane in lanes.parse(names)), f"from {option}")
    return names


def leave_failed() -> NoReturn:
    """Ends a joined rank that failed, at once: a normal exit would wait for Gloo's threads, and they for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(2)
