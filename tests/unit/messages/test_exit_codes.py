"""Exit codes in words, and on their way through this program."""

import ctypes

import pytest

from pyddpdiag.cli import main
from pyddpdiag.integrations import recorded_command
from pyddpdiag.integrations.early_end import Early, why_nothing
from pyddpdiag.messages.exit_codes import ended, shown, to_pass_on

CRASH = 0xC0000005


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "0"),
        (137, "137"),
        (CRASH, "0xC0000005 (access violation)"),
        (0xC0000374, "0xC0000374 (heap corruption)"),
        (0xC0FFEE00, "0xC0FFEE00"),
    ],
)
def test_a_code_of_windows_is_shown_as_its_documents_write_it(code: int, text: str) -> None:
    assert shown(code) == text
    assert ended(code) == f"ended with exit code {text}"
    assert f"exit code {text} before" in why_nothing(Early(), code) or not code


@pytest.mark.parametrize("code", [0, 7, 137, 2**31 - 1, 2**31, CRASH, 2**32 - 1])
def test_a_code_is_passed_on_as_it_is(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes a C long of it, of 32 bits on Windows, and -1 of what does not fit."""
    monkeypatch.setattr(recorded_command, "run", lambda *_, **__: code)
    for passed in (to_pass_on(code), main(["run", "--", "python", "train.py"])):
        assert -(2**31) <= passed < 2**31
        assert ctypes.c_uint32(passed).value == code
