"""A name for this machine, as far as processes are concerned."""

from __future__ import annotations

import socket

from pyddpdiag.system.processes import namespace


def machine() -> str:
    """A name for the processes that this one can see; differs between containers of one machine."""
    return f"{socket.gethostname()} {namespace()}".strip()
