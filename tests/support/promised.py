"""What a machine may lack, and what it has promised to have: PYDDPDIAG_PROMISED holds names, by commas."""

import os

import pytest


def need(name: str, refused: str) -> None:
    """Skips the test for the reason `refused`, "" for none; fails it where `name` is promised."""
    if not refused:
        return
    if name in os.environ.get("PYDDPDIAG_PROMISED", "").split(","):
        pytest.fail(f"'{name}' is promised here, but: {refused}")
    pytest.skip(refused)
