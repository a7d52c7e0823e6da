"""What 16 bits would save, by a model of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.laid_out import MB, number, write

SIZES = [MB, 8 * MB, 8 * MB, 8 * MB]


def test_a_slow_link_would_carry_half(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, ms_per_mb=4.0)
    # 100 ms of transfers, nearly all after backward.
    assert number(found, "half_saves_ms") == pytest.approx(0.4 * 100.0, rel=0.1)
    assert "less data (bfloat16, which would save about 4" in found.advice


def test_latency_stays(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, latency_ms=5.0, ms_per_mb=4.0)
    assert number(found, "half_saves_ms") == pytest.approx(0.4 * 100.0, rel=0.15)


def test_few_bytes_take_as_long_in_16_bits(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [84], latency_ms=12.0, compute_ms=5.0)
    assert found.evidence["half_saves_ms"] is None


def test_gradients_that_have_16_bits_gain_nothing(tmp_path: Path) -> None:
    (found,) = write(tmp_path, SIZES, ms_per_mb=4.0, dtype="bfloat16")
    assert found.evidence["half_saves_ms"] is None and "bfloat16" not in found.advice
