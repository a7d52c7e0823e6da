"""`pyddpdiag compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyddpdiag.errors import ResultExistsError, ResultWriteError

if TYPE_CHECKING:
    from pyddpdiag.bench.compare.comparison import Comparison

_FILES = ("compare.json", "compare.png", "compare.html")


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="A.json [B.json ...]", help="Result files.")],
    output_dir: Annotated[
        Path | None, typer.Option(help="Write compare.json, compare.png and compare.html there.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    article: Annotated[
        bool, typer.Option(help="Put the published figures of Microsoft's article beside scaling runs.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Put results of several machines or systems side by side: the first file is what others are compared with."""
    import json
    import sys

    from pyddpdiag.bench.compare.compare import compare as compare_files
    from pyddpdiag.bench.compare.text import print_comparison
    from pyddpdiag.bench.reading import read

    comparison = compare_files([read(path) for path in files], with_article=article)
    text = json.dumps(comparison.as_dict(), indent=1, allow_nan=False)
    if output_dir is not None:
        _write(comparison, text, output_dir, force)
    if as_json:
        print(text)
    else:
        print_comparison(comparison, sys.stdout)
        if output_dir is not None:
            print(f"\nWritten: {', '.join(str(output_dir / name) for name in _FILES)}")


def _write(comparison: Comparison, text: str, folder: Path, force: bool) -> None:
    from pyddpdiag.bench.compare.chart import as_svg, draw, save_png
    from pyddpdiag.bench.compare.html import page

    there = [name for name in _FILES if (folder / name).exists()]
    if there and not force:
        raise ResultExistsError(
            f"'{folder / there[0]}' exists already.",
            hint="give another --output-dir, or --force to replace it.",
        )
    figure = draw(comparison)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILES[0]).write_text(text + "\n", encoding="utf-8")
        save_png(figure, folder / _FILES[1])
        (folder / _FILES[2]).write_text(page(comparison, as_svg(figure)), encoding="utf-8")
    except OSError as error:
        raise ResultWriteError(
            f"cannot write to '{folder}': {error.strerror or error}.", hint="give another --output-dir."
        ) from error
