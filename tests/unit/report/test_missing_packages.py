"""A package that a command needs for its files is missed before it reads or runs anything."""

import sys
from pathlib import Path

import pytest

from pyddpdiag.cli import main


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (("report", "gone", "--html", "page.html", "--charts"), "plotly"),
        (("report", "file:///gone", "--html", "page.html", "--charts"), "plotly"),
        (("report", "gone", "--png", "pictures"), "matplotlib"),
        (("compare", "gone", "away", "--output-dir", "out"), "matplotlib"),
        (("export", "gone", "--parquet"), "pyarrow"),
    ],
)
def test_it_is_missed_first(
    command: tuple[str, ...],
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("plotly", "matplotlib", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{package}, which is not installed" in said and "pip install" in said
    assert not list(tmp_path.iterdir())
