"""How far off the report is about gradients in 16 bits: predicted and measured, as a table in Markdown.

Run: PYTHONPATH=tests python benchmarks/half_gain.py. Both take turns in the same ranks, on hosts with shaped links
(network namespaces: root on Linux); the prediction (`half_saves_ms` of `exposed_communication`) is made from the trace
of 32 bits alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.layouts import HALF, MODELS, RECORDED, Turns, train_layouts
from shared_gain import look
from support.links import why_not

from pyddpdiag.analyse.half_gain import half_gain_ms
from pyddpdiag.analyse.wire_fit import lasting_buckets

LINKS = (1000, 150)
"""In Mbit/s."""


def exposed(folder: Path) -> tuple[float, float | None]:
    """Milliseconds that a step of the trace waits for buckets, and what 16 bits are said to save of them."""
    view = look(folder)
    waits = view.exposure.typical_ms
    return waits, half_gain_ms(waits, lasting_buckets(view.buckets), view.links)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="turns of 12 steps each")
    parser.add_argument("--models", default=",".join(MODELS))
    options = parser.parse_args(arguments)
    missing = why_not()
    if missing:
        sys.exit(f"no links between hosts: {missing}")
    print("| model, link | exposed in 32 bits | in bfloat16 | predicted saving | predicted / measured |")
    print("|---|---|---|---|---|")
    shares = []
    for mbit in LINKS:
        for model in options.models.split(","):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                train_layouts(Turns(model, 2, (), rounds=options.rounds, half=True), folder, mbit)
                before, predicted = exposed(folder / RECORDED)
                after, _ = exposed(folder / HALF)
            assert predicted is not None
            shares.append(predicted / (before - after))
            row = f"{before:.3g} | {after:.3g} | {predicted:.3g} | {shares[-1]:.2f}"
            print(f"| {model}, {mbit} Mbit/s | {row} |", flush=True)
    print(f"\nFrom {min(shares):.2f} to {max(shares):.2f}, {statistics.median(shares):.2f} in the median.")


if __name__ == "__main__":
    main()
