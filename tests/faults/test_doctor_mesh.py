"""Every fault between two real hosts that a mesh check is for: found, named, and mended by the lines to paste."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.doctored import command, environment, variables_after
from support.links import NAMES, inside, limit, switched_hosts, two_hosts, why_no_loss
from support.promised import need

PORT = 29871
TIMEOUT_S = 90
# What ends a run that hangs, in spite of its own deadline.
LIMIT_S = 200

pytestmark = pytest.mark.usefixtures("links")


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    with two_hosts((200, 200)) as made:
        yield made


def do(host: str, line: str) -> None:
    subprocess.run(inside(host, "sh", "-c", line), check=True, capture_output=True, text=True, timeout=60)


def mesh(
    hosts: Sequence[str],
    variables: Sequence[Mapping[str, str]] = ({}, {}),
    *,
    ranks: Sequence[int] = (0, 1),
    worlds: Sequence[int] = (2, 2),
    timeout_s: int = TIMEOUT_S,
    meet_at: str = "10.77.0.1",
) -> dict[int, dict[str, Any]]:
    """The answer of each rank."""
    with ExitStack() as stack:
        started = {}
        for rank in ranks:
            options = (
                *("--rank", rank, "--world-size", worlds[rank], "--rendezvous"),
                f"tcp://{meet_at}:{PORT}",
            )
            process = subprocess.Popen(
                inside(hosts[rank], *command("--mesh", "--json", "--timeout", timeout_s, *options)),
                env=environment(variables[rank]),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            started[rank] = process
        ends = {rank: process.communicate(timeout=LIMIT_S) for rank, process in started.items()}
        assert all(out for out, _ in ends.values()), str(ends)
        answers = {rank: json.loads(out) for rank, (out, _) in ends.items()}
        assert all(answers[rank]["exit_code"] == process.returncode for rank, process in started.items())
        return answers


def pinned(*names: str) -> list[dict[str, str]]:
    return [{"GLOO_SOCKET_IFNAME": name} for name in names]


def only(answers: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The one trouble, the same for all ranks."""
    (trouble,) = answers[0]["troubles"]
    assert all(answer.get("troubles") == answers[0]["troubles"] for answer in answers.values())
    assert isinstance(trouble, dict)
    return trouble


def after(trouble: dict[str, Any], variables: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The variables of each rank after its lines were pasted there."""
    return [
        variables_after(trouble["lines"].get(str(rank), []), before) for rank, before in enumerate(variables)
    ]


def paste_as_root(trouble: dict[str, Any], hosts: Sequence[str]) -> None:
    for rank, lines in trouble["lines"].items():
        for line in lines:
            do(hosts[int(rank)], line)


def test_healthy_hosts_form_a_group_and_nothing_is_wrong(hosts: tuple[str, str]) -> None:
    answers = mesh(hosts, pinned(NAMES[0], NAMES[0]))
    assert answers[0]["troubles"] == [] and answers[0]["group"] == "formed"
    assert {(a, b): state for a, b, state, _, _ in answers[0]["cells"]} == {(0, 1): "ok", (1, 0): "ok"}
    # Rates of 200 Mbit/s, after a burst that passes at once.
    assert all(rtt > 0 and mbit > 0 for _, _, _, rtt, mbit in answers[0]["cells"])
    assert answers[1]["exit_code"] == 0


def test_a_rank_that_never_comes_is_named(hosts: tuple[str, str]) -> None:
    answers = mesh(hosts, pinned(NAMES[0], NAMES[0]), ranks=(0,), timeout_s=8)
    trouble = only(answers)
    assert (trouble["kind"], trouble["ranks"], trouble["text"]) == ("missing", [1], "rank 1 never came.")


def test_an_unreachable_rank_0_is_explained(hosts: tuple[str, str]) -> None:
    answers = mesh(hosts, pinned(NAMES[0], NAMES[0]), ranks=(1,), timeout_s=8)
    assert "rank 0 was not reached at 10.77.0.1" in answers[1]["error"] and "refuses" in answers[1]["error"]


def test_a_host_name_on_loopback_is_found_and_the_lines_mend_it(hosts: tuple[str, str]) -> None:
    # Both resolve this machine's name to a loopback address, as Debian does.
    first = mesh(hosts)
    kinds = {trouble["kind"] for trouble in first[0]["troubles"]}
    assert kinds == {"loopback"}, first[0]
    trouble = only(first)
    again = mesh(hosts, after(trouble, ({}, {})))
    assert again[0]["troubles"] == [] and again[0]["group"] == "formed"


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("-s 10.77.0.1 -p tcp --syn -j DROP", "one-way"),
        ("-p tcp -j REJECT --reject-with tcp-reset", "refused"),
    ],
)
def test_firewalls_are_distinguished_and_another_interface_is_offered(
    rule: str, kind: str, hosts: tuple[str, str]
) -> None:
    need("packet-loss", why_no_loss())
    # Between the hosts' first addresses; the doctor's own meeting goes from rank 1 to rank 0.
    do(hosts[1], f"iptables -A INPUT -i {NAMES[0]} {rule.replace('-p tcp -j', '-p tcp --syn -j')}")
    if kind == "refused":
        do(
            hosts[0],
            f"iptables -A INPUT -i {NAMES[0]} -p tcp --syn ! --dport {PORT} -j REJECT --reject-with tcp-reset",
        )
    before = pinned(NAMES[0], NAMES[0])
    trouble = only(mesh(hosts, before))
    assert trouble["kind"] == kind, trouble
    assert trouble["lines"] == {str(rank): [f"export GLOO_SOCKET_IFNAME={NAMES[1]}"] for rank in range(2)}
    again = mesh(hosts, after(trouble, before))
    assert again[0]["troubles"] == [] and again[0]["group"] == "formed"


def test_a_filter_on_every_interface_is_opened_by_the_line(hosts: tuple[str, str]) -> None:
    need("packet-loss", why_no_loss())
    do(hosts[1], "iptables -A INPUT -p tcp --syn -j DROP")
    do(hosts[0], f"iptables -A INPUT -p tcp --syn ! --dport {PORT} -j DROP")
    before = pinned(NAMES[0], NAMES[0])
    trouble = only(mesh(hosts, before))
    assert trouble["kind"] == "filtered"
    assert trouble["lines"]["1"] == ["iptables -I INPUT -p tcp -s 10.77.0.1 -j ACCEPT"]
    paste_as_root(trouble, hosts)
    again = mesh(hosts, before)
    assert again[0]["troubles"] == [] and again[0]["group"] == "formed"


def test_the_one_faulty_host_of_three_is_named_and_its_lines_mend_it() -> None:
    need("packet-loss", why_no_loss())
    three, worlds = (0, 1, 2), (3, 3, 3)
    before = pinned(*[NAMES[0]] * 3)
    with switched_hosts(3) as hosts:
        for host in hosts:
            # Links that differ by no more than they are shaped to, however busy the machine.
            limit(host, NAMES[0], 200)
        do(hosts[1], "iptables -A INPUT -p tcp --syn -j REJECT --reject-with tcp-reset")
        answers = mesh(hosts, before, ranks=three, worlds=worlds)
        trouble = only(answers)
        assert (trouble["kind"], trouble["ranks"]) == ("one-way", [1])
        assert "rank 1 is in every bad pair" in trouble["text"]
        states = {(a, b): state for a, b, state, _, _ in answers[0]["cells"]}
        assert {pair for pair, state in states.items() if state != "ok"} == {(0, 1), (2, 1)}
        assert set(trouble["lines"]) == {"1"}
        paste_as_root(trouble, hosts)
        again = mesh(hosts, before, ranks=three, worlds=worlds)
        assert again[0]["troubles"] == [] and again[0]["group"] == "formed"


def test_hosts_with_ipv6_alone_are_tried_and_the_line_opens_their_filter(hosts: tuple[str, str]) -> None:
    need("packet-loss", why_no_loss())
    for place, host in enumerate(hosts):
        for name in NAMES:
            do(host, f"ip -4 addr flush dev {name}")
        try:
            do(host, f"ip -6 addr add fd00:77::{place + 1}/64 dev {NAMES[0]} nodad")
            do(host, f"ip6tables -A INPUT -p tcp --syn ! --dport {PORT} -j DROP")
        except subprocess.CalledProcessError as error:
            need("ipv6", f"no IPv6 or ip6tables here: {error.stderr}")
    before = pinned(NAMES[0], NAMES[0])
    trouble = only(mesh(hosts, before, meet_at="[fd00:77::1]"))
    assert trouble["kind"] == "filtered", trouble
    assert trouble["lines"]["0"] == ["ip6tables -I INPUT -p tcp -s fd00:77::2 -j ACCEPT"]
    paste_as_root(trouble, hosts)
    again = mesh(hosts, before, meet_at="[fd00:77::1]")
    assert again[0]["troubles"] == [] and again[0]["group"] == "formed", again[0]


def test_an_mtu_hole_is_found_and_the_lines_close_it(hosts: tuple[str, str]) -> None:
    need("packet-loss", why_no_loss())
    # Nothing larger than 1200 bytes arrives. Without segments that are joined into larger ones on the way.
    for host in hosts:
        do(host, f"ip link set dev {NAMES[0]} gso_max_segs 1")
    try:
        do(hosts[1], f"iptables -A INPUT -i {NAMES[0]} -p tcp -m length --length 1201:65535 -j DROP")
    except subprocess.CalledProcessError as error:
        need("packet-loss", f"iptables has no rule by length here: {error.stderr}")
    before = pinned(NAMES[0], NAMES[0])
    trouble = only(mesh(hosts, before))
    assert trouble["kind"] == "mtu hole", trouble
    paste_as_root(trouble, hosts)
    again = mesh(hosts, before)
    assert again[0]["troubles"] == [] and again[0]["group"] == "formed"


def test_addresses_without_a_route_are_found(hosts: tuple[str, str]) -> None:
    # Like docker's: each host has the interface, and the others have no way to it.
    for place, host in enumerate(hosts):
        do(
            host,
            "ip link add docker0 type veth peer name inside0 && ip link set inside0 up && ip link set docker0 up",
        )
        do(host, f"ip addr add 172.31.{place}.1/24 dev docker0")
    for host in hosts:
        # Its carrier is reported late.
        do(
            host,
            "for i in $(seq 200); do ip -o link show dev docker0 | grep -q 'state UP' && exit; sleep 0.05; done",
        )
    before = pinned("docker0", "docker0")
    trouble = only(mesh(hosts, before))
    assert trouble["kind"] in ("unroutable", "filtered")
    assert set(trouble["lines"]) == {"0", "1"}
    assert mesh(hosts, after(trouble, before))[0]["group"] == "formed"


@pytest.mark.parametrize(
    ("variables", "worlds", "kind", "ranks"),
    [
        (pinned(f"{NAMES[0]},{NAMES[1]}", f"{NAMES[1]},{NAMES[0]}"), (2, 2), "interfaces", [1]),
        (pinned(f"{NAMES[0]},{NAMES[1]}", NAMES[0]), (2, 2), "interfaces", [1]),
        (
            [{**pinned(NAMES[0])[0], "TORCH_GLOO_LAZY_INIT": "1"}, pinned(NAMES[0])[0]],
            (2, 2),
            "variable",
            [0],
        ),
        (pinned(NAMES[0], NAMES[0]), (2, 3), "world_size", [1]),
    ],
    ids=["order", "count", "lazy init", "world size"],
)
def test_differences_between_ranks(
    variables: list[dict[str, str]],
    worlds: tuple[int, int],
    kind: str,
    ranks: list[int],
    hosts: tuple[str, str],
) -> None:
    trouble = only(mesh(hosts, variables, worlds=worlds))
    assert (trouble["kind"], trouble["ranks"]) == (kind, ranks)
    assert trouble["lines"]
    mended = after(
        trouble, [{**given, "WORLD_SIZE": str(world)} for given, world in zip(variables, worlds, strict=True)]
    )
    worlds = (int(mended[0]["WORLD_SIZE"]), int(mended[1]["WORLD_SIZE"]))
    assert mesh(hosts, mended, worlds=worlds)[0]["troubles"] == []


def test_the_meeting_by_a_file_and_the_text_for_people(hosts: tuple[str, str], tmp_path: Path) -> None:
    url = (tmp_path / "pg").as_uri()
    with ExitStack() as stack:
        processes = []
        for rank, host in enumerate(hosts):
            words = command(
                "--mesh", "--rank", rank, "--world-size", 2, "--rendezvous", url, "--timeout", TIMEOUT_S
            )
            process = subprocess.Popen(
                inside(host, *words), env=environment(pinned(NAMES[0])[0]), stdout=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        outs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    assert "2 of 2 ranks came; a real Gloo group was formed" in outs[0] and "to rank 1" in outs[0]
    assert outs[1] == ""
    assert list(tmp_path.iterdir()) == []
