"""What looks like a known message, and is none: in a line, and in the logs of jobs that are well or fail otherwise."""

import pytest
from support.public_logs import SITE, raised
from support.seen_messages import SEEN_WITH_LOOKALIKES

from pyddpdiag.messages.explain import UNKNOWN, explain, recognise
from pyddpdiag.messages.logs import NO_ERROR, OWN_ERROR, read
from pyddpdiag.messages.shells import Shell

# Jobs that work, or whose log says nothing of how they ended.
CALM = {
    "retries of a download": "WARNING urllib3: Retrying after connection broken by 'ConnectionResetError(104, "
    "'Connection reset by peer')': /models/net.bin\nepoch 1 loss 0.4\n",
    "ssh": "client_loop: send disconnect: Connection reset by peer\nkex_exchange_identification: Connection closed by "
    "remote host\nepoch 2 loss 0.3\n",
    "curl": "curl: (56) Recv failure: Connection reset by peer\ncurl: (7) Failed to connect to 10.0.0.1 port 80: "
    "Connection refused\nepoch 3\n",
    "a tracker": "wandb: Network error (ConnectionError), entering retry loop. Connection refused\nepoch 4\n",
    "a name": "huggingface_hub: Temporary failure in name resolution, using the cache\nepoch 5\n",
    "counters": "oom_kill 0\noom_kill_disable 0\nExit Code: 0\ntrainer-0 exited with code 0\nOOMKilled: false\n",
    "a game": "Killed 3 zombies\nKilled: 3\nsegmentation fault rate 0.1\nSIGTERM handler installed\n",
    "store": "stored 12 connections in the cache; socket timeout is 30 s\n",
    "progress": "  1%|          | 310/28845 [04:10<6:18:45]\n  2%|          | 400/28845 [05:10<6:18:45]\n",
}
# Errors of other libraries, which lose connections, too.
FOREIGN = {
    "a manager": (
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "/usr/lib/python3/multiprocessing/connection.py",
    ),
    "S3": (
        "botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response from "
        'endpoint URL: "https://data.s3.amazonaws.com/7.pt". Connection reset by peer',
        f"{SITE}/botocore/httpsession.py",
    ),
    "requests": (
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by "
        "peer'))",
        f"{SITE}/requests/adapters.py",
    ),
    "a name": (
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        f"{SITE}/urllib3/util/connection.py",
    ),
    "a pipe": ("BrokenPipeError: [Errno 32] Broken pipe", "/usr/lib/python3/multiprocessing/connection.py"),
    "a port": ("OSError: [Errno 98] Address already in use", "/usr/lib/python3/socketserver.py"),
    "a web server": ("ConnectionRefusedError: [Errno 111] Connection refused", f"{SITE}/redis/connection.py"),
}


@pytest.mark.parametrize(("kind", "lookalike"), [(one.kind, one.lookalike) for one in SEEN_WITH_LOOKALIKES])
def test_what_only_looks_alike_is_not_recognised(kind: str, lookalike: str) -> None:
    assert not explain(lookalike).known, kind


@pytest.mark.parametrize("text", CALM.values(), ids=CALM)
def test_nobody_is_blamed_in_the_log_of_a_job_that_is_well(text: str) -> None:
    verdict = read({"job.log": text})
    assert verdict.explanation.kind in (NO_ERROR, UNKNOWN) and verdict.culprits == (), verdict
    both = read({"rank_0.log": text, "rank_1.log": "epoch 1\n"})
    assert both.explanation.kind == verdict.explanation.kind and both.culprits == (), both


@pytest.mark.parametrize(("error", "file"), FOREIGN.values(), ids=FOREIGN)
def test_an_error_of_another_library_is_the_ranks_own(error: str, file: str) -> None:
    victim = raised(
        "RuntimeError: [/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:7", "fit.py"
    )
    verdict = read({"rank_0.log": victim, "rank_1.log": raised(error, "/home/me/fit.py", file)})
    assert (verdict.explanation.kind, verdict.culprits) == (OWN_ERROR, ("rank 1",))
    assert "at fit.py:10" in verdict.sentence


@pytest.mark.parametrize(
    "said",
    [
        "recvValueWithTimeout failed on SocketImpl(fd=3, addr=[::ffff:10.0.0.5]:4876, remote=[::ffff:10.0.0.4]:29631): "
        "Failed to recv, got 0 bytes. Connection was likely closed.",
        "recvVector failed, timeout, on SocketImpl(addr=[::ffff:127.0.0.1]:4876, remote=[::ffff:127.0.0.1]:29631)",
        "recvVector failed, timeout, on SocketImpl(addr=[::1]:4876, remote=[::1]:29631)",
    ],
)
def test_no_firewall_stands_before_a_closed_connection_or_a_loopback_address(said: str) -> None:
    found = recognise(f"[W1130 22:38:20.449102100 TCPStore.cpp:138] [c10d] {said}")
    assert "connection_filtered" not in {one.kind for one in found}, found


def test_the_same_words_of_gloo_and_of_c10d_are_a_victims() -> None:
    for error, file in (
        (
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            f"{SITE}/torch/distributed/rendezvous.py",
        ),
        ("RuntimeError: Connection reset by peer", "/home/me/fit.py"),
        (
            "RuntimeError: [/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:7",
            "/home/me/fit.py",
        ),
        (
            "torch.distributed.DistNetworkError: Connection was reset while reading from the store",
            f"{SITE}/torch/distributed/distributed_c10d.py",
        ),
    ):
        verdict = read({"rank_0.log": raised(error, file)})
        assert (verdict.explanation.kind, verdict.culprits) == ("peer_gone", ()), error


def test_an_exception_says_by_its_traceback_where_it_comes_from() -> None:
    source = "def lose():\n    raise ConnectionResetError(104, 'Connection reset by peer')"
    for file, kind in (
        ("/usr/lib/python3/ssl.py", "unknown"),
        (f"{SITE}/torch/distributed/run.py", "peer_gone"),
    ):
        names: dict[str, object] = {}
        exec(compile(source, file, "exec"), names)
        try:
            names["lose"]()  # type: ignore[operator]
        except ConnectionResetError as error:
            assert explain(error).kind == kind


# What happens on one system only.
ELSEWHERE = {
    "page_file": {Shell.POSIX},
    "job_cancelled": {Shell.POWERSHELL, Shell.CMD},
    "terminal_closed": {Shell.POWERSHELL, Shell.CMD},
    "launcher_terminated": {Shell.POWERSHELL, Shell.CMD},
}


@pytest.mark.parametrize("shell", Shell)
def test_each_has_a_line_to_paste_on_each_system(shell: Shell) -> None:
    for kind, text, *_ in SEEN_WITH_LOOKALIKES:
        assert bool(explain(text, lines_for=shell).lines) != (shell in ELSEWHERE.get(kind, ())), kind
