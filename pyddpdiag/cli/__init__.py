"""The `pyddpdiag` command.

Every file here is a command: `cli/<name>.py` holds a function `<name>` with typer's annotations, and is found
by its name; a folder is a command with sub-commands, whose `<name>` is a typer application. Only the command that
was asked for is imported, so each stays as quick as its own imports.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Sequence

import typer

from pyddpdiag.errors import PyddpdiagError

ERROR_EXIT = 2


def commands() -> list[str]:
    """The names of all commands, sorted."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.name.startswith("_"))


def build_app(names: Sequence[str]) -> typer.Typer:
    """The application with these commands."""
    app = typer.Typer(
        name="pyddpdiag",
        help="Where does the step time of a DDP training over Gloo go, and who is to blame?",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback keeps the commands named even when only one of them was imported.
    app.callback()(lambda: None)
    for name in names:
        found = getattr(importlib.import_module(f"{__name__}.{name}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 healthy, 1 findings, 2 could not judge or wrong use.

    Args:
        argv: the arguments after the program's name; those of this process by default.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    names = commands()
    wanted = [arguments[0]] if arguments and arguments[0] in names else names
    try:
        build_app(wanted)(args=arguments, prog_name="pyddpdiag")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except PyddpdiagError as error:
        print(f"error: {error}".encode(_encoding(), "replace").decode(_encoding()), file=sys.stderr)
        return ERROR_EXIT
    except Exception:
        # A mistake in this program: show where, but never with the exit code that means "findings".
        traceback.print_exc()
        return ERROR_EXIT
    return 0


def _encoding() -> str:
    return getattr(sys.stderr, "encoding", None) or "utf-8"
