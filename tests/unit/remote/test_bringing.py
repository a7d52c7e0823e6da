"""Traces to a URL and from there, by the file systems that need no server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.contents import contents
from support.trace_writer import write_training

from pyddpdiag.cli import main
from pyddpdiag.errors import PackageMissingError, RemoteError, TraceError, TraceExistsError, UsageError
from pyddpdiag.export.notebook import load
from pyddpdiag.pipeline import load_report
from pyddpdiag.remote import carrier as carrying
from pyddpdiag.remote import place as places
from pyddpdiag.remote.carrier import Carrier, remove_brought, require_free
from pyddpdiag.remote.copy import Copy, at_hand, copied, copied_while
from pyddpdiag.remote.place import Place, name_of, shown


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write_training(folder)
    return folder


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path.as_posix()}/far/run"
        return
    yield "memory://far/run"
    fsspec.filesystem("memory").store.clear()
    fsspec.filesystem("memory").pseudo_dirs[:] = [""]


def content(folder: Path) -> dict[str, bytes]:
    return contents(folder.iterdir())


def alter(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_what_comes_back_is_what_was_brought(run: Path, url: str) -> None:
    before = content(run)
    brought = Carrier(run, Place(url)).finish()
    assert not brought.trouble
    remove_brought(run, brought)
    assert not run.exists()
    with at_hand(url) as copy:
        assert content(copy) == before
        verdict = load_report(copy).verdict
    assert not copy.exists()
    write_training(run)
    assert verdict == load_report(run).verdict


def test_commands_read_urls(run: Path, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", str(run), "--into", url]) == 0
    assert "2 traces of 2 ranks" in capsys.readouterr().out
    for command, local in (
        (["report", url, "--json"], ["report", str(run), "--json"]),
        (["plan", url], ["plan", str(run)]),
    ):
        found = main(command), capsys.readouterr().out
        assert "/tmp/pyddpdiag-" not in found[1]
        assert found == (main(local), capsys.readouterr().out.replace(str(run), url))
    target = tmp_path / "exported"
    assert main(["export", url, "--chrome", "--output-dir", str(target)]) == 0
    assert list(target.iterdir())
    assert main(["compare", url, str(run)]) == 0
    assert main(["watch", url, "--once"]) == main(["watch", str(run), "--once"])
    capsys.readouterr()
    assert main(["hang", url]) == main(["hang", str(run)])
    assert main(["collect", url, "--into", str(tmp_path / "back")]) == 0
    assert content(tmp_path / "back") == content(run)


def test_python_reads_urls(run: Path, url: str) -> None:
    pytest.importorskip("pandas")
    assert not Carrier(run, Place(url)).finish().trouble
    there, here = load_report(url), load_report(run)
    assert there.folder == url
    assert (there.verdict, there.ranks, there.warnings) == (here.verdict, here.ranks, here.warnings)
    loaded = load(url)
    assert loaded.report.folder == url and loaded.verdict == here.verdict
    assert len(loaded.occurrences) == len(load(run).occurrences) > 0
    # Damage is said of what was copied, and not of a copy that is gone.
    Place(url).write("rank_1.ddptrace", (run / "rank_1.ddptrace").read_bytes()[:100])
    (said,) = [line for line in load_report(url).warnings if "truncated" in line]
    assert f"{url}/rank_1.ddptrace: truncated" in said
    with pytest.raises(TraceError, match="no traces there"):
        load_report(f"{url}-of-nobody")


def test_pieces_bring_only_what_changed(run: Path, url: str) -> None:
    place = Place(url)
    carrier = Carrier(run, place, every_s=1)
    trace = run / "rank_0.ddptrace"
    with trace.open("r+b") as file:
        file.truncate(3 * 2**20)
    carrier.sync()
    with copied_while(url, 3600) as renewed:
        assert renewed.every_s == 1
        assert content(renewed.folder) == content(run)
        with pytest.raises(RemoteError, match="nothing new was brought"):
            renewed.require_renewed()
    # A new piece, and later ones left alone.
    sizes: list[str] = []
    write = place.write
    place.write = lambda name, data: (sizes.append(name), write(name, data))[1]  # type: ignore[method-assign]
    alter(trace, 2 * 2**20 + 5, b"x")
    with copied(url) as copy:
        carrier.sync()
        copy.refresh()
        assert content(copy.folder) == content(run)
    assert [name.rpartition("/")[2] for name in sizes if "rank_0" in name] == ["2", "index.json"]
    # Whole in the end: no pieces left.
    assert not carrier.finish().trouble
    assert place.folders() == []
    with at_hand(url) as folder:
        assert content(folder) == content(run)


def test_half_a_whole_file_does_not_hide_its_pieces(run: Path, url: str) -> None:
    place = Place(url)
    Carrier(run, place, every_s=1).sync()
    place.write("rank_1.ddptrace", (run / "rank_1.ddptrace").read_bytes()[:5000])
    with at_hand(url) as folder:
        assert content(folder) == content(run)


def test_half_a_file_without_pieces_is_damage(
    run: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(url)
    assert not Carrier(run, place).finish().trouble
    place.write("rank_1.ddptrace", (run / "rank_1.ddptrace").read_bytes()[:5000])
    main(["report", url, "--all"])
    assert "rank_1.ddptrace: truncated" in " ".join(capsys.readouterr().out.split())
    # What is still on its machine mends it.
    assert main(["collect", str(run), "--into", url]) == 0
    with at_hand(url) as folder:
        assert content(folder) == content(run)


def test_a_damaged_index_and_pieces_cut_short_are_said(run: Path, url: str) -> None:
    place = Place(url)
    Carrier(run, place).sync()
    place.write("rank_0.ddptrace.live/0", b"short")
    with pytest.raises(RemoteError, match=r"5 of .* bytes came"), at_hand(url):
        pass
    for index in (b"{", b"[]", b'{"size": 9e99, "pieces": {}, "round": 1, "every_s": 0}', b'{"size": 4}'):
        place.write("rank_0.ddptrace.live/index.json", index)
        with copied(url, may_be_empty=True) as copy:
            assert not (copy.folder / "rank_0.ddptrace").exists()


def test_a_second_run_is_refused_and_changes_nothing(run: Path, url: str, tmp_path: Path) -> None:
    place = Place(url)
    require_free(place)
    assert not Carrier(run, place).finish().trouble
    with pytest.raises(TraceExistsError, match="traces already"):
        require_free(place)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    for trace in other.glob("*.ddptrace"):
        alter(trace, 48, b"another run's id")
    brought = Carrier(other, place).finish()
    assert "another run" in brought.trouble and not brought.files
    with pytest.raises(RemoteError, match="another run"):
        Carrier(other, place).sync()
    with at_hand(url) as folder:
        assert content(folder) == content(run)


def test_a_link_that_breaks_is_tried_again_and_loses_nothing(
    run: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "PAUSE_S", 0.0)
    place = Place(url)
    put, calls = place.put, 0

    def breaks(path: Path, name: str) -> None:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            place.write(name, path.read_bytes()[:100])
            raise RemoteError("the link broke")
        put(path, name)

    place.put = breaks  # type: ignore[method-assign]
    assert not Carrier(run, place).finish().trouble
    with at_hand(url) as folder:
        assert content(folder) == content(run)


def test_a_place_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    import threading

    place = Place("memory://far/slow", limit_s=0.2)
    gone = threading.Event()
    monkeypatch.setattr(place, "_fs", _Silent(gone))
    brought = Carrier(run, place).finish()
    gone.set()
    assert "no answer within" in brought.trouble
    assert (run / "rank_0.ddptrace").exists()


class _Silent:
    def __init__(self, gone: Any) -> None:
        self._gone = gone

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self._gone.wait(60)


@pytest.mark.skipif(
    os.name == "nt" or (os.geteuid() == 0 and not Path("/dev/full").exists()), reason="no full disk"
)
def test_a_full_disk_at_the_place_is_said(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "PAUSE_S", 0.0)
    (tmp_path / "far").mkdir()
    for path in run.iterdir():
        (tmp_path / "far" / f"{path.name}.part").symlink_to("/dev/full")
    before = content(run)
    brought = Carrier(run, Place(f"file://{tmp_path}/far")).finish()
    assert "No space left" in brought.trouble and "make room there" in brought.trouble
    assert content(run) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk")
def test_a_full_disk_here_is_said(run: Path, tmp_path: Path) -> None:
    place = Place("memory://far/much")
    assert not Carrier(run, place).finish().trouble
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "rank_1.ddptrace.part").symlink_to("/dev/full")
    with pytest.raises(RemoteError, match=f"no room for a copy in {tmp_path}: No space left") as raised:
        Copy(place, tmp_path / "copy").refresh()
    assert "TMPDIR" in str(raised.value)
    # Nothing is lost, and there is room elsewhere.
    Copy(place, tmp_path / "elsewhere").refresh()
    assert content(tmp_path / "elsewhere") == content(run)


@pytest.mark.skipif(os.name == "nt", reason="no limit on the size of files")
def test_pieces_for_which_there_is_no_room_here_are_said(run: Path, tmp_path: Path) -> None:
    import resource

    place = Place("memory://far/pieces")
    Carrier(run, place).sync()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(RemoteError, match=f"no room for a copy in {tmp_path}"):
            Copy(place, tmp_path / "copy").refresh()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    Copy(place, tmp_path / "elsewhere").refresh()
    assert content(tmp_path / "elsewhere") == content(run)


def test_two_runs_at_one_place_are_told_apart(run: Path, url: str, tmp_path: Path) -> None:
    write_training(tmp_path / "other", world_size=3)
    place = Place(url)
    assert not Carrier(run, place).finish().trouble
    # As copies made by hand do, which nobody could refuse.
    other = bytearray((tmp_path / "other" / "rank_2.ddptrace").read_bytes())
    other[48:64] = b"another run's id"
    place.write("rank_2.ddptrace", bytes(other))
    report = load_report(url)
    assert report.run_id == load_report(run).run_id and [rank.rank for rank in report.ranks] == [0, 1]
    assert any("traces of 2 runs are mixed" in line and "rank_2.ddptrace" in line for line in report.warnings)


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("nonsense://host/run", UsageError, "Protocol not known"),
        ("memory://", UsageError, "names no folder"),
        ("memory://nothing/here", TraceError, "no traces there"),
    ],
)
def test_wrong_urls_are_refused(url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words), at_hand(url):
        pass


def test_without_fsspec_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(PackageMissingError, match=r"pyddpdiag\[remote\]"):
        Place("s3://bucket/run")


def test_no_password_is_shown() -> None:
    assert shown("sftp://me:secret@host/run") == "sftp://...@host/run"
    assert name_of("s3://bucket/runs/one/") == "one"
    assert places.is_url("s3://b/x") and not places.is_url("C:\\runs\\x") and not places.is_url("runs/x")


def test_names_that_lead_elsewhere_are_not_copied(run: Path, tmp_path: Path) -> None:
    place = Place("memory://far/names")
    assert not Carrier(run, place).finish().trouble
    for name in ("rank_0.ddptrace.part", "other.txt", "rank_0..evil/x"):
        place.write(name, b"x")
    with at_hand("memory://far/names") as folder:
        assert content(folder) == content(run)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (OSError(28, "No space left on device"), "make room"),
        (PermissionError(13, "Forbidden"), "keys or the password"),
        (RuntimeError("SpnegoError: STATUS_LOGON_FAILURE"), "keys or the password"),
        (FileNotFoundError("The specified bucket does not exist"), "exist"),
        (ConnectionRefusedError(111, "Connection refused"), "reachable"),
        (OSError("Failure"), "is there room"),
    ],
)
def test_what_a_place_refuses_comes_with_what_to_do(error: Exception, word: str) -> None:
    def refuse() -> None:
        raise error

    with pytest.raises(RemoteError) as caught:
        places.within(5, "cannot write", refuse)
    assert word in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), True),
        (OSError("Socket is closed"), True),
        (EOFError(), True),
        (PermissionError(13, "Permission denied"), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_a_lost_connection_is_made_again_and_only_that(
    url: str, monkeypatch: pytest.MonkeyPatch, error: Exception, again: bool
) -> None:
    class Lost:
        def __getattr__(self, name: str) -> object:
            raise error

    place = Place(url)
    place.write("rank_0.json", b"{}")
    monkeypatch.setattr(place, "_fs", Lost())
    if again:
        assert place.read("rank_0.json") == b"{}"
        return
    for _ in range(2):
        with pytest.raises(RemoteError):
            place.read("rank_0.json")


def test_a_class_of_its_own_for_no_such_folder(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnError(OSError):
        pass

    def absent(*_: object, **__: object) -> None:
        raise OwnError(2, "No such file or directory")

    place = Place(url)
    monkeypatch.setattr(place._fs, "ls", absent)
    assert place.sizes() == {}
