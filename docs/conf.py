"""The site (`python3 dev.py docs`): these pages, the API from its docstrings, the commands from their options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pyddpdiag import __version__
from pyddpdiag.cli import build_app, commands

sys.path.insert(0, str(Path(__file__).parent))
import completed

project = "pyddpdiag"
author = "the pyddpdiag authors"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}

# Pages link to each other's headings.
myst_heading_anchors = 4

# Docstrings write code as `code`.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# "--option" stays as it is typed.
smartquotes = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"pyddpdiag {version}"


def setup(app: Any) -> None:
    """Sphinx calls this; pages are completed when they are read."""
    app.connect("source-read", _complete)


def _complete(app: Any, name: str, source: list[str]) -> None:
    del app
    # The README is no page of the site, whose first page stands in for it.
    source[0] = re.sub(r"\]\(\.\./README\.md[^)]*\)", "](index.md)", source[0])
    if name.startswith("findings/"):
        source[0] = completed.findings(source[0])
    if name == "doctor":
        source[0] = completed.messages(source[0])
    if name == "reference/commands":
        program: Any = typer.main.get_command(build_app(commands()))
        parts = (_command(program.commands[name], f"pyddpdiag {name}", 2) for name in commands())
        source[0] += "\n" + "\n".join(line for part in parts for line in part)


def _command(command: Any, name: str, level: int) -> Iterator[str]:
    """A command's section in Markdown, and those of its sub-commands."""
    yield f"{'#' * level} `{name}`\n\n{inspect.cleandoc(command.help or '')}\n"
    rows = [_row(parameter) for parameter in command.params]
    if rows:
        yield "\n".join(["| option | default | meaning |", "|---|---|---|", *rows, ""])
    for sub_name, sub in sorted(getattr(command, "commands", {}).items()):
        yield from _command(sub, f"{name} {sub_name}", level + 1)


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.name.upper()}`"
    default = parameter.default
    shown = (
        "" if default in (None, False, ()) or callable(default) else f"`{getattr(default, 'value', default)}`"
    )
    words = (
        " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|").replace("<", "&lt;")
    )
    return f"| {names} | {shown} | {words} |"
