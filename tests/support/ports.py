"""TCP ports for tests. A port that is merely free now is given to two tests that run at once, and their ranks meet."""

import itertools
import os
import socket
from typing import Final

# Below those that systems give to connections.
_FIRST: Final = 20_000
_EACH: Final = 1_000
# pyddpdiag takes the port behind that of a meeting for itself.
_APART: Final = 4

_WORKER: Final = "PYDDPDIAG_TEST_WORKER"

_given = itertools.count()


def know_worker() -> None:
    """Notes which worker of pytest this is, for the pytests that it starts as well."""
    worker = os.environ.get("PYTEST_XDIST_WORKER") or os.environ.get(_WORKER, "gw0")
    os.environ[_WORKER] = worker


def ports_of(worker: int) -> range:
    """The ports that a worker gives to its tests."""
    first = _FIRST + _EACH * (worker % 8)
    return range(first, first + _EACH)


def own_port() -> int:
    """A port that is free and that no other test of this session gets, those of other workers included."""
    ours = ports_of(int(os.environ.get(_WORKER, "gw0").removeprefix("gw")))
    for _ in range(_EACH // _APART):
        port = ours[_APART * next(_given) % _EACH]
        with socket.socket() as probe:
            if os.name != "nt":
                # As stores and servers bind: connections that linger from a test before do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no port is free in {ours}")
