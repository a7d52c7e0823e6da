"""Where the traces of `pyddpdiag run` go besides the folder that the ranks write: to a URL, or to the first machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from pyddpdiag.errors import PyddpdiagError, UsageError
from pyddpdiag.integrations.started_ranks import Start
from pyddpdiag.integrations.tasks import Task
from pyddpdiag.model.words import listed, ranks
from pyddpdiag.output import say
from pyddpdiag.remote import carrier, gather
from pyddpdiag.remote.carrier import Carrier, Syncing, remove_brought, require_free
from pyddpdiag.remote.local import links_of
from pyddpdiag.remote.place import OPERATION_S, Place, name_of
from pyddpdiag.trace.attempts import choose_attempt
from pyddpdiag.trace.run import open_run

_SEVERAL: Final = ("--nnodes", "--num_machines", "--num-machines", "--hostfile")


@dataclass(frozen=True)
class Gather:
    """The machines of a run, and where the first one listens."""

    node: int
    nodes: int
    host: str
    port: int


def names_machines(command: Sequence[str]) -> bool:
    """Whether a command has an option of launchers that start ranks on several machines."""
    return any(word.startswith(_SEVERAL) for word in command)


def local_folder(url: str) -> Path:
    """Where ranks record whose traces go to a URL: no other command of the same run writes there."""
    name = name_of(url)
    return Path(f"{name}-{token_hex(3)}") / name


def gather_of(
    start: Start | None, task: Task | None, port: int | None, environ: Mapping[str, str] = os.environ
) -> Gather:
    """Who gathers, by the options of the start or the launcher's variables.

    Raises:
        UsageError: the machines do not know one another.
    """
    if start is not None and start.nnodes > 1:
        host, meeting = start.meeting()
        found = Gather(start.node_rank, start.nnodes, host, port or meeting + 1)
    elif task is not None and environ.get("MASTER_ADDR"):
        given = environ.get("MASTER_PORT", "")
        meeting = int(given) if given.isascii() and given.isdigit() else 29500
        found = Gather(task.number, task.count, environ["MASTER_ADDR"], port or meeting + 1)
    else:
        raise UsageError(
            "--gather needs to know the machines.",
            hint="give --nproc, --nnodes, --node-rank and --rendezvous, or start it by a launcher that sets "
            "MASTER_ADDR and each task's number; else: --trace URL, or pyddpdiag collect afterwards.",
        )
    if not 0 < found.port < 65536:
        raise UsageError(f"--gather-port {found.port} is no port.")
    return found


def run_gather(folder: Path, who: Gather, secrets: Sequence[bytes], limit_s: float = gather.LIMIT_S) -> None:
    """Sends this machine's files to the first, or waits there for those of the others. Says what did not work.

    Args:
        folder: of the run on this machine.
        who: the machines.
        secrets: of the run, as its ranks left them here.
        limit_s: for all of it.
    """
    with suppress(OSError):
        try:
            if who.node:
                sent = gather.send(folder, who.node, who.host, who.port, secrets, limit_s=limit_s)
                say(f"pyddpdiag: {sent} files sent to node 0; they are here, too: {folder}", sys.stderr)
                _say_left(links_of(folder))
                return
            found = gather.Gatherer(folder, who.nodes, who.port, secrets).gather(limit_s)
            for line in found.trouble:
                say(f"pyddpdiag: {line}", sys.stderr)
            if len(found.nodes) < who.nodes - 1:
                say(
                    "pyddpdiag: each node keeps its own; copy them here and bring them together: "
                    "pyddpdiag collect DIR... --into DIR",
                    sys.stderr,
                )
        except PyddpdiagError as error:
            say(
                f"pyddpdiag: not gathered: {error.message} The traces are kept in {folder.absolute()}",
                sys.stderr,
            )


def _say_left(links: Sequence[str]) -> None:
    if links:
        say(f"pyddpdiag: links are not followed, and were left: {listed(links)}", sys.stderr)


class Bringing:
    """Brings a run's traces to a URL: in pieces while its command runs, and whole when it has ended.

    Args:
        url: where to.
        folder: where the ranks record.
        every_s: how often pieces are brought; 0: only in the end.

    Raises:
        PyddpdiagError: the URL cannot be used.
    """

    def __init__(self, url: str, folder: Path, every_s: float) -> None:
        self.url = url
        self._place = Place(url)
        self._folder = folder
        self._every_s = every_s
        self._carrier = Carrier(folder, self._place, every_s=every_s)
        self._world_size = 0
        self._attempt = ""

    @property
    def shown(self) -> str:
        """The URL for people."""
        return self._place.shown

    def require_free(self, command: Sequence[str], alone: bool) -> None:
        """Refuses a place that holds traces, unless those of other machines of this run may be there.

        Raises:
            TraceExistsError: that is the case.
        """
        if alone and not names_machines(command):
            require_free(self._place)

    @contextmanager
    def meanwhile(self) -> Iterator[None]:
        """Brings pieces as long as the block runs."""
        if not self._every_s:
            yield
            return
        syncing = Syncing(self._carrier, self._every_s)
        try:
            yield
        finally:
            # What is on its way then ends by its own limits.
            syncing.close(OPERATION_S)

    def wait_for_others(self, limit_s: float = carrier.LIMIT_S) -> None:
        """Waits until all machines of the run have brought theirs, and says which ranks' have not come.

        Raises:
            PyddpdiagError: the place cannot be read.
        """
        if not self._world_size:
            return
        missing = carrier.wait_for_ranks(self._place, self._world_size, self._attempt, limit_s)
        if missing:
            with suppress(OSError):
                say(
                    f"pyddpdiag: after {limit_s:.0f} s, no traces of {ranks(missing)} are at {self.shown}. Their "
                    f"machines may still bring them; then: pyddpdiag report {self.shown}",
                    sys.stderr,
                )

    def finish(self) -> bool:
        """Brings all of it, and removes here what has arrived; False: some has not. That stays, and is said."""
        self._remember()
        brought = self._carrier.finish()
        with suppress(OSError):
            _say_left(brought.links)
            if brought.trouble:
                say(
                    f"pyddpdiag: not all was brought to {self.shown}: {brought.trouble}\n"
                    f"  kept in {self._folder.absolute()}\n"
                    f"  to bring it: pyddpdiag collect {self._folder} --into {self.shown}",
                    sys.stderr,
                )
            elif brought.files:
                say(f"pyddpdiag: {len(brought.files)} files brought to {self.shown}", sys.stderr)
                say(f"  next: pyddpdiag report {self.shown}", sys.stderr)
        if brought.trouble:
            return False
        remove_brought(self._folder, brought)
        with suppress(OSError):
            self._folder.parent.rmdir()
        return True

    def _remember(self) -> None:
        """How many ranks the newest attempt has: the files that say so go."""
        with suppress(PyddpdiagError):
            newest, _ = choose_attempt(self._folder)
            self._world_size = open_run(newest).world_size
            self._attempt = "" if newest == self._folder else newest.name
