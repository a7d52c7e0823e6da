"""A package that a command needs for its files is missed before it reads or runs anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyddpdiag.cli import main


@pytest.mark.parametrize(
    ("command", "package"),
    [
        (("report", "gone", "--html", "page.html"), "plotly"),
        (("report", "file:///gone", "--html", "page.html"), "plotly"),
        (("report", "gone", "--png", "pictures"), "matplotlib"),
        (("plan", "gone", "--html", "page.html"), "plotly"),
        (("compare", "gone", "away", "--output-dir", "out"), "plotly"),
        (("compare", "gone", "away", "--output-dir", "out"), "matplotlib"),
        (("export", "gone", "--parquet"), "pyarrow"),
        (("try", "--html", "page.html", "--", "no-such-program"), "plotly"),
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
    if package == "matplotlib":
        monkeypatch.setattr("pyddpdiag.report.charts.plotly._program", lambda: tmp_path)
    assert main(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{package}, which is not installed" in said and "pip install" in said
    assert not list(tmp_path.iterdir())
