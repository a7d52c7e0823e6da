"""Lines as shells read them."""

import shlex

import pytest

from pyddpdiag.messages.shells import Command, Shell, write

ARGUMENTS = ("pyddpdiag", "run", "--bucket-cap-mb-list", "1,2", "--", "C:\\my py\\python.exe", "it's", "a&b")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        (
            Shell.POWERSHELL,
            "pyddpdiag run --bucket-cap-mb-list '1,2' -- 'C:\\my py\\python.exe' 'it''s' 'a&b'",
        ),
        (Shell.CMD, 'pyddpdiag run --bucket-cap-mb-list "1,2" -- "C:\\my py\\python.exe" "it\'s" "a&b"'),
    ],
)
def test_a_command_is_quoted_for_windows(shell: Shell, line: str) -> None:
    assert write(Command(ARGUMENTS), shell) == line


def test_a_posix_shell_reads_the_same_arguments() -> None:
    assert shlex.split(write(Command(ARGUMENTS), Shell.POSIX)) == list(ARGUMENTS)
