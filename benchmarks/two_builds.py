"""Flattening by two builds of the native module, side by side: what a change of compiler, flags or threads costs.

Run: python benchmarks/two_builds.py BEFORE AFTER, each the Python of an environment that has its build installed
(`.nox/torch-3.11/bin/python` of two worktrees). Two processes live through the run and take turns, in random order
within each round; the figures are medians over rounds of the ratio within a round, with 95% intervals.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

import torch
from harness.gradients import LISTS

import pyddpdiag
from pyddpdiag.bench.intervals import estimate, ratio, shuffled

CASES = [(kind, threads) for kind in LISTS for threads in (1, 2)]
SCALE = 0.5


def serve() -> None:
    """Answers each line `KIND THREADS REPEATS` with the seconds that one flattening took."""
    tensors = {kind: make() for kind, make in LISTS.items()}
    outs = {kind: torch.empty(sum(t.numel() for t in those)) for kind, those in tensors.items()}
    print("ready", flush=True)
    for line in sys.stdin:
        kind, threads, repeats = line.split()
        torch.set_num_threads(int(threads))
        # Once untimed: threads that slept are awake, and the caches are this process's.
        pyddpdiag.flatten(tensors[kind], out=outs[kind], scale=SCALE)
        begin = time.perf_counter()
        for _ in range(int(repeats)):
            pyddpdiag.flatten(tensors[kind], out=outs[kind], scale=SCALE)
        print((time.perf_counter() - begin) / int(repeats), flush=True)


class Build:
    """A process that flattens with one of the builds."""

    def __init__(self, python: str) -> None:
        command = [python, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read()

    def read(self) -> str:
        """Its next line; the program ends when the process has."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"two_builds.py: {self.process.args} ended with code {self.process.wait()}")
        return line

    def seconds(self, kind: str, threads: int) -> float:
        """One measurement."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{kind} {threads} {1 if kind == 'resnet50' else 20}\n")
        self.process.stdin.flush()
        return float(self.read())

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(before: str, after: str, rounds: int) -> None:
    """Measures every case by both builds and prints the ratios."""
    builds = {"before": Build(before), "after": Build(after)}
    order = random.Random(0)
    measured = {case: {name: [] for name in builds} for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            for name in shuffled(list(builds), order):
                measured[case][name].append(builds[name].seconds(*case))
    for build in builds.values():
        build.end()
    for (kind, threads), times in measured.items():
        best = min(times["after"]) / min(times["before"])
        print(
            f"{kind:10} {threads} threads: before {estimate([1e3 * s for s in times['before']])} ms, "
            f"after / before {ratio(times, 'after', 'before')}, best / best {best:.3f}"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("before", help="the Python that has the first build")
        parser.add_argument("after", help="the Python that has the second build")
        parser.add_argument("--rounds", type=int, default=100)
        arguments = parser.parse_args()
        compare(arguments.before, arguments.after, arguments.rounds)
