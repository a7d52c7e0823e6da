"""Tests of rendezvous, commands, paths and URLs once more, in a process that takes itself for Windows.

See support/windows_form.py. `.ci/run` has this in the sessions `test` and `windows`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import python

UNIT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 300
# All tests of a file, or those that need neither the files of the tree nor processes in its folders.
AGAIN = (
    "ranks/test_ranks_rendezvous.py",
    "ranks/test_ranks_leftovers.py",
    "ranks/test_ranks_meeting_file.py",
    "train/test_train_settings.py",
    "ranks/test_ranks_failure.py",
    "tree/test_documented_commands.py",
    # Their folders and what stands in them: as an example of tests that write runs. Those that need no extra package.
    "export/test_loaded.py::test_it_shows_itself_without_a_script",
    "export/test_loaded.py::test_it_escapes_what_comes_from_elsewhere",
    "export/test_loaded.py::test_no_run_is_an_error",
    "tree/test_windows_forms.py::test_windows_refuses_a_name_and_lacks_signals",
    "tree/test_windows_forms.py::test_a_drive_path_survives_its_url",
    "tree/test_windows_forms.py::test_a_network_path_survives_its_url",
    "tree/test_windows_forms.py::test_the_article_url_names_its_place",
    "tree/test_windows_forms.py::test_names_that_are_made_up_here_are_names_on_windows",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="on Windows itself they run as they are"),
]


def once_more(*options: str) -> subprocess.CompletedProcess[str]:
    return python(
        *("-m", "pytest", "-p", "support.windows_form", "-p", "no:cacheprovider", "-rA", *options),
        cwd=UNIT.parents[1],
        timeout_s=TIMEOUT_S,
    )


def test_once_more_as_on_windows() -> None:
    done = once_more(*(str(UNIT / name) for name in AGAIN))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    for name in AGAIN:
        assert f"PASSED tests/unit/{name}" in done.stdout
    # What only Windows has is not left out there.
    assert (
        "PASSED tests/unit/ranks/test_ranks_rendezvous.py::test_a_file_url_names_a_drive_or_share"
        in done.stdout
    )
    assert [line for line in done.stdout.splitlines() if "SKIPPED" in line and "rendezvous" in line] == []


# What a user of Windows ran into first: the default was a class that is of no system there either.
FAULT = """
from pathlib import Path
from pyddpdiag.ranks import rendezvous
rendezvous.file_path.__defaults__ = (Path,)
"""


def test_it_finds_a_default_that_is_of_no_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_fault.py").write_text(FAULT, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    files = (f"{UNIT}/ranks/test_ranks_rendezvous.py", f"{UNIT}/tree/test_documented_commands.py")
    done = once_more("-p", "test_fault", *files)
    assert done.returncode == 1
    assert "RendezvousError" in done.stdout
    for test in ("a_file_url_names_a_drive_or_share", "the_documented_commands_of_this_system"):
        assert re.search(rf"FAILED .*::test_{test}", done.stdout), done.stdout[-4000:]
