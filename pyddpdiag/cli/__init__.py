"""The `pyddpdiag` command.

Every file here is a command: `cli/<name>.py` holds a function `<name>` with typer's annotations, and is found
by its name; a folder is a command with sub-commands, whose `<name>` is a typer application. Where Python reserves the
name, an underscore ends it: `try_`. Only the command that was asked for is imported, so each one starts as fast as its
own imports.
"""

from __future__ import annotations

import importlib
import inspect
import keyword
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
import typer.core

from pyddpdiag.errors import PyddpdiagError
from pyddpdiag.messages.exit_codes import to_pass_on
from pyddpdiag.output import clean_lines, say

ERROR_EXIT = 2


GROUPS: Final = {
    "Start here: record a training": ("run", "try", "train"),
    "Read what was recorded": ("report", "watch", "hang", "compare"),
    "Before a run": ("doctor", "bench", "plan"),
    "Move it": ("collect", "export"),
    "More": ("help",),
}
"""Panels of --help, and the commands in each, in this order."""


def commands() -> list[str]:
    """The names of all commands, in the order of their groups; those of no group last."""
    found = {each.name.rstrip("_") for each in pkgutil.iter_modules(__path__) if each.name[0] != "_"}
    grouped = [name for names in GROUPS.values() for name in names]
    return [*(name for name in grouped if name in found), *sorted(found - set(grouped))]


class Commands(typer.core.TyperGroup):
    """A group that cleans wrong arguments before it repeats them in an error: a shell may have put file names there."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of `commands`, where typer would list those with sub-commands last."""
        known = set(super().list_commands(ctx))
        return [name for name in commands() if name in known]

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """As the class above."""
        with _cleaned_errors():
            return super().make_context(*arguments, **options)

    def invoke(self, *arguments: Any, **options: Any) -> Any:
        """As the class above."""
        with _cleaned_errors():
            return super().invoke(*arguments, **options)


@contextmanager
def _cleaned_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Of click's own class, which typer shows; not every version of typer has a public name for it.
        if isinstance(getattr(error, "message", None), str) and hasattr(error, "format_message"):
            error.message = clean_lines(error.message)  # type: ignore[attr-defined]
        raise


def build_app(names: Sequence[str]) -> typer.Typer:
    """The application with these commands."""
    app = typer.Typer(
        name="pyddpdiag",
        cls=Commands,
        help="Explains why a DDP job over Gloo is slow, stuck or wrong.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback keeps the commands named even when only one of them was imported.
    app.callback(invoke_without_command=True)(_version)
    panels = {name: panel for panel, members in GROUPS.items() for name in members}
    for name in names:
        python = f"{name}_" if keyword.iskeyword(name) else name
        found = getattr(importlib.import_module(f"{__name__}.{python}"), python)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, rich_help_panel=panels.get(name))
        else:
            # What follows the first word of somebody's command is that command's.
            interspersed = "command" not in inspect.signature(found).parameters
            settings = {"allow_interspersed_args": interspersed}
            app.command(name, context_settings=settings, rich_help_panel=panels.get(name))(found)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 healthy, 1 findings, 2 could not judge or was used wrongly.

    `argv`: the arguments after the program's name; those of this process by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = commands()
    wanted = [arguments[0]] if arguments and arguments[0] in names else names
    try:
        build_app(wanted)(args=arguments, prog_name="pyddpdiag")
    except SystemExit as stop:
        return to_pass_on(stop.code) if isinstance(stop.code, int) else int(stop.code is not None)
    except PyddpdiagError as error:
        say(f"error: {error}", sys.stderr)
        return ERROR_EXIT
    except Exception:
        # A bug in this program: show where, but never exit with the code that means "findings".
        say(traceback.format_exc(), sys.stderr, end="")
        return ERROR_EXIT
    return 0


def _version(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, help="Show this version, and the torch it needs and finds."),
    ] = False,
) -> None:
    if version:
        from pyddpdiag.cli._versions import versions

        say(versions())
        raise typer.Exit
