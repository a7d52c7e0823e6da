"""Each message that people meet is recognised, also in the words of systems, and distinguished from its likes."""

from __future__ import annotations

import pytest
from support.seen_messages import SEEN_WITH_LOOKALIKES

import pyddpdiag
from pyddpdiag.messages.explain import CATALOG, explain, recognise
from pyddpdiag.messages.message import Role
from pyddpdiag.messages.shells import Shell

PAIR = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144]"
MESH = f"RuntimeError: Gloo connectFullMesh failed with {PAIR}"
# As printed: (kind, text, facts that must be found).
SEEN: list[tuple[str, str, dict[str, str]]] = [
    ("nccl_missing", "RuntimeError: Distributed package doesn't have NCCL built in", {}),
    ("nccl_missing", "RuntimeError: Distributed package doesn't have NCCL  built in", {}),
    ("nccl_missing", "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", {}),
    (
        "unused_parameters_named",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n"
        "Parameters which did not receive grad for rank 3: head.bias, head.weight",
        {"rank": "3", "parameter": "head.bias"},
    ),
    (
        "unused_parameters",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new "
        "one. This error "
        "indicates that your module has parameters that were not used in producing loss.\nParameter "
        "indices which did "
        "not receive grad for rank 0: 2 3",
        {},
    ),
    (
        "hostname_loopback",
        f"{MESH} SO_ERROR: Connection refused, remote=[127.0.0.1]:38201",
        {"address": "127.0.0.1", "port": "38201"},
    ),
    (
        "hostname_loopback",
        f"{MESH} timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:4711",
        {"address": "127.0.1.1"},
    ),
    (
        "hostname_loopback",
        "[W ProcessGroupGloo.cpp:757] Warning: Unable to resolve hostname to a (local) address. Using "
        "the loopback address "
        "as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())",
        {},
    ),
    ("full_mesh_failed", f"{MESH} no error", {}),
    (
        "peer_gone",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[10.1.2.3]:16894",
        {"address": "10.1.2.3", "port": "16894"},
    ),
    (
        "peer_gone",
        "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:5534: Connection "
        "reset by peer. This "
        "is typically caused by a remote worker hanging or bugs in the application.",
        {"address": "127.0.0.1", "port": "5534"},
    ),
    (
        "peer_gone",
        "ConnectionResetError: [WinError 10054] An existing connection was forcibly closed by the remote host",
        {},
    ),
    (
        "store_without_libuv",
        "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built without libuv "
        "support, run with "
        "USE_LIBUV=0 to disable it.",
        {},
    ),
    ("transport_missing", "RuntimeError: makeDeviceForHostname(): unsupported gloo device", {}),
    ("transport_missing", "RuntimeError: makeDeviceForInterface(): unsupported gloo device", {}),
    (
        "port_in_use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: "
        "29714, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        {"port": "29714"},
    ),
    (
        "port_in_use",
        "[W socket.cpp:464] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - "
        "Address already in use).",
        {"port": "29500"},
    ),
    (
        "port_in_use",
        "OSError: [WinError 10048] Only one usage of each socket address (protocol/network address/port) is normally "
        "permitted",
        {},
    ),
    (
        "address_not_bindable",
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to "
        "[kubernetes.docker.internal]:29500 (system "
        "error: 10049 - The requested address is not valid in its context.).",
        {"address": "kubernetes.docker.internal", "port": "29500"},
    ),
    (
        "name_unresolved",
        "[W socket.cpp:697] [c10d] The IPv6 network addresses of (master-0, 29500) cannot be retrieved "
        "(gai error: -2 - Name "
        "or service not known).",
        {"name": "master-0", "port": "29500"},
    ),
    ("name_unresolved", "socket.gaierror: [Errno 11001] getaddrinfo failed", {}),
    (
        "address_link_local",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to "
        "[fe80::42:acff:fe11:2%eth0]:29500 (errno: 22 - "
        "Invalid argument).",
        {"address": "fe80::42:acff:fe11:2%eth0"},
    ),
    (
        "models_differ",
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 "
        "has inconsistent 0 "
        "params.",
        {"rank": "0", "other": "1"},
    ),
    (
        "models_differ",
        "RuntimeError: [1]: params[0] in this process with sizes [5, 4] appears not to match sizes of "
        "the same param in "
        "process 0.",
        {},
    ),
    (
        "stale_file",
        f'  File "train.py", line 9\n    init_method="file:///tmp/pg"\n{MESH} SO_ERROR: Connection refused, '
        "remote=[10.0.0.7]:31999",
        {"address": "10.0.0.7"},
    ),
    (
        "connection_refused",
        f"{MESH} SO_ERROR: Connection refused, remote=[10.0.0.7]:31999",
        {"address": "10.0.0.7", "port": "31999"},
    ),
    (
        "interface_unknown",
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != "
        "nullptr. Unable to find "
        "address for: ^docker",
        {"interface": "^docker"},
    ),
    (
        "connection_filtered",
        f"{MESH} SO_ERROR: Connection timed out, remote=[10.0.0.7]:31999",
        {"address": "10.0.0.7"},
    ),
    (
        "unroutable",
        f"{MESH} SO_ERROR: No route to host, remote=[172.17.0.1]:31999",
        {"address": "172.17.0.1"},
    ),
    (
        "unroutable",
        "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/socket.cc:142] rv != -1. "
        "-1 vs -1. connect: Network is unreachable",
        {},
    ),
    (
        "connection_filtered",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.h:311] "
        "Connect timeout [none]",
        {},
    ),
    (
        "clients_missing",
        "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/2 clients joined.",
        {"seconds": "1801", "came": "1", "world_size": "2"},
    ),
    (
        "collectives_differ",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[10], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float)), but Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST, TensorShape=[10])",
        {"rank": "1", "other": "0"},
    ),
    (
        "sizes_differ",
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at "
        "gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 16 vs 12. Received data size doesn't match "
        "expected size.",
        {"received": "16", "expected": "12"},
    ),
    ("aborted_at_exit", "terminate called without an active exception\nFatal Python error: Aborted", {}),
    (
        "one_thread",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your "
        "system being "
        "overloaded",
        {},
    ),
    (
        "receive_timeout",
        "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv "
        "operation to "
        "complete",
        {"timeout_ms": "1800000", "what": "recv"},
    ),
    ("receive_timeout", "RuntimeError: [pair.cc:583] Application timeout caused pair closure", {}),
    ("store_timeout", "RuntimeError: Socket Timeout", {}),
    (
        "store_timeout",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0/store_based",
        {},
    ),
    ("store_timeout", "RuntimeError: Wait timeout", {}),
    (
        "store_unreachable",
        "torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while trying to connect to "
        "(127.0.0.1, 29713).",
        {"address": "127.0.0.1", "port": "29713"},
    ),
    (
        "device_ids",
        "RuntimeError: Function argument device_ids not supported for the selected backend gloo",
        {},
    ),
    (
        "rank_crashed",
        "[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 1234)\n  traceback : Signal 11 "
        "(SIGSEGV) received",
        {"rank": "1"},
    ),
    (
        "rank_killed",
        "  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 77)\n  error_file: <N/A>",
        {"rank": "2"},
    ),
    (
        "barrier_missed",
        "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms. Collective: 1",
        {"missing": "1", "timeout_ms": "3000"},
    ),
    (
        "libraries_missing",
        'OSError: [WinError 126] The specified module could not be found. Error loading "c10.dll"',
        {},
    ),
    ("torch_missing", "ModuleNotFoundError: No module named 'torch'", {}),
    (
        "environment_incomplete",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable "
        "RANK expected, but "
        "not set",
        {"name": "RANK"},
    ),
    ("wrong_device", "RuntimeError: No backend type associated with device type cpu", {"device": "cpu"}),
    ("too_many_files", "OSError: [Errno 24] Too many open files", {}),
    (
        "marked_twice",
        "RuntimeError: Expected to mark a variable ready only once. This error is caused by ...",
        {},
    ),
    (
        "one_hook",
        "RuntimeError: register_comm_hook or register_builtin_comm_hook can only be called once.",
        {},
    ),
    (
        "not_initialised",
        "ValueError: Default process group has not been initialized, please make sure to call init",
        {},
    ),
    ("out_of_memory", "[123.4] Out of memory: Killed process 4711 (python)", {}),
    (
        "store_refused",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [10.0.0.1]:29500 (errno: "
        "111 - Connection "
        "refused).",
        {},
    ),
]


SEEN += [one[:3] for one in SEEN_WITH_LOOKALIKES]


@pytest.mark.parametrize(("kind", "text", "facts"), SEEN, ids=[f"{i}-{one[0]}" for i, one in enumerate(SEEN)])
def test_real_messages_are_recognised(kind: str, text: str, facts: dict[str, str]) -> None:
    found = explain(text)
    assert found.kind == kind, found
    assert facts.items() <= found.facts.items()
    assert found.known and found.cause and found.fix and found.line


def test_every_message_of_the_catalog_is_seen() -> None:
    assert {message.kind for message in CATALOG} == {kind for kind, _, _ in SEEN}
    assert len({message.kind for message in CATALOG}) == len(CATALOG)


@pytest.mark.parametrize("shell", Shell)
def test_no_line_to_paste_has_a_hole(shell: Shell) -> None:
    for _, text, _ in SEEN:
        for line in explain(text, lines_for=shell).lines:
            assert line and "{" not in line and "}" not in line


def test_the_fix_is_the_one_of_the_system() -> None:
    text = "RuntimeError: makeDeviceForHostname(): unsupported gloo device"
    assert explain(text, lines_for=Shell.POSIX).lines == ("unset GLOO_DEVICE_TRANSPORT",)
    windows = explain(text, lines_for=Shell.POWERSHELL)
    assert windows.lines == ("Remove-Item Env:GLOO_DEVICE_TRANSPORT", 'pip install "torch>=2.11"')
    assert "2.11" in windows.fix
    assert explain(text, lines_for=Shell.CMD).lines[0] == 'set "GLOO_DEVICE_TRANSPORT="'


def test_exceptions_are_explained_with_their_causes() -> None:
    try:
        try:
            raise RuntimeError("Timed out waiting 15000ms for recv operation to complete")
        except RuntimeError as error:
            raise ValueError("step 3 failed") from error
    except ValueError as error:
        assert pyddpdiag.explain(error).kind == "receive_timeout"


def test_errors_of_this_package_explain_themselves() -> None:
    error = pyddpdiag.errors.RendezvousError("rank 1 is missing.", hint="start it.")
    found = pyddpdiag.explain(error)
    assert (found.kind, found.cause, found.fix) == ("pyddpdiag", "rank 1 is missing.", "start it.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: this sample is no digit",
        "epoch 3 loss 0.25",
        "mat1 and mat2 shapes cannot be multiplied",
    ],
)
def test_what_is_unknown_is_called_so(text: str) -> None:
    found = explain(text)
    assert not found.known and found.kind == "unknown"
    assert "not in the catalog" in found.cause


def test_a_cause_comes_before_what_follows_from_it() -> None:
    text = (
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1234\n"
        "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration\n"
        "[rank2]: RuntimeError: Timed out waiting 6000ms for recv operation to complete"
    )
    found = explain(text)
    assert [found.kind, *(one.kind for one in found.others)] == [
        "unused_parameters",
        "receive_timeout",
        "peer_gone",
    ]
    assert [one.facts["reporter"] for one in recognise(text)] == ["0", "1", "2"]
    assert found.role is Role.CAUSE


def test_what_a_log_holds_never_gets_into_a_command_unchecked() -> None:
    text = f"{MESH} SO_ERROR: Connection refused, remote=[$(reboot)]:31999"
    found = explain(text, lines_for=Shell.POSIX)
    assert found.kind == "connection_refused"
    assert not any("reboot" in line for line in found.lines)


def test_the_line_for_an_ipv6_address_is_for_ipv6() -> None:
    text = f"{MESH} timed out connecting: SO_ERROR: Connection refused, remote=[fd00:77::1]:14257$1"
    assert explain(text, lines_for=Shell.POSIX).lines == (
        "sudo ip6tables -I INPUT -p tcp -s fd00:77::1 -j ACCEPT",
    )


def test_a_huge_log_is_no_trouble() -> None:
    # Minutes, if every pattern looked at all of it.
    assert explain("connectFullMesh failed " * 20_000).kind == "full_mesh_failed"
    lines = [
        f"rank {i}: connection remote=[ Rank is running connectFullMesh failed {i}" for i in range(4_000)
    ]
    assert explain("\n".join(lines)).kind == "full_mesh_failed"
    calm = "epoch 3 loss 0.25\n" * 50_000
    assert explain(f"{calm}RuntimeError: Socket Timeout\n{calm}").kind == "store_timeout"
