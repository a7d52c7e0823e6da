"""Mutated traces and sidecars, many of them. A failure names the case; `attack(..., seed=case)` repeats it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.attack import attack, length


@pytest.mark.timeout(0)
def test_mutated_files(
    tmp_path: Path, figures: Callable[[object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"  {text}", flush=True)

    found = attack(tmp_path, length(), tell=tell)
    figures(found)
    assert found.cases > 0
    # Some mutations leave a file that can be read, and some don't: else they would attack nothing.
    assert 0.05 < found.read / found.cases < 0.999
    assert found.slowest_s < 60
    assert found.slowest_bytes < 256 * 2**20
