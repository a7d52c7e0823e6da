"""Where the ranks meet: --dist-url and torchrun's variables, checked before they can make anything hang."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath, PureWindowsPath
from urllib.parse import unquote, urlsplit

from pyddpdiag.errors import RendezvousError, UsageError


@dataclass(frozen=True)
class FileTarget:
    """A file that all ranks can reach."""

    path: str

    def __str__(self) -> str:
        return f"the file {self.path}"


@dataclass(frozen=True)
class TcpTarget:
    """A TCP store; rank 0 serves it unless `agent` says that torchrun does."""

    host: str
    port: int
    agent: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Target = FileTarget | TcpTarget


@dataclass(frozen=True)
class Place:
    """The place of one rank in its world, and where it meets the others."""

    rank: int
    world_size: int
    local_world_size: int
    target: Target


# Path itself belongs to no system: only an instance, Path(), is a PureWindowsPath on Windows.
_THIS_SYSTEM = type(Path())


def file_path(url: str, flavour: type[PurePath] = _THIS_SYSTEM) -> PurePath:
    """The path in a file:// URL, by the rules of this system or of the one that `flavour` stands for.

    `file:///tmp/x` is /tmp/x; `file:///D:/x` is D:/x on Windows; `file://server/share/x` is the network path
    there.

    Raises:
        RendezvousError: it does not name a file.
    """
    parts = urlsplit(url)
    path, host = unquote(parts.path), unquote(parts.netloc)
    windows = issubclass(flavour, PureWindowsPath)
    if windows and re.fullmatch(r"[A-Za-z]:", host):
        # file://D:/x lacks one slash, but its meaning is clear.
        host, path = "", f"/{host}{path}"
    if host not in ("", "localhost"):
        if not windows:
            raise RendezvousError(
                f"The URL {url} names the host '{host}'; a file:// URL needs three slashes.",
                hint=f"write file:///{host}{path}",
            )
        path = f"//{host}{path}"
    elif windows and re.match(r"/[A-Za-z]:", path):
        path = path[1:]
    result = flavour(path)
    # On Windows, /tmp/x has a root but no drive: it would mean another file on every drive.
    if not result.is_absolute() or not result.name or path.endswith("/"):
        raise RendezvousError(
            f"The URL {url} does not name a file.",
            hint="write file:///D:/folder/file" if windows else "write file:///folder/file",
        )
    return result


def parse_url(url: str) -> Target | None:
    """The target of file:// and tcp:// URLs; None for env://.

    Raises:
        RendezvousError: it is anything else, or malformed.
    """
    scheme = url.split("://", 1)[0].lower() if "://" in url else ""
    if scheme == "env":
        return None
    if scheme == "file":
        return FileTarget(str(file_path(url)))
    if scheme == "tcp":
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise RendezvousError(
                f"The URL {url} is malformed: {error}.", hint="write tcp://host:port"
            ) from error
        if not host or not port:
            raise RendezvousError(f"The URL {url} lacks a host or a port.", hint="write tcp://host:29500")
        return TcpTarget(host, port)
    raise RendezvousError(
        f"--dist-url {url} is not understood.", hint="use file://PATH, tcp://host:port or env://"
    )


def under_torchrun(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun, or something that sets the same variables, started this process as a rank."""
    return "RANK" in environ and "WORLD_SIZE" in environ


def join_url(
    url: str, world_size: int | None, rank: int | None, environ: Mapping[str, str] = os.environ
) -> Place:
    """The place that `--dist-url`, `--world-size` and `--rank` describe.

    Raises:
        RendezvousError: the URL is not understood.
        UsageError: an option is missing, or the rank is outside of the world.
    """
    target = parse_url(url)
    if target is None:
        return join_environment(environ, world_size, rank)
    if world_size is None or rank is None:
        missing = "--world-size" if world_size is None else "--rank"
        raise UsageError(
            f"--dist-url {url} needs {missing} as well.", hint="give --world-size N --rank R on every rank."
        )
    _check(rank, world_size)
    # We don't know how many of the ranks are on this machine. Assume all of them: too few threads cost less
    # than too many.
    return Place(rank, world_size, world_size, target)


def join_environment(
    environ: Mapping[str, str] = os.environ, world_size: int | None = None, rank: int | None = None
) -> Place:
    """The place in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; the arguments replace the first two.

    Raises:
        RendezvousError: a variable is missing, or is not a number that can be right.
        UsageError: the rank is outside of the world.
    """
    given = {"RANK": rank, "WORLD_SIZE": world_size}
    missing = [
        name
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if given.get(name) is None and not environ.get(name)
    ]
    if missing:
        raise RendezvousError(
            f"env:// needs the environment variable{'s' if len(missing) > 1 else ''} {', '.join(missing)}.",
            hint="torchrun sets them; or use --dist-url with file:// or tcp://, --world-size and --rank.",
        )
    rank = _number(environ, "RANK") if rank is None else rank
    world_size = _number(environ, "WORLD_SIZE") if world_size is None else world_size
    _check(rank, world_size)
    port = _number(environ, "MASTER_PORT")
    if not 0 < port < 65536:
        raise RendezvousError(f"MASTER_PORT is {port}, which is not a TCP port.")
    local = _number(environ, "LOCAL_WORLD_SIZE") if environ.get("LOCAL_WORLD_SIZE") else world_size
    agent = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return Place(rank, world_size, local, TcpTarget(environ["MASTER_ADDR"], port, agent))


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise RendezvousError(
            f"The environment variable {name} is '{environ[name]}', which is not a number."
        ) from None


def _check(rank: int, world_size: int) -> None:
    if world_size < 1:
        raise UsageError(f"The world size is {world_size}, but at least 1 is needed.")
    if not 0 <= rank < world_size:
        raise UsageError(
            f"The rank is {rank}, but with a world size of {world_size} it must be 0 to {world_size - 1}."
        )
