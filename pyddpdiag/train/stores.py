"""Opens torch's store at the place where the ranks meet, with errors that say what is wrong there."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore, Store, TCPStore

from pyddpdiag.errors import RendezvousError
from pyddpdiag.train import stale
from pyddpdiag.train.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.train.system import REUSE_ADDRESS_IS_SAFE, STORE_HAS_LIBUV


def open_store(place: Place, timeout_s: float, *, fresh_file: bool = False) -> Store:
    """Opens the store of `place`; does not wait for the other ranks, but for the server of a TCP store.

    Args:
        place: this rank's place.
        timeout_s: for the connection and for every later wait on the store.
        fresh_file: the file is known to be of this run (the launcher made it), so it is not examined.
    """
    target = place.target
    if isinstance(target, FileTarget):
        store: Store = _open_file(target, place, timeout_s, fresh_file)
    else:
        store = _open_tcp(target, place, timeout_s)
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def _open_file(target: FileTarget, place: Place, timeout_s: float, fresh: bool) -> Store:
    path = Path(target.path)
    if not fresh:
        stale.await_usable(path, place, timeout_s)
    try:
        return FileStore(str(path), place.world_size)
    except RuntimeError as error:
        raise RendezvousError(
            f"The rendezvous file {path} cannot be opened: {_first_line(error)}.",
            hint="choose a file in a folder that all ranks can write to.",
        ) from error


def _open_tcp(target: TcpTarget, place: Place, timeout_s: float) -> Store:
    serves = place.rank == 0 and not target.agent
    if serves:
        _check_port_is_free(target)
    try:
        # Not waiting for the workers here: `meeting` does it and can name the missing ones.
        return TCPStore(
            target.host,
            target.port,
            place.world_size,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            use_libuv=STORE_HAS_LIBUV,
        )
    except (RuntimeError, ValueError) as error:  # torch's DistNetworkError is a RuntimeError
        if serves:
            raise RendezvousError(
                f"rank 0 cannot serve the store at {target}: {_first_line(error)}.", hint="use another port."
            ) from error
        raise RendezvousError(
            f"rank {place.rank} could not reach the store at {target} within {timeout_s:g} s.",
            hint="check that rank 0 runs, that host and port are its own, and firewalls in between.",
        ) from error


def _check_port_is_free(target: TcpTarget) -> None:
    """A silent listener on the port would make all ranks hang without a word."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if REUSE_ADDRESS_IS_SAFE:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", target.port))
        except OSError as error:
            raise RendezvousError(
                f"rank 0 cannot serve the store at {target}: {error.strerror or error}.",
                hint="another program, or what is left of an earlier run, holds the port: use another one.",
            ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
