"""Opens files that somebody else may have put there: regular files only, and never blocks on one."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pyddpdiag.system.replaced_files import open_shared

if TYPE_CHECKING:
    from typing_extensions import Buffer

Links = Literal["followed", "hard", "none"]
"""Which files are accepted: also links to a file; only files themselves, whatever other names they have; only files of
one name."""

FileIdentity = tuple[int, int] | None
"""Device and number of a file: the same for all its names. None where the file system has no such number."""

# A pipe or a device must not block the open, become our terminal, or stay open in a child.
_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOINHERIT", 0)
)


class NotAFileError(OSError):
    """Something has this name, but it is a folder, pipe, socket or device, or a link where none is
    allowed."""


class RegularFile:
    """A regular file, open for reading. A context manager.

    `size` is its size when it was opened.

    Args:
        path: of the file.
        links: what is accepted besides a file of one name.

    Raises:
        NotAFileError: it is not a regular file, or is a link where none is allowed.
        OSError: it cannot be opened; also for an impossible path (a NUL in it, or lone surrogates).
    """

    def __init__(self, path: Path, *, links: Links = "followed") -> None:
        follow = links == "followed"
        try:
            # First by name: merely opening some devices has effects.
            _check(path.stat() if follow else path.lstat(), links)
            descriptor = open_shared(path, _FLAGS if follow else _FLAGS | getattr(os, "O_NOFOLLOW", 0))
        except ValueError as error:
            raise OSError(errno.EINVAL, "no file can have this name") from error
        try:
            # Then by descriptor: by now the name may refer to something else.
            status = os.fstat(descriptor)
            _check(status, links)
        except BaseException:
            os.close(descriptor)
            raise
        self.size = status.st_size
        self.identity: FileIdentity = (status.st_dev, status.st_ino) if status.st_ino else None
        # Unbuffered: the bytes go straight into the array that they are read into.
        self._file = io.FileIO(descriptor, "rb", closefd=True)

    def __enter__(self) -> RegularFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_into(self, target: Buffer, offset: int) -> int:
        """Fill the bytes of `target` from `offset` on, and return how many were read: fewer at the end of the file.

        Raises:
            OSError: the system cannot read it; `BlockingIOError` if it has no data now (some files in /proc wait
                for events).
        """
        # Seek and read: Windows has no os.pread.
        self._file.seek(offset)
        return self._fill(target)

    def read(self, offset: int, most: int) -> bytes:
        """At most `most` bytes from `offset` on, and no more than the file had when it was opened."""
        target = bytearray(max(0, min(most, self.size - offset)))
        return bytes(memoryview(target)[: self.read_into(target, offset)])

    def read_on(self, most: int) -> bytes:
        """`most` bytes from where the last ones ended; fewer, or none, only at the end of the file."""
        target = bytearray(most)
        return bytes(memoryview(target)[: self._fill(target)])

    def _fill(self, target: Buffer) -> int:
        done, room = 0, memoryview(target)
        while done < len(room):
            got = self._file.readinto(room[done:])
            if got is None:
                raise BlockingIOError(errno.EAGAIN, "reading it would wait for somebody else")
            if got == 0:
                break
            done += got
        return done

    def data_after(self, offset: int) -> tuple[int, int] | None:
        """Where the next stretch of data, not a hole, begins and ends; None if only holes are left.

        Where the system cannot tell, the whole rest counts as data.
        """
        if not hasattr(os, "SEEK_DATA"):
            return offset, self.size
        try:
            begin = os.lseek(self._file.fileno(), offset, os.SEEK_DATA)
            return begin, os.lseek(self._file.fileno(), begin, os.SEEK_HOLE)
        except OSError as error:
            return None if error.errno == errno.ENXIO else (offset, self.size)


def is_link(status: os.stat_result) -> bool:
    """Whether what `lstat` saw leads elsewhere; on Windows also a junction or another such reparse point."""
    # Windows: lstat itself goes through the other ones, such as files that a cloud keeps, and gives no tag then.
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) != 0


def _check(status: os.stat_result, links: Links) -> None:
    if links != "followed" and is_link(status):
        raise NotAFileError(errno.EINVAL, "it is a link, which is not followed here")
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError(errno.EINVAL, "not a file")
    if links == "none" and status.st_nlink > 1:
        raise NotAFileError(errno.EINVAL, "it is a link: the same file has another name, too")
