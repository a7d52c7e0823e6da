"""What is copied from a run's folder, into which somebody else may write: regular files of it, and nothing else."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.contents import contents, held_by
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.integrations.bringing import Bringing, Gather, run_gather
from pyddpdiag.remote.gather import Gatherer
from pyddpdiag.remote.local import files_of, links_of, open_own
from pyddpdiag.system.regular_file import NotAFileError, is_link

SECRET = b"root:x:0:0"
LINKS = ["attempt-1", "rank_2.json", "rank_2.lines"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a link to a file, one to nothing, and one to a folder with names of a run."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    write_training(folder)
    elsewhere.mkdir()
    for name in ("passwd", "rank_3.json"):
        (elsewhere / name).write_bytes(SECRET)
    try:
        (folder / "rank_2.json").symlink_to(elsewhere / "passwd")
    except OSError:
        pytest.skip("this user may not make links here")
    (folder / "rank_2.lines").symlink_to(elsewhere / "nothing")
    (folder / "attempt-1").symlink_to(elsewhere, target_is_directory=True)
    return folder


def plain(folder: Path) -> dict[str, bytes]:
    """Its files as the links' owner did not make them."""
    return contents(path for path in folder.iterdir() if path.name not in LINKS)


def whole(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: held_by(path) for name, path in found.items()}


def by_collect(run: Path, into: Path) -> None:
    assert main(["collect", str(run), "--into", str(into)]) == 0


def by_collect_to_a_url(run: Path, into: Path) -> None:
    assert main(["collect", str(run), "--into", into.as_uri()]) == 0


def by_collect_from_a_url(run: Path, into: Path) -> None:
    assert main(["collect", run.as_uri(), "--into", str(into)]) == 0


def by_a_url_of_the_run(run: Path, into: Path) -> None:
    Bringing(into.as_uri(), run, 0).finish()


def by_gather(run: Path, into: Path) -> None:
    write_training(into)
    for path in into.glob("rank_1.*"):
        path.unlink()
    first = Gatherer(into, 2, 0, [SECRET])
    thread = threading.Thread(target=first.gather, args=(60,))
    thread.start()
    run_gather(run, Gather(1, 2, "127.0.0.1", first.port), [SECRET])
    thread.join()


@pytest.mark.parametrize(
    "bring", [by_collect, by_collect_to_a_url, by_collect_from_a_url, by_a_url_of_the_run, by_gather]
)
def test_links_are_named_and_left(
    run: Path, bring: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    into, files = run.parent / "into", plain(run)
    bring(run, into)
    said = capsys.readouterr()
    assert whole(into) == files
    assert all(name in said.out + said.err for name in LINKS), said


def test_a_link_that_takes_a_files_place_later_is_not_opened(run: Path) -> None:
    assert "rank_1.json" in files_of(run) and links_of(run) == LINKS
    (run / "rank_1.json").unlink()
    (run / "rank_1.json").symlink_to(run.parent / "elsewhere" / "passwd")
    with pytest.raises(NotAFileError, match="it is a link"):
        open_own(run / "rank_1.json")


def test_a_file_of_two_names_is_no_link(run: Path) -> None:
    """As `cp -l` makes copies."""
    os.link(run / "rank_1.json", run.parent / "another")
    assert "rank_1.json" in files_of(run)
    with open_own(run / "rank_1.json") as file:
        assert file.read_on(2**20) == (run.parent / "another").read_bytes() and file.read_on(1) == b""


@pytest.mark.parametrize(
    ("mode", "tag", "leads"),
    [
        (stat.S_IFREG, 0, False),
        (stat.S_IFDIR, 0, False),
        (stat.S_IFLNK, 0xA000000C, True),
        (stat.S_IFDIR, 0xA0000003, True),  # a junction (IO_REPARSE_TAG_MOUNT_POINT)
    ],
)
def test_junctions_of_windows_are_links(mode: int, tag: int, leads: bool) -> None:
    seen: Any = SimpleNamespace(st_mode=mode, st_reparse_tag=tag)
    assert is_link(cast(os.stat_result, seen)) is leads
