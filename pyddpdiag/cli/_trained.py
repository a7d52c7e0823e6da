"""What `pyddpdiag train` shows when it has trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyddpdiag.errors import RankFailedError
from pyddpdiag.output import say
from pyddpdiag.train import TrainResult
from pyddpdiag.train.summary import keep, summary


def show_details(error: RankFailedError) -> None:
    """The traceback of the rank that failed, on standard error."""
    if error.details:
        say(error.details, sys.stderr)


def show(result: TrainResult, as_json: bool) -> None:
    """What was trained, and the report of the trace if there is one."""
    from pyddpdiag.pipeline import explain_gpus, print_report

    low_use = explain_gpus(result.gpus, result.trace)
    try:
        keep(result)
    except OSError as error:
        say(f"The losses were not written beside the trace: {error.strerror or error}.", sys.stderr)
    if as_json:
        say(json.dumps(summary(result, low_use), indent=2))
        return
    accuracy = f"Test accuracy {result.accuracy:.2%}" if result.history else "Done"
    say(
        f"{accuracy} after {len(result.history)} epochs in {result.seconds:.1f} s, "
        f"{result.world_size} ranks, {result.buckets} buckets, hook {result.hook}."
    )
    for use in result.gpus:
        why = low_use.get(use.rank)
        say(str(use) if why is None else f"{use} {why.advice}")
    if result.trace is None:
        say("Nothing was recorded, so there is no report; --hook native records training.")
        return
    sys.stdout.flush()
    print_report(Path(result.trace))
