"""`pyddpdiag compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyddpdiag.cli._options import Force
from pyddpdiag.errors import UsageError
from pyddpdiag.output import say

if TYPE_CHECKING:
    from pyddpdiag.bench.compare.comparison import Comparison

_FILES = ("compare.json", "compare.html")
_OPTION = "--output-dir"


def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...", help="Result files, or two or more folders or URLs with the traces of a run."
        ),
    ],
    output_dir: Annotated[
        Path | None, typer.Option(help="Folder for compare.json, compare.html and its charts as pictures.")
    ] = None,
    force: Force = False,
    article: Annotated[
        bool, typer.Option(help="Put the published figures of Microsoft's article beside scaling runs.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Put results of several machines or systems, or several runs, side by side; all are compared with the first."""
    import json
    import sys
    from contextlib import ExitStack

    from pyddpdiag.bench.compare.shown import print_comparison
    from pyddpdiag.remote.copy import at_hand
    from pyddpdiag.report.charts import picture

    if output_dir is not None:
        picture.require()
    with ExitStack() as stack:
        comparison = _compare([stack.enter_context(at_hand(file)) for file in files], article)
    text = json.dumps(comparison.as_dict(), indent=1, allow_nan=False)
    written = [] if output_dir is None else _write(comparison, text, output_dir, force)
    if as_json:
        say(text)
    else:
        print_comparison(comparison, sys.stdout)
        if written:
            say(f"\nWritten: {', '.join(map(str, written))}")


def _compare(paths: list[Path], article: bool) -> Comparison:
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        from pyddpdiag.bench.compare.compare import compare as compare_files
        from pyddpdiag.bench.results import read

        return compare_files([read(path) for path in paths], with_article=article)
    for path in paths:
        if not path.exists():
            raise UsageError(
                f"{path}: no such file or folder.", hint="name two or more runs, or two or more result files."
            )
    if len(paths) < 2:
        raise UsageError(f"{paths[0]} alone is compared with nothing.", hint="name another run beside it.")
    if len(folders) < len(paths):
        raise UsageError(
            "runs are compared with runs, and result files with result files.",
            hint="give two folders of traces, or files that `pyddpdiag bench` or `train --scaling` wrote.",
        )
    from pyddpdiag.bench.compare.runs import compare_runs

    return compare_runs(folders)


def _write(comparison: Comparison, text: str, folder: Path, force: bool) -> list[Path]:
    from pyddpdiag.bench.compare.shown import charts, page
    from pyddpdiag.report.charts.picture import as_png
    from pyddpdiag.system.result_files import refuse_existing, write_whole

    drawn = charts(comparison)
    paths = [folder / name for name in (*_FILES, *(f"compare-{chart.name}.png" for chart in drawn))]
    refuse_existing(paths, force, _OPTION)
    # All of it is made before any of it is written.
    contents: list[str | bytes] = [text + "\n", page(comparison), *map(as_png, drawn)]
    for path, content in zip(paths, contents, strict=True):
        write_whole(path, content, force=force, option=_OPTION)
    return paths
