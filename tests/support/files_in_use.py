"""Files that somebody has open, as Windows says it of them, on every system."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHARING_VIOLATION = 32
ACCESS_DENIED = 5


def in_use_error(path: object, number: int = SHARING_VIOLATION) -> PermissionError:
    """What Windows raises."""
    error: Any = PermissionError(13, "The process cannot access the file", str(path))
    error.winerror = number
    return error  # type: ignore[no-any-return]


def in_use(
    monkeypatch: pytest.MonkeyPatch, times: int, which: Callable[[Path], bool] = lambda _: True
) -> list[Path]:
    """Lets the next so many replacements fail, of files that `which` chooses; the list grows with each that fails."""
    real = os.replace
    failed: list[Path] = []

    def replace(source: Any, target: Any, **options: Any) -> None:
        if len(failed) < times and which(Path(target)):
            failed.append(Path(target))
            raise in_use_error(target)
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", replace)
    return failed
