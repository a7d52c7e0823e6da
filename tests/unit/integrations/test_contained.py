"""What torch calls of ours raises nothing into a training, and what a script raises comes through."""

import signal
from types import FrameType

import pytest

from pyddpdiag.integrations.contained import _Contained


def test_an_error_of_ours_ends_there_and_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    contained = _Contained()
    for _ in range(2):
        with contained:
            raise KeyError("shape")
    [line] = capsys.readouterr().err.splitlines()
    assert "not all is recorded: KeyError: 'shape', at test_contained.py:" in line


def test_what_is_no_error_of_ours_passes() -> None:
    def handler(_: int, __: FrameType | None) -> None:
        raise TimeoutError("the script's own")

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(TimeoutError, match="the script's own"), _Contained():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt), _Contained():
        raise KeyboardInterrupt
    contained, error = _Contained(), ValueError("ranks would differ")
    contained.let_pass(error)
    with pytest.raises(ValueError, match="ranks would differ"), contained:
        raise error
