"""`pyddpdiag help PAGE`: the documentation that came with this version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def help(
    page: Annotated[
        str | None, typer.Argument(help="Its name, such as cures; without one, all names.")
    ] = None,
) -> None:
    """Print a page of the documentation, such as `pyddpdiag help cures`."""
    from pyddpdiag.errors import UsageError
    from pyddpdiag.output import say

    pages = {
        file.relative_to(documentation()).with_suffix("").as_posix(): file
        for file in sorted(documentation().rglob("*.md"))
    }
    if page is None:
        say("\n".join(f"pyddpdiag help {name}" for name in pages))
    elif page in pages:
        say(pages[page].read_text(encoding="utf-8"), end="")
    else:
        raise UsageError(f"there is no page {page}.", hint=f"choose among: {', '.join(pages)}.")


def documentation() -> Path:
    """The folder of the pages: a wheel brings them; of a source tree, its own."""
    package = Path(__file__).resolve().parents[1]
    brought = package / "docs"
    return brought if brought.is_dir() else package.parent / "docs"
