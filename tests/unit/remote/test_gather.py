"""Files of one machine to another over a connection: real sockets on this machine."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from support.trace_writer import write_training

from pyddpdiag.errors import RemoteError, UsageError
from pyddpdiag.integrations.bringing import Gather, gather_of, run_gather
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.integrations.tasks import Task
from pyddpdiag.model.node import NodeNote, note_name
from pyddpdiag.pipeline import load_report
from pyddpdiag.remote import channel, gather, secret
from pyddpdiag.remote.gather import Gathered, Gatherer, send

LONG_S = 120.0
SECRETS = (b"one secret 16 b.",)


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Path, Path]:
    whole, one, two = tmp_path / "whole", tmp_path / "one", tmp_path / "two"
    write_training(whole)
    for folder, rank in ((one, 0), (two, 1)):
        folder.mkdir()
        for path in whole.glob(f"rank_{rank}.*"):
            shutil.copy(path, folder)
    return one, two


def gathered(gatherer: Gatherer, limit_s: float, act: Callable[[], Any]) -> Gathered:
    found: list[Gathered] = []
    thread = threading.Thread(target=lambda: found.append(gatherer.gather(limit_s)))
    thread.start()
    act()
    thread.join()
    return found[0]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_report_is_that_of_a_common_folder(nodes: tuple[Path, Path]) -> None:
    one, two = nodes
    before = content(two)
    first = Gatherer(one, 2, 0, SECRETS)
    found = gathered(first, LONG_S, lambda: _sent(two, first.port))
    assert sorted(found.nodes) == [1] and not found.trouble
    assert content(one) == content(one.parent / "whole") and content(two) == before
    assert load_report(one).verdict == load_report(one.parent / "whole").verdict


def _sent(folder: Path, port: int, node: int = 1, secrets: Sequence[bytes] = SECRETS) -> None:
    send(folder, node, "127.0.0.1", port, secrets, limit_s=LONG_S)


def _refused(words: str, act: Callable[[], None]) -> None:
    with pytest.raises(RemoteError, match=words):
        act()


def test_a_wrong_secret_is_refused_on_both_sides(nodes: tuple[Path, Path]) -> None:
    one, two = nodes
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    found = gathered(
        first,
        3,
        lambda: _refused(
            "does not know this run's secret", lambda: _sent(two, first.port, secrets=[b"x" * 16])
        ),
    )
    assert any("refused: it does not know" in line for line in found.trouble)
    assert content(one) == before


def test_the_identity_that_reports_print_is_no_secret(nodes: tuple[Path, Path]) -> None:
    one, two = nodes
    identity = bytes.fromhex(load_report(one).run_id)
    first = Gatherer(one, 2, 0, SECRETS)
    found = gathered(
        first, 3, lambda: _refused("another run", lambda: _sent(two, first.port, secrets=[identity]))
    )
    assert not found.nodes


def test_machines_that_share_one_attempt_know_each_other(nodes: tuple[Path, Path]) -> None:
    """The first one's rank came as far as its recorder in attempts 0 and 1, the other one's in 1 and 2."""
    one, two = nodes
    keys = [bytes([number]) * 16 for number in range(3)]
    first = Gatherer(one, 2, 0, keys[:2])
    found = gathered(first, LONG_S, lambda: _sent(two, first.port, secrets=[keys[2], keys[1]]))
    assert sorted(found.nodes) == [1]


def test_what_ranks_hand_over_is_read_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not secret.is_wanted() and secret.handed_over(tmp_path / "gone") == ()
    monkeypatch.setenv(secret.FOLDER, str(tmp_path))
    for attempt, value in ((10, b"\x02"), (2, b"\x01"), (2, b"\x01")):
        secret.hand_over((value * 16).hex().encode(), attempt)
    (tmp_path / "secret_3").write_bytes(b"half")
    (tmp_path / "error_1.json").write_bytes(b"{}")
    assert secret.handed_over(tmp_path) == (b"\x01" * 16, b"\x02" * 16)


def _drip(unknown: socket.socket) -> None:
    """Says a byte now and then, until nobody listens any more."""
    with suppress(OSError):
        while True:
            unknown.sendall(b"x")
            time.sleep(0.25)


def _goodbye(unknown: socket.socket) -> None:
    """Waits until the first machine has ended the connection."""
    unknown.settimeout(LONG_S)
    with suppress(ConnectionError):
        while unknown.recv(4096):
            pass


def test_strangers_do_not_delay_the_end(nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """One is silent, one sends a byte now and then, and the first machine is patient: it ends once all nodes are in."""
    monkeypatch.setattr(gather, "KNOWN_S", 10 * LONG_S)
    monkeypatch.setattr(channel, "SILENCE_S", 10 * LONG_S)
    one, two = nodes
    first = Gatherer(one, 2, 0, SECRETS)

    def act() -> None:
        silent, drips = (socket.create_connection(("127.0.0.1", first.port)) for _ in range(2))
        with silent, drips:
            drip = threading.Thread(target=_drip, args=(drips,))
            drip.start()
            for one_of_them in (silent, drips):
                assert one_of_them.recv(1)  # it was let in
            _sent(two, first.port)
            _goodbye(silent)
            drip.join(LONG_S)
            assert not drip.is_alive()

    found = gathered(first, 10 * LONG_S, act)
    assert sorted(found.nodes) == [1] and not found.trouble


def test_a_stranger_must_show_who_it_is_in_time(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that always has something to say."""
    monkeypatch.setattr(gather, "KNOWN_S", 0.5)
    one, two = nodes
    first = Gatherer(one, 2, 0, SECRETS)

    def act() -> None:
        with socket.create_connection(("127.0.0.1", first.port)) as drips:
            _drip(drips)
        _sent(two, first.port)

    found = gathered(first, 10 * LONG_S, act)
    assert sorted(found.nodes) == [1]
    assert [line.partition(": ")[2] for line in found.trouble] == [
        "it did not show in time that it belongs to this run."
    ]


def test_of_many_strangers_the_oldest_goes(nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MOST_UNKNOWN", 3)
    one, two = nodes
    first = Gatherer(one, 2, 0, SECRETS)

    def act() -> None:
        unknown = [socket.create_connection(("127.0.0.1", first.port)) for _ in range(5)]
        for number, connection in enumerate(unknown):
            with connection:
                if number < 2:
                    _goodbye(connection)
                elif number == 2:
                    _sent(two, first.port)

    found = gathered(first, 10 * LONG_S, act)
    assert sorted(found.nodes) == [1]


def test_a_node_that_never_comes_is_named(nodes: tuple[Path, Path]) -> None:
    found = Gatherer(nodes[0], 3, 0, SECRETS).gather(0.3)
    assert [line.split(":")[0] for line in found.trouble] == ["node 1", "node 2"]


def test_a_first_node_that_never_answers_is_said(nodes: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    _refused("did not answer", lambda: send(nodes[1], 1, "127.0.0.1", port, SECRETS, limit_s=0.3))


def test_a_connection_that_breaks_leaves_nothing_behind(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    before = content(one), content(two)
    first = Gatherer(one, 2, 0, SECRETS)
    whole = gather.Channel.send_from

    def half(self: gather.Channel, read: Callable[[int], bytes], size: int, name: str) -> None:
        whole(self, read, size // 2, name)
        self._connection.shutdown(socket.SHUT_RDWR)

    def act() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(gather.Channel, "send_from", half)
            with pytest.raises(RemoteError):
                _sent(two, first.port)

    found = gathered(first, 5, act)
    assert any("bytes before its end" in line for line in found.trouble)
    assert (content(one), content(two)) == before


def test_a_changed_byte_on_the_way_is_noticed(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    plain = gather.Channel.send

    def changed(self: gather.Channel, data: bytes) -> None:
        plain(self, data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 4096 else data)

    def act() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(gather.Channel, "send", changed)
            _refused("changed on the way", lambda: _sent(two, first.port))

    gathered(first, 5, act)
    assert content(one) == before


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "rank_1.json/../../x", "attempt-1/../rank_1.json", "x.sh"]
)
def test_names_that_lead_elsewhere_are_refused(
    name: str, nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    plain = gather.Channel.send_list

    def act() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                gather.Channel,
                "send_list",
                lambda self, sizes: plain(self, sizes if "error" in sizes else {name: 1}),
            )
            with pytest.raises(RemoteError):
                _sent(two, first.port)

    found = gathered(first, 3, act)
    assert any("is no file of a run" in line for line in found.trouble)
    assert content(one) == before


def test_a_disk_without_room_is_said_before_anything_is_written(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = nodes
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    usage = shutil.disk_usage(one)
    monkeypatch.setattr(gather.shutil, "disk_usage", lambda _: usage._replace(free=10))
    found = gathered(first, 5, lambda: _refused("has 10 left", lambda: _sent(two, first.port)))
    assert any("has 10 left" in line for line in found.trouble)
    assert content(one) == before


def test_two_machines_with_the_same_rank_keep_both(nodes: tuple[Path, Path]) -> None:
    one, two = nodes
    (two / "rank_0.json").write_text("another one")
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    gathered(first, 5, lambda: _refused("rank of this number", lambda: _sent(two, first.port)))
    assert content(one) == before


def _note(folder: Path, node: int, at_ns: int, exit_code: int | None) -> None:
    note = NodeNote(f"{node:016x}", "b", "clock", 10 + node, at_ns, at_ns / 1e9, exit_code)
    (folder / note_name(note.node)).write_text(json.dumps(asdict(note)))


@pytest.mark.parametrize("first_sent", ["early", "late"])
def test_of_two_tasks_of_one_machine_the_later_files_count(nodes: tuple[Path, Path], first_sent: str) -> None:
    """Each sends all that its machine has; the other's ranks may still run then, and the order is any."""
    one, two = nodes
    trace = "rank_1.ddptrace"
    early, late = one.parent / "early", one.parent / "late"
    for folder in (early, late):
        shutil.copytree(two, folder)
        _note(folder, 2, 1_000, 0)
    (early / trace).write_bytes((two / trace).read_bytes()[:-192])
    _note(early, 3, 1_000, None)
    _note(late, 3, 2_000, 0)
    order = {"early": (early, late), "late": (late, early)}[first_sent]
    first = Gatherer(one, 3, 0, SECRETS)
    found = gathered(
        first, LONG_S, lambda: [_sent(folder, first.port, node) for node, folder in enumerate(order, 1)]
    )
    assert sorted(found.nodes) == [1, 2] and not found.trouble
    ends = content(late)
    assert {name: held for name, held in content(one).items() if name in ends} == ends


def test_a_task_of_the_first_machine_replaces_nothing_there(nodes: tuple[Path, Path]) -> None:
    one, _ = nodes
    _note(one, 1, 1_000, None)
    snapshot = one.parent / "snapshot"
    shutil.copytree(one, snapshot)
    _note(one, 1, 3_000, 0)
    (snapshot / "rank_0.json").write_text("older")
    before = content(one)
    first = Gatherer(one, 2, 0, SECRETS)
    found = gathered(first, LONG_S, lambda: _sent(snapshot, first.port))
    assert not found.trouble and content(one) == before


def test_trouble_is_said_and_never_raised(
    nodes: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = nodes
    run_gather(one, Gather(0, 2, "127.0.0.1", 0), SECRETS, limit_s=0.2)
    assert "node 1: nothing came" in capsys.readouterr().err
    run_gather(one / "gone", Gather(1, 2, "127.0.0.1", 9), (), limit_s=0.2)
    assert "not gathered: nothing was recorded" in capsys.readouterr().err


def test_machines_are_known_by_options_or_variables() -> None:
    start = Start(2, 3, 1, "10.0.0.1:29500")
    assert gather_of(start, None, None) == Gather(1, 3, "10.0.0.1", 29501)
    assert gather_of(start, None, 7) == Gather(1, 3, "10.0.0.1", 7)
    task = Task(1, 2, "job")
    assert gather_of(None, task, None, {"MASTER_ADDR": "h", "MASTER_PORT": "5"}) == Gather(1, 2, "h", 6)
    for known in (None, Start(2)):
        with pytest.raises(UsageError, match="needs to know the machines"):
            gather_of(known, None, None, {})
