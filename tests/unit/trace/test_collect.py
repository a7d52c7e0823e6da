"""One run's traces from the folders of several machines."""

import shutil
from pathlib import Path

import pytest
from support.contents import contents
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_report


@pytest.fixture
def machines(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A run in one folder, and the same in a folder for each machine."""
    whole, one, two = tmp_path / "whole", tmp_path / "one", tmp_path / "two"
    write_training(whole)
    for folder in (one, two):
        folder.mkdir()
    for path in whole.glob("rank_*"):
        shutil.copy(path, one if path.name.startswith("rank_0.") else two)
    return whole, one, two


def test_the_report_is_that_of_a_common_folder(
    machines: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, one, two = machines
    into = whole.parent / "into"
    assert main(["collect", str(one), str(two), "--into", str(into)]) == 0
    assert "2 traces of 2 ranks" in capsys.readouterr().out
    assert contents(into.iterdir()) == contents(whole.iterdir())
    assert load_report(into).verdict == load_report(whole).verdict
    # Again: only if asked for. Into one of the machines' own folders: what is there stays.
    assert main(["collect", str(one), str(two), "--into", str(into)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["collect", str(one), str(two), "--into", str(into), "--force"]) == 0
    assert main(["collect", str(one), str(two), "--into", str(one)]) == 0
    assert load_report(one).verdict == load_report(whole).verdict


def test_what_is_missing_is_said(
    machines: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, one, two = machines
    for path in two.iterdir():
        path.unlink()
    assert main(["collect", str(one), str(two), "--into", str(one.parent / "into")]) == 0
    said = capsys.readouterr().out
    assert f"No trace in {two}" in said and "Missing: ranks 1" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk")
def test_a_full_disk_leaves_no_half_file_and_loses_nothing(
    machines: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, one, two = machines
    into = whole.parent / "into"
    into.mkdir()
    (into / "rank_1.ddptrace.part").symlink_to("/dev/full")
    assert main(["collect", str(one), str(two), "--into", str(into)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "No space left" in said and "its disk has space" in said and "rank_1.ddptrace" in said
    assert not list(into.glob("*.part")) and not (into / "rank_1.ddptrace").exists()
    assert sorted(p.name for p in two.iterdir()) == sorted(p.name for p in whole.glob("rank_1.*"))
    # The same command brings the rest once there is room.
    assert main(["collect", str(one), str(two), "--into", str(into), "--force"]) == 0
    assert load_report(into).verdict == load_report(whole).verdict


def test_half_a_file_is_said_to_be_half(
    machines: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, one, two = machines
    half = two / "rank_1.ddptrace"
    half.write_bytes(half.read_bytes()[:5000])
    into = whole.parent / "into"
    assert main(["collect", str(one), str(two), "--into", str(into)]) == 0
    capsys.readouterr()
    report = load_report(into)
    assert any("rank_1.ddptrace: truncated" in line for line in report.warnings)
    assert all(
        finding.confidence == "low" for finding in report.verdict.findings if finding.severity == "error"
    )


def test_wrong_folders_copy_nothing(
    machines: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, one, two = machines
    into = whole.parent / "into"
    other = whole.parent / "other"
    write_training(other)
    (other / "rank_0.ddptrace").rename(other / "rank_0.txt")
    page = bytearray((other / "rank_1.ddptrace").read_bytes())
    page[48:64] = b"another run's id"
    (other / "rank_1.ddptrace").write_bytes(page)
    empty = whole.parent / "empty"
    empty.mkdir()
    for folders, words in (
        ([one, whole], "two files of the same rank"),
        ([one, other], "traces of 2 runs"),
        ([one, whole.parent / "gone"], "no such folder"),
        ([empty], "no traces in"),
    ):
        assert main(["collect", *map(str, folders), "--into", str(into)]) == 2
        assert words in capsys.readouterr().err
        assert not into.exists()
    (two / "rank_1.ddptrace").write_bytes(b"no trace")
    assert main(["collect", str(one), str(two), "--into", str(into)]) == 2
    assert not into.exists()
