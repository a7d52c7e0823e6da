"""`pyddpdiag train`'s loop beside the same loop by hand in plain torch, and how long image loading takes of a step.

Run: python3 dev.py bench benchmarks/bench_training.py
A round is one epoch; the variants run interleaved in the same processes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.ranks import run
from harness.row import Row, ratios
from harness.training import BY_HAND, Loading, loader_shares, make_photos, measure

ROUNDS = 12
LOADING_ROUNDS = 3


def _base(variant: str) -> list[str]:
    return [] if variant == BY_HAND else [BY_HAND]


@pytest.mark.parametrize("variant", [BY_HAND, "plain", "native"])
def test_throughput_against_a_loop_by_hand(row: Row, variant: str) -> None:
    """One epoch of the digits with its test, 2 ranks; below 1 is faster than by hand."""
    measured = row.once("variant", lambda names: run(measure, 2, names, row.rounds(ROUNDS)), needs=_base)
    row.report(
        "epoch of the digits", measured[variant], ratio_to=ratios(measured, variant, _base(variant)), ranks=2
    )


def _loading(workers: Sequence[int], rounds: int) -> dict[int, Loading]:
    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder), per_class=60)
        found: dict[int, Loading] = run(loader_shares, 2, folder, workers, rounds)
        return found


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_share_of_loading_images(row: Row, workers: int) -> None:
    """ResNet-18 at 64 pixels on JPEG files of 320 pixels, 2 ranks: waiting for data over all."""
    rounds = row.rounds(LOADING_ROUNDS)
    measured = row.once("workers", lambda numbers: _loading(numbers, rounds), needs=lambda _: [0])
    mine = measured[workers]
    seconds = {str(number): loading.seconds for number, loading in measured.items()}
    row.report(
        "epoch of image files, by loader workers",
        mine.seconds,
        ratio_to=ratios(seconds, str(workers), ["0"] if workers else []),
        ranks=2,
        workers=workers,
        data_wait_share=sum(mine.waited) / sum(mine.seconds),
        images_per_s=mine.images / statistics.median(mine.seconds),
    )
