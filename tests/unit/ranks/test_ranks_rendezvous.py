"""URLs and environments that say where ranks meet."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest

from pyddpdiag.errors import RendezvousError, UsageError
from pyddpdiag.ranks.rendezvous import (
    FileTarget,
    Place,
    TcpTarget,
    file_path,
    join_environment,
    join_url,
    parse_url,
    under_torchrun,
)

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(
    ("url", "flavour", "path"),
    [
        ("file:///tmp/meet", PurePosixPath, "/tmp/meet"),
        ("file://localhost/tmp/meet", PurePosixPath, "/tmp/meet"),
        ("file:///tmp/with%20space", PurePosixPath, "/tmp/with space"),
        ("file:///D:/runs/meet", PureWindowsPath, r"D:\runs\meet"),
        ("file://D:/runs/meet", PureWindowsPath, r"D:\runs\meet"),
        ("file:///D:/with%20space/meet", PureWindowsPath, r"D:\with space\meet"),
        ("file://server/share/meet", PureWindowsPath, r"\\server\share\meet"),
    ],
)
def test_file_url_gives_the_path(url: str, flavour: type, path: str) -> None:
    assert file_path(url, flavour) == flavour(path)


@pytest.mark.parametrize(
    ("url", "flavour", "hint"),
    [
        ("file://tmp/meet", PurePosixPath, "file:///tmp/meet"),
        ("file:///", PurePosixPath, "file:///folder/file"),
        ("file:///tmp/", PurePosixPath, "file:///folder/file"),
        ("file:///tmp/meet", PureWindowsPath, "file:///D:/folder/file"),
        ("file:///D:/", PureWindowsPath, "file:///D:/folder/file"),
        ("file:///D:meet", PureWindowsPath, "file:///D:/folder/file"),
    ],
)
def test_file_url_without_an_absolute_file_is_refused(url: str, flavour: type, hint: str) -> None:
    with pytest.raises(RendezvousError) as caught:
        file_path(url, flavour)
    assert hint in caught.value.hint


def test_a_file_url_is_read_by_the_rules_of_this_system(tmp_path: Path) -> None:
    """Also where this runs in the form of Windows: test_windows_again.py."""
    assert parse_url((tmp_path / "a b").as_uri()) == FileTarget(str(tmp_path / "a b"))
    assert isinstance(file_path((tmp_path / "a").as_uri()), type(Path()))


@pytest.mark.skipif(sys.platform != "win32", reason="these are files on Windows only")
@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///D:/pg", "D:\\pg"),
        ("file://D:/pg", "D:\\pg"),
        ("file://server/share/x", "\\\\server\\share\\x"),
    ],
)
def test_a_file_url_names_a_drive_or_share_on_windows(url: str, path: str) -> None:
    assert join_url(url, 2, 1) == Place(1, 2, 2, FileTarget(path))


def test_tcp_url() -> None:
    assert parse_url("tcp://node0:29500") == TcpTarget("node0", 29500)
    assert parse_url("tcp://[::1]:29500") == TcpTarget("::1", 29500)
    assert parse_url("env://") is None


@pytest.mark.parametrize(
    "url",
    [
        *("tcp://node0", "tcp://:29500", "tcp://node0:0", "tcp://node0:70000", "tcp://node0:x"),
        *("http://a", "a", ""),
    ],
)
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(RendezvousError):
        parse_url(url)


def test_environment_of_torchrun() -> None:
    assert under_torchrun(TORCHRUN)
    assert join_environment(TORCHRUN) == Place(1, 4, 2, TcpTarget("node0", 29500))
    agent = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert join_environment(agent).target == TcpTarget("node0", 29500, agent=True)


def test_options_replace_rank_and_world_size_of_the_environment() -> None:
    place = join_url("env://", 3, 2, TORCHRUN)
    assert (place.rank, place.world_size) == (2, 3)


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_missing_variables_are_named(missing: str) -> None:
    with pytest.raises(RendezvousError, match=missing):
        join_environment({k: v for k, v in TORCHRUN.items() if k != missing})


@pytest.mark.parametrize(
    ("name", "value"),
    [("RANK", "x"), ("RANK", "4"), ("RANK", "-1"), ("WORLD_SIZE", "0"), ("MASTER_PORT", "99999")],
)
def test_bad_variables_are_refused(name: str, value: str) -> None:
    with pytest.raises((RendezvousError, UsageError)):
        join_environment({**TORCHRUN, name: value})


@pytest.mark.parametrize(("world_size", "rank"), [(None, 0), (2, None), (2, 2), (2, -1), (0, 0)])
def test_url_needs_a_rank_within_the_world(world_size: int | None, rank: int | None) -> None:
    with pytest.raises(UsageError):
        join_url("tcp://node0:29500", world_size, rank)


def test_url_with_world() -> None:
    assert join_url("tcp://node0:29500", 2, 1) == Place(1, 2, 2, TcpTarget("node0", 29500))
    assert isinstance(join_url("file:///C:/meet", 2, 1).target, FileTarget)
