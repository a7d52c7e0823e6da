"""What the processes of a run have in their environment, and keep where a script removes it."""

import os
from pathlib import Path

import pytest

from pyddpdiag.integrations import asked
from pyddpdiag.integrations.recorded_command import environment
from pyddpdiag.record import elastic
from pyddpdiag.start import environment as kept
from pyddpdiag.start.note import place_of


@pytest.mark.parametrize(("before", "after"), [(None, []), ("", []), (":", ["", ""]), (":/a", ["", "/a"])])
def test_empty_entries_of_pythonpath_stay(
    before: str | None, after: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before.replace(":", os.pathsep))
    first, *others = environment(None)["PYTHONPATH"].split(os.pathsep)
    assert Path(first).name == "startup" and others == after
    # A run within a run adds it once.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([first, *others]))
    assert environment(None)["PYTHONPATH"].split(os.pathsep) == [first, *others]


def test_a_script_may_clear_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_kept", {})
    monkeypatch.setattr(os, "environ", {**os.environ, **environment(tmp_path, lines=False)})
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "2"
    kept.keep()
    os.environ.clear()
    assert (asked.folder(), asked.lines(), asked.is_launched()) == (str(tmp_path), False, False)
    assert elastic.restarts() == 2 and place_of(tmp_path, 1).parent == tmp_path / "attempt-2"
    # What it sets counts.
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "0"
    assert elastic.restarts() == 0
