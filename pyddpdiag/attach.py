"""`python -m pyddpdiag.attach [--trace DIR] train.py ...`: runs a script and records every DDP module in it.

The script is not changed. It may be a rank that a launcher starts (`torchrun ... -m pyddpdiag.attach train.py`), or
start its ranks itself. `pyddpdiag run` does the same around any launch command (docs/integrations.md).
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.integrations import recorded_command, unchanged
from pyddpdiag.output import say

USAGE = "usage: python -m pyddpdiag.attach [--trace DIR] (train.py | -m MODULE) [ARGUMENTS]"


def main(arguments: Sequence[str]) -> None:
    """Runs the script in this process. Its exceptions, and its exit, are this one's.

    Raises:
        UsageError: no script is named, or there is none of this name.
    """
    rest = list(arguments)
    trace = None
    if rest[:1] == ["--trace"] and len(rest) > 1:
        trace = Path(rest[1])
        del rest[:2]
    is_module = rest[:1] == ["-m"]
    if is_module:
        del rest[:1]
    if not rest or rest[0].startswith("-"):
        raise UsageError("no script is named.", hint=USAGE)
    if not is_module and not Path(rest[0]).is_file():
        raise UsageError(f"there is no script '{rest[0]}'.", hint=USAGE)
    is_rank = "RANK" in os.environ
    folder = trace if trace is not None or is_rank else recorded_command.new_folder()
    os.environ.update(recorded_command.environment(folder))
    unchanged.watch_imports()
    sys.argv = rest
    try:
        if is_module:
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(rest[0]).resolve().parent)
            runpy.run_path(rest[0], run_name="__main__")
    finally:
        if not is_rank and folder is not None:
            recorded_command.show(folder)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PyddpdiagError as error:
        say(f"error: {error}", sys.stderr)
        sys.exit(2)
