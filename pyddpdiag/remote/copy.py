"""A copy of a run that lies at a URL, in a temporary folder, for whatever reads traces."""

from __future__ import annotations

import errno
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyddpdiag.errors import PyddpdiagError, RemoteError, TraceError
from pyddpdiag.model.attempts import attempt_number
from pyddpdiag.model.run_files import belongs, is_trace
from pyddpdiag.remote.local import INDEX, LIVE, PIECE_BYTES, Index, checksum, read_index
from pyddpdiag.remote.place import PART, Place, is_url, name_of
from pyddpdiag.system.replaced_files import replace

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Copy:
    """What was at a place when it was last looked at. `folder`: the copy; need not exist."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.folder = folder
        self._place = place
        self._pieces: dict[str, dict[int, int]] = {}
        self.live: dict[str, Index] = {}
        """What is at the place of traces that are not there whole, by name."""
        self.links: list[str] = []
        """What has the name of a run's file or folder there and leads elsewhere: nothing of it is copied."""

    def refresh(self) -> None:
        """Fetches what is new.

        Raises:
            RemoteError: it cannot be read, or not whole, or this machine has no room for it.
            TraceError: there is nothing.
        """
        try:
            self._refresh()
        except (RemoteError, OSError) as error:
            reason = error.__cause__ if isinstance(error, RemoteError) else error
            if isinstance(reason, OSError) and reason.errno in _NO_ROOM:
                raise RemoteError(
                    f"{self._place.shown}: no room for a copy in {self.folder.parent}: {reason.strerror}.",
                    hint="set TMPDIR (on Windows TEMP) to a folder whose disk has space, or pyddpdiag collect the "
                    "traces to one.",
                ) from error
            raise

    def _refresh(self) -> None:
        attempts = [name for name in self._place.folders() if attempt_number(name) is not None]
        self.links = [name for name in self._place.links() if attempt_number(name) is not None]
        found = False
        for attempt in ("", *attempts):
            before = f"{attempt}/" if attempt else ""
            sizes = {name: size for name, size in self._place.sizes(attempt).items() if belongs(name)}
            live = [name for name in self._place.folders(attempt) if name.endswith(LIVE)]
            names = [name.removesuffix(LIVE) for name in live if is_trace(name.removesuffix(LIVE))]
            self.links += [before + name for name in self._place.links(attempt) if belongs(name)]
            (self.folder / attempt).mkdir(parents=True, exist_ok=True)
            for name, size in sizes.items():
                if name not in names:
                    self.live.pop(before + name, None)
                    self._fetch(before + name, size)
            for name in names:
                self._fetch_live(before + name, sizes.get(name))
            found = found or bool(sizes or names)
        if not found:
            raise TraceError(
                f"{self._place.shown}: no traces there.", hint="is it the place that --trace named?"
            )

    def _fetch(self, name: str, size: int) -> None:
        target = self.folder / name
        whole = is_trace(target.name) and name not in self._pieces
        if whole and target.exists() and target.stat().st_size == size:
            return
        beside = target.with_name(target.name + PART)
        self._place.fetch(name, beside, size)
        replace(beside, target)
        self._pieces.pop(name, None)

    def _fetch_live(self, name: str, whole: int | None) -> None:
        where = f"{name}{LIVE}/{INDEX}"
        try:
            index = read_index(self._place.read(where), f"{self._place.shown}/{where}")
        except RemoteError:
            # The first round is on its way, or the whole file has just taken its place.
            if whole is not None:
                self._fetch(name, whole)
            return
        if whole == index.size:
            self.live.pop(name, None)
            self._fetch(name, whole)
            return
        self.live[name] = index
        target, have = self.folder / name, self._pieces.setdefault(name, {})
        with target.open("r+b" if target.exists() else "w+b") as file:
            file.truncate(index.size)
            for number in sorted(index.pieces, reverse=True):  # the header last
                if have.get(number) == index.pieces[number]:
                    continue
                piece = self._place.read(f"{name}{LIVE}/{number}")
                size = min(PIECE_BYTES, index.size - number * PIECE_BYTES)
                if len(piece) != size:
                    raise RemoteError(
                        f"{self._place.shown}/{name}{LIVE}/{number}: {len(piece)} of {size} bytes came.",
                        hint="is it still being copied? Try again.",
                    )
                file.seek(number * PIECE_BYTES)
                file.write(piece)
                # Another one than the index has: a newer one, whose index comes next.
                have[number] = checksum(piece)


@contextmanager
def copied(url: str, *, may_be_empty: bool = False) -> Iterator[Copy]:
    """A copy that exists within the block. Errors in it name the URL and not the copy.

    `may_be_empty`: whether traces may come there later.

    Raises:
        RemoteError: the place cannot be reached, or not all of it has come.
        TraceError: there is nothing.
    """
    place = Place(url)
    with tempfile.TemporaryDirectory(prefix="pyddpdiag-", ignore_cleanup_errors=True) as temporary:
        copy = Copy(place, Path(temporary, name_of(url)))
        try:
            with suppress(*((TraceError,) if may_be_empty else ())):
                copy.refresh()
            yield copy
        except PyddpdiagError as error:
            error.message = error.message.replace(str(copy.folder), place.shown)
            error.hint = error.hint.replace(str(copy.folder), place.shown)
            error.args = (f"{error.message}\n  hint: {error.hint}" if error.hint else error.message,)
            raise


@contextmanager
def at_hand(source: str) -> Iterator[Path]:
    """A folder to read from: the one that is given, or a copy of what lies at a URL."""
    if not is_url(source):
        yield Path(source)
        return
    with copied(source) as copy:
        yield copy.folder


class Renewed:
    """A folder to look at again and again: one of this machine, or a copy that a thread renews.

    `copy`: None: a folder of this machine.
    """

    def __init__(self, folder: Path, copy: Copy | None = None) -> None:
        self.folder = folder
        self._copy = copy
        live = {} if copy is None else copy.live
        self._rounds = {name: index.round for name, index in live.items()}
        self.every_s = max((index.every_s for index in live.values()), default=0.0)
        """How often pieces are brought that this copies; 0: none are."""

    def require_renewed(self) -> None:
        """Whether anything was brought since the block began, so that it shows how the run is now.

        Raises:
            RemoteError: nothing was.
        """
        if self._copy is None or not self._rounds or not self._copy.live:
            return
        now = {name: index.round for name, index in self._copy.live.items()}
        if all(now.get(name) == number for name, number in self._rounds.items()):
            raise RemoteError(
                "nothing new was brought meanwhile, so the traces do not show how the run is now.",
                hint="look whether pyddpdiag run still runs on its machines and reaches the place; "
                "pyddpdiag report shows what was brought.",
            )


@contextmanager
def copied_while(source: str, every_s: float, *, may_be_empty: bool = False) -> Iterator[Renewed]:
    """What is looked at again and again: a folder, or a copy that is renewed every `every_s` seconds in the block.

    A look at the place that fails is made up for by the next one.
    """
    if not is_url(source):
        yield Renewed(Path(source))
        return
    ended = threading.Event()

    def renew(copy: Copy) -> None:
        while not ended.wait(every_s):
            with suppress(PyddpdiagError, OSError):
                copy.refresh()

    with copied(source, may_be_empty=may_be_empty) as copy:
        renewed = Renewed(copy.folder, copy)
        thread = threading.Thread(target=renew, args=(copy,), name="pyddpdiag-renew", daemon=True)
        thread.start()
        try:
            yield renewed
        finally:
            ended.set()
            thread.join(5)
