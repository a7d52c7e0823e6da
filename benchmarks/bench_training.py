"""`pyddpdiag train`'s loop beside the same loop by hand in plain torch, and how long image loading takes of a step.

Run: python3 dev.py bench benchmarks/bench_training.py. The ratios of the first case are within a round, in the same
processes; their medians and 95% intervals stand in the JSON under `extra_info`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness.ranks import run
from harness.training import loader_share, make_photos, measure

from pyddpdiag.bench.intervals import estimate, ratio

ROUNDS = 12


def test_throughput_against_a_loop_by_hand(benchmark: Any) -> None:
    """One epoch of the digits with its test, 2 ranks; below 1 is faster than by hand."""
    measured = benchmark.pedantic(lambda: run(measure, 2, ROUNDS), rounds=1, iterations=1)
    figures: dict[str, Any] = {}
    for name in ("plain", "native"):
        figures[name] = ratio(measured, name, "by hand").as_dict()
        print(f"\n{name:7} time / by hand {ratio(measured, name, 'by hand')}", end="")
    print(f"\nby hand {estimate(measured['by hand'])} s per epoch", end="")
    benchmark.extra_info.update(ranks=2, rounds=ROUNDS, time_ratio_to_by_hand=figures)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_share_of_loading_images(benchmark: Any, workers: int) -> None:
    """ResNet-18 at 64 pixels on JPEG files of 320 pixels, 2 ranks: waiting for data over all."""
    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder), per_class=60)
        waited, seconds, images = benchmark.pedantic(
            lambda: run(loader_share, 2, folder, workers), rounds=1, iterations=1
        )
    print(
        f"\n{workers} workers: data wait {waited / seconds:.1%} of {seconds:.1f} s, {images / seconds:.1f} images/s"
    )
    benchmark.extra_info.update(
        ranks=2, workers=workers, data_wait_share=waited / seconds, images_per_s=images / seconds
    )
