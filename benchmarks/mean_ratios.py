"""Ratios of mean times from a result file, as a table in Markdown: for busy machines, where medians hit chance.

Run: python3 dev.py bench benchmarks/bench_shared_memory.py -k test_sum_alone --rounds 100 --benchmark-json=sums.json
     python benchmarks/mean_ratios.py sums.json
For our ways of each sum, the others' mean time over theirs, with 95% intervals (bootstrap over rounds).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyddpdiag.bench.intervals import RESAMPLES

OURS = "shared memory"


def ratio_of_means(values: Sequence[float], base: Sequence[float]) -> str:
    """The mean of one over that of the other, measured in the same rounds."""
    both = np.array([values, base])
    picks = np.random.default_rng(0).integers(0, both.shape[1], (RESAMPLES, both.shape[1]))
    over, under = both[:, picks].mean(axis=2)
    low, high = np.percentile(over / under, [2.5, 97.5])
    return f"{both[0].mean() / both[1].mean():.2g} [{low:.2g}, {high:.2g}]"


def table(benchmarks: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each of our ways of each sum."""
    rounds = {(row["group"], row["params"]["way"]): row["stats"]["data"] for row in benchmarks}
    lines = ["| | ms | others' mean over its own |", "|---|---|---|"]
    for (group, way), own in rounds.items():
        if not way.startswith(OURS):
            continue
        others = [key for key in rounds if key[0] == group and key[1] != way]
        ratios = ", ".join(f"{name} {ratio_of_means(rounds[group, name], own)}" for _, name in others)
        lines.append(f"| {group}: {way} | {1e3 * float(np.mean(own)):.3g} | {ratios} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the file and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="a file of --benchmark-json")
    results = json.loads(parser.parse_args(arguments).results.read_text(encoding="utf-8"))
    print("\n".join(table(results["benchmarks"])))


if __name__ == "__main__":
    main()
