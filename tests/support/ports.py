"""TCP ports for tests. A port that is merely free now is given to two tests that run at once, and their ranks meet."""

from __future__ import annotations

import itertools
import os
import socket
from typing import Final

# Below those that systems give to connections.
_FIRST: Final = 20_000
_EACH: Final = 1_000
# pyddpdiag takes the port behind that of a meeting for itself.
_APART: Final = 4

_given = itertools.count()


def own_port() -> int:
    """A port that is free and that no other test of this session gets, those of other workers included."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = _FIRST + _EACH * (worker % 8)
    for _ in range(_EACH // _APART):
        port = first + _APART * next(_given) % _EACH
        with socket.socket() as probe:
            if os.name != "nt":
                # As stores and servers bind: connections that linger from a test before do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
    raise AssertionError(f"no port is free from {first} to {first + _EACH}")
