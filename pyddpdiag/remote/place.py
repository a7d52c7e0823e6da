"""A place that has a URL: what fsspec can do there, each time with a limit of ours."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from pyddpdiag.errors import PackageMissingError, PyddpdiagError, RemoteError, UsageError
from pyddpdiag.output import clean
from pyddpdiag.system.regular_file import is_link
from pyddpdiag.system.threads import start_beside

T = TypeVar("T")

_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/@]*@")
_REFUSED: Final = (
    "accessdenied",
    "access_denied",
    "authenti",
    "credential",
    "forbidden",
    "logon",
    "permission",
)
_ABSENT: Final = ("bad_network_name", "does not exist", "no such", "nosuch", "not found", "notfound")
_LOCAL: Final = ("file", "local")
_GROWING: Final = (*_LOCAL, "sftp", "ssh", "smb", "ftp")
"""Where a file is seen while it is written. Stores of objects show it when all of it is there."""

PART: Final = ".part"
"""At the end of the name of a file of which not all may have come; no file of a run ends so."""

OPERATION_S: Final = 30.0
"""For one request of a few bytes: a listing, a piece of a trace."""
LEAST_RATE: Final = 2**18
"""Bytes a second: a whole file may take so much longer than a request."""


def is_url(text: str) -> bool:
    """Whether it names a place by a URL, and not a folder of this machine."""
    return _URL.match(text) is not None


def name_of(url: str) -> str:
    """The last part of a URL: what a local folder for its run is called.

    Raises:
        UsageError: it has none.
    """
    last = url.split("://", 1)[1].rstrip("/").rpartition("/")[2]
    if not last or last in (".", ".."):
        raise UsageError(
            f"{shown(url)} names no folder.", hint="give one of its own to each run: .../runs/first"
        )
    return re.sub(r"[^\w.-]", "-", last)[:80]


def shown(url: str) -> str:
    """A URL for people, without a password."""
    return clean(_PASSWORD.sub("://...@", url))


def within(limit_s: float, what: str, work: Callable[[], T]) -> T:
    """What `work` returns, or raises; it is left to itself after `limit_s`.

    Raises:
        RemoteError: the time is over, or the place refuses.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)

    # No pool: its threads are waited for when the interpreter ends.
    thread = threading.Thread(target=run, name="pyddpdiag-remote", daemon=True)
    start_beside(thread)
    thread.join(limit_s)
    if answer:
        return answer[0]
    if not failure:
        raise RemoteError(
            f"{what}: no answer within {limit_s:.0f} s.", hint="is the place reachable from here?"
        )
    error = failure[0]
    if isinstance(error, PyddpdiagError) or not isinstance(error, Exception):
        raise error
    raise RemoteError(f"{what}: {_words(error)}", hint=_what_to_do(error)) from error


def _words(error: Exception) -> str:
    text = clean(" ".join(str(error).split()), 300)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _what_to_do(error: Exception) -> str:
    """By the error's number or words: each kind of URL has classes of its own for the same thing."""
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and number is None and str(error) == "Failure":
        # An SFTP server of version 3 has no other word for it (draft-ietf-secsh-filexfer-02, SSH_FX_FAILURE).
        return "the server does not say why: is there room, and may it write there?"
    words = f"{type(error).__name__} {error}".lower()
    if number == errno.ENOSPC or any(word in words for word in ("disk_full", "disk full", "no space left")):
        return "make room there; what has not come stays here."
    if number in (errno.EACCES, errno.EPERM) or any(word in words for word in _REFUSED):
        return "are the keys or the password right, and may they read and write there?"
    if number == errno.ENOENT or any(word in words for word in _ABSENT):
        return "does the bucket, container or share exist? It is not made here."
    if isinstance(error, ConnectionError | TimeoutError) or "connect" in words:
        return "is the place reachable from here?"
    return ""


class Place:
    """A folder with a URL.

    `url`: as fsspec takes it; its options come from fsspec's own files and variables, such as FSSPEC_S3_ENDPOINT_URL.
    `limit_s`: for one request.

    Raises:
        PackageMissingError: fsspec, or what it needs for this kind of URL, is not installed.
        RemoteError: nothing at this URL can be reached.
    """

    def __init__(self, url: str, *, limit_s: float = OPERATION_S) -> None:
        self.url = url.rstrip("/")
        self.shown = shown(self.url)
        self._limit_s = limit_s
        self._fs, self._root = within(limit_s, self.shown, lambda: _opened(self.url))

    def sizes(self, below: str = "") -> dict[str, int]:
        """The files here, or in a folder `below`, and their sizes in bytes; none where there is no such folder."""
        return {name: int(size) for name, (sort, size) in self._entries(below).items() if sort == "file"}

    def folders(self, below: str = "") -> list[str]:
        """The names of the folders in it."""
        return sorted(name for name, (sort, _) in self._entries(below).items() if sort == "directory")

    def links(self, below: str = "") -> list[str]:
        """What is neither: links, which lead elsewhere, and devices."""
        return sorted(
            name for name, (sort, _) in self._entries(below).items() if sort not in ("file", "directory")
        )

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """The bytes of a file."""
        what = f"cannot read {self.shown}/{name}"
        return bytes(self._do(what, lambda: self._fs.cat_file(self._path(name), start=start, end=end)))

    def fetch(self, name: str, target: Path, size: int) -> None:
        """Copies a file of `size` bytes to this machine.

        Raises:
            RemoteError: it cannot be read, or is shorter or longer than it was said to be.
        """
        what = f"cannot read {self.shown}/{name}"
        self._do(what, lambda: self._fs.get_file(self._path(name), str(target)), size)
        found = target.stat().st_size
        if found != size:
            raise RemoteError(
                f"{self.shown}/{name}: {found} of {size} bytes came.",
                hint="is it still being copied? Try again.",
            )

    def write(self, name: str, content: bytes) -> None:
        """Writes a small file."""
        what = f"cannot write {self.shown}/{name}"
        self._make_parent(name)
        self._do(what, lambda: self._fs.pipe_file(self._path(name), content), len(content))

    def put(self, path: Path, name: str) -> None:
        """Copies a file of this machine there, and looks whether all of it has arrived.

        Raises:
            RemoteError: it has not.
        """
        what = f"cannot write {self.shown}/{name}"
        size, target = path.stat().st_size, self._path(name)
        # Whoever reads there meanwhile must not take a part for the whole.
        first = f"{target}{PART}" if self.url.partition("://")[0].lower() in _GROWING else target
        self._make_parent(name)
        self._do(what, lambda: self._fs.put_file(str(path), first), size)
        arrived = self._do(what, lambda: self._fresh().info(first)["size"])
        if arrived != size:
            raise RemoteError(f"{what}: {arrived} of {size} bytes have arrived.")
        if first != target:
            self._do(what, lambda: self._rename(first, target, path), size)

    def remove(self, folder: str) -> None:
        """Removes a folder below this one, with what is in it."""
        self._do(
            f"cannot remove {self.shown}/{folder}", lambda: self._fs.rm(self._path(folder), recursive=True)
        )

    def _rename(self, old: str, new: str, path: Path) -> None:
        try:
            self._fs.mv(old, new)
            return
        except OSError:
            # Some refuse where there is one of that name, some cannot rename at all.
            with suppress(FileNotFoundError):
                self._fs.rm_file(new)
        try:
            self._fs.mv(old, new)
        except OSError:
            self._fs.put_file(str(path), new)
            self._fs.rm_file(old)

    def _entries(self, below: str) -> dict[str, tuple[str, Any]]:
        """By name, what each entry is and its size."""

        def listed() -> Sequence[dict[str, Any]]:
            try:
                found: Sequence[dict[str, Any]] = self._fresh().ls(self._path(below), detail=True)
            except OSError as error:
                # smb:// has a class of its own for it.
                if isinstance(error, FileNotFoundError) or error.errno == errno.ENOENT:
                    return []
                raise
            return found

        found: dict[str, tuple[str, Any]] = {}
        for entry in self._do(f"cannot list {self.shown}", listed):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            found[name] = "link" if self._leads(entry) else str(entry["type"]), entry["size"]
        return found

    def _leads(self, entry: dict[str, Any]) -> bool:
        """Whether an entry is a link; fsspec has a type for those of most places, and says of a folder of this machine
        what they lead to."""
        if self.url.partition("://")[0].lower() not in _LOCAL:
            return bool(entry.get("islink"))
        with suppress(OSError):
            return is_link(Path(entry["name"]).lstat())
        return True

    def _fresh(self) -> Any:
        self._fs.invalidate_cache()
        return self._fs

    def _make_parent(self, name: str) -> None:
        parent = self._path(name).rpartition("/")[0]
        self._do(f"cannot make {self.shown}", lambda: self._fs.makedirs(parent, exist_ok=True))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _do(self, what: str, work: Callable[[], T], size: int = 0) -> T:
        """What `work` returns. If the connection is lost, it is tried once more over a new one."""
        limit_s = self._limit_s + size / LEAST_RATE
        try:
            return within(limit_s, what, work)
        except RemoteError as error:
            if not _is_lost(error.__cause__):
                raise
            # fsspec keeps a connection as long as the process lives, also when its server has ended meanwhile.
            self._fs, self._root = within(self._limit_s, what, lambda: _opened(self.url, again=True))
            return within(limit_s, what, work)


def _is_lost(error: BaseException | None) -> bool:
    """Whether an error is one of the connection, and not of a file: that would have a number."""
    if isinstance(error, ConnectionError):
        return True
    return error is not None and (not isinstance(error, OSError) or error.errno is None)


def _opened(url: str, *, again: bool = False) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise PackageMissingError(
            f"{shown(url)}: URLs need fsspec, which is not installed.", hint='pip install "pyddpdiag[remote]"'
        ) from error
    protocol = url.split("://", 1)[0].lower()
    try:
        fs, root = fsspec.core.url_to_fs(url, skip_instance_cache=again)
    except ImportError as error:
        raise PackageMissingError(
            f"{shown(url)}: {clean(str(error), 200)}", hint=f"pip install what fsspec needs for {protocol}://"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{shown(url)}: {clean(str(error), 200)}",
            hint="as s3://bucket/run or sftp://user@host/folder/run",
        ) from error
    return fs, str(root).rstrip("/")
