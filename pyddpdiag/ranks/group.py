"""Makes this process's default process group, from the rendezvous to the first handshake."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from pyddpdiag.errors import RendezvousError
from pyddpdiag.messages.explain import explain
from pyddpdiag.model import words
from pyddpdiag.output import decode
from pyddpdiag.ranks import stale
from pyddpdiag.ranks.failure import short
from pyddpdiag.ranks.meeting import Hello, meet
from pyddpdiag.ranks.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.ranks.tcp import Answer, ask_store, holder, resolve
from pyddpdiag.system import REUSE_ADDRESS_IS_SAFE, STORE_HAS_LIBUV, processes

# A store holds its lock for moments only.
_LOCK_TIMEOUT_S = 2.0
# A store answers at once, unless its machine is very busy.
_ASK_S = 5.0
_ASK_TIMES = 2


def open_store(place: Place, timeout_s: float, *, fresh_file: bool = False) -> Store:
    """Opens the store of `place`; waits for the server of a TCP store, but not for the other ranks.

    `timeout_s`: for the connection and for every later wait on the store. `fresh_file`: the file is known to belong
    to this run (the launcher created it), so it is not examined.

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
        locked = path.exists() and stale.held(path, _LOCK_TIMEOUT_S)
    except OSError:
        return  # the next look at the file says what is wrong with it
    if locked:
        who = ", ".join(map(str, stale.holders(path))) or "another process"
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


_FAILED = "pyddpdiag/failed"
_CONNECTED = "pyddpdiag/connected/"
# Gloo's own error, which says more, comes at the limit.
_CONNECT_SLACK_S = 2.0
# Whoever can reach the store can write there.
_MAX_REASON = 1000


class Group:
    """The default process group over Gloo, and the store beside it."""

    def __init__(self, place: Place, store: Store, hellos: list[Hello]) -> None:
        self.place = place
        self.hellos = hellos
        self._store = store

    def tell_failure(self, sentence: str) -> None:
        """Leaves this rank's reason in the store, for ranks that fail because of it. The first reason
        stays."""
        with suppress(RuntimeError):
            self._store.compare_set(_FAILED, "", sentence)

    def reason_of_failure(self) -> str:
        """The reason that the first failing rank left, "" if none did or the store is gone."""
        try:
            reason = self._store.get(_FAILED) if self._store.check([_FAILED]) else b""
        except RuntimeError:
            return ""
        return decode(reason, _MAX_REASON)

    def gone(self) -> list[Hello]:
        """The other ranks of this machine whose processes have ended."""
        mine = self.hellos[self.place.rank]
        return [
            hello
            for hello in self.hellos
            if hello.rank != mine.rank
            and hello.machine == mine.machine
            and not processes.is_alive(hello.pid, hello.started)
        ]

    def wait_for_reason(self, timeout_s: float = 2.0) -> str:
        """Why other ranks failed: the reason that the first of them left, or which are gone; "" if unknown.

        This gives the failing rank a moment to leave its reason, and the system one to end its process.
        """
        end = time.monotonic() + timeout_s
        while True:
            # In this order: a rank leaves its reason before it exits.
            gone = self.gone()
            reason = self.reason_of_failure() or _gone(gone)
            if reason or time.monotonic() >= end:
                return reason
            time.sleep(0.05)


def _gone(hellos: list[Hello]) -> str:
    names = words.listed(hello.who() for hello in hellos)
    if len(hellos) <= 1:
        return f"{names} is gone: its process has ended and left no reason." if hellos else ""
    return f"{names} are gone: which of them failed first is unknown."


def connect(
    place: Place,
    mine: Hello,
    timeout_s: float,
    *,
    store: Store | None = None,
    fresh_file: bool = False,
    phase: Callable[[str], None] = lambda _: None,
    group_timeout_s: float | None = None,
    backend: str | None = "gloo",
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Group:
    """Meets the other ranks and makes the default process group with them.

    Args:
        mine: its introduction to the others.
        timeout_s: for all of it.
        store: where to meet; opened at `place` by default.
        fresh_file: see `open_store`.
        phase: called with what the rank is about to wait for.
        group_timeout_s: of the group's collectives later on; `timeout_s` by default.
        backend: see `torch.distributed.init_process_group`, like `options`.
        options: passed on to it.

    Raises:
        RendezvousError: the ranks do not find together within `timeout_s`; the message names those that are missing.
    """
    begin = time.monotonic()
    if store is None:
        phase(f"opening the store at {place.target}")
        store = open_store(place, timeout_s, fresh_file=fresh_file)
    phase(f"waiting for the other ranks at {place.target}")
    try:
        hellos = meet(store, mine, max(1.0, timeout_s - (time.monotonic() - begin)), str(place.target))
    except RuntimeError as error:
        if isinstance(error, RendezvousError):
            raise
        raise RendezvousError(
            f"rank {place.rank} lost the store at {place.target} while waiting for the others.",
            hint="see the output of rank 0, which serves the store.",
        ) from error
    phase("connecting Gloo to the other ranks")
    seconds = timeout_s if group_timeout_s is None else group_timeout_s

    def make() -> None:
        dist.init_process_group(
            backend,
            store=PrefixStore("pyddpdiag/group", store),
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(seconds=seconds),
            **options,
        )

    _within(make, max(1.0, timeout_s - (time.monotonic() - begin)), place, store)
    return Group(place, store, hellos)


def _within(make: Callable[[], None], limit_s: float, place: Place, store: Store) -> None:
    """Makes the group in a thread: some of Gloo's waits take five times the group's timeout, and some never end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            make()
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=run, name="pyddpdiag-group", daemon=True)
    worker.start()
    worker.join(limit_s + _CONNECT_SLACK_S)
    if worker.is_alive():
        missing = [
            rank for rank in range(place.world_size) if rank != place.rank and not _has_connected(store, rank)
        ]
        raise RendezvousError(
            f"rank {place.rank} met all ranks at {place.target}, but Gloo did not connect them within {limit_s:.0f} s; "
            + (f"{words.ranks(missing)} did not connect either." if missing else "the others did."),
            hint="a firewall may block Gloo's random ports, or an interface is wrong: run 'pyddpdiag doctor --mesh' on "
            "every rank, which shows the pairs that cannot connect.",
        )
    if errors:
        error = errors[0]
        found = explain(error) if isinstance(error, RuntimeError) else None
        if found is not None and found.known:
            raise RendezvousError(
                f"rank {place.rank} could not connect Gloo to the others: {short(str(error))}. {found.cause}",
                hint=" ".join([found.fix, *found.lines]),
            ) from error
        raise error
    store.set(f"{_CONNECTED}{place.rank}", "1")


def _has_connected(store: Store, rank: int) -> bool:
    try:
        return bool(store.check([f"{_CONNECTED}{rank}"]))
    except RuntimeError:
        return False


@contextmanager
def process_group(
    place: Place,
    mine: Hello,
    timeout_s: float,
    *,
    fresh_file: bool = False,
    phase: Callable[[str], None] = lambda _: None,
) -> Iterator[Group]:
    """Creates the process group with the other ranks; on a clean exit waits for them and destroys it again.

    After an error in the block, the group is left as it is: destroying it could wait for ranks that are gone.

    Args:
        mine: its introduction to the others.
        timeout_s: for the start as a whole, and for each collective later on.
        fresh_file: see `open_store`.
        phase: called with what the rank is about to wait for.

    Raises:
        RendezvousError: the ranks do not find together within `timeout_s`.
    """
    yield connect(place, mine, timeout_s, fresh_file=fresh_file, phase=phase)
    with warnings.catch_warnings():
        # On some versions, barrier() without devices warns about accelerators that this group doesn't use.
        warnings.simplefilter("ignore")
        dist.barrier()
    dist.destroy_process_group()
