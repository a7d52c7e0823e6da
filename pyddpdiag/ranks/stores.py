"""Opens torch's store at the place where the ranks meet, with errors that say what is wrong there."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore, Store, TCPStore

from pyddpdiag.errors import RendezvousError
from pyddpdiag.ranks import file_lock, stale
from pyddpdiag.ranks.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.ranks.tcp import Answer, ask_store, holder, resolve
from pyddpdiag.system import REUSE_ADDRESS_IS_SAFE, STORE_HAS_LIBUV

# A store holds its lock for moments only.
_LOCK_TIMEOUT_S = 2.0
# A store answers at once, unless its machine is very busy.
_ASK_S = 5.0
_ASK_TIMES = 2


def open_store(place: Place, timeout_s: float, *, fresh_file: bool = False) -> Store:
    """Opens the store of `place`; waits for the server of a TCP store, but not for the other ranks.

    Args:
        place: this rank's place.
        timeout_s: for the connection and for every later wait on the store.
        fresh_file: the file is known to belong to this run (the launcher created it), so it is not examined.

    Raises:
        RendezvousError: the file cannot be used, the port is taken, or no server answers in time.
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
        _check_unlocked(path)
        stale.await_usable(path, place, timeout_s)
    try:
        return FileStore(str(path), place.world_size)
    except RuntimeError as error:
        raise RendezvousError(
            f"The rendezvous file {path} cannot be opened: {_first_line(error)}.",
            hint="choose a file in a folder that all ranks can write to.",
        ) from error


def _check_unlocked(path: Path) -> None:
    """torch would wait for the lock past every timeout."""
    try:
        locked = path.exists() and file_lock.held(path, _LOCK_TIMEOUT_S)
    except OSError:
        return  # the next look at the file says what is wrong with it
    if locked:
        who = ", ".join(map(str, file_lock.holders(path))) or "another process"
        raise RendezvousError(
            f"The rendezvous file {path} is locked by {who}.", hint="end that process, or use another file."
        )


def _open_tcp(target: TcpTarget, place: Place, timeout_s: float) -> Store:
    serves = place.rank == 0 and not target.agent
    if serves:
        _check_port_is_free(target)
    else:
        _check_it_is_a_store(target, place, timeout_s)
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


def _check_it_is_a_store(target: TcpTarget, place: Place, timeout_s: float) -> None:
    """Refuses a program that accepts connections and is no store: torch would wait for it without a message."""
    addresses = resolve(target.host, min(_ASK_S, timeout_s)) or []
    for address in addresses[:1]:
        for _ in range(_ASK_TIMES):
            answer, _ = ask_store(address, target.port, min(_ASK_S, timeout_s))
            if answer in (Answer.STORE, Answer.NOBODY):
                return  # rank 0 may come later
        raise RendezvousError(
            f"rank {place.rank} found {answer.value} at {target}, not a torch store.",
            hint="another program holds that port on rank 0's machine: use another port on all ranks.",
        )


def _check_port_is_free(target: TcpTarget) -> None:
    """Checks the port: a silent listener on it would make all ranks hang without an error."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if REUSE_ADDRESS_IS_SAFE:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", target.port))
        except OSError as error:
            who = holder(target.port)
            raise RendezvousError(
                f"rank 0 cannot serve the store at {target}: {error.strerror or error}"
                f"{f', held by {who}' if who else ''}.",
                hint="another program, or what is left of an earlier run, holds the port: use another one.",
            ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
