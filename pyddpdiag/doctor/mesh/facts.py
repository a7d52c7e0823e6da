"""What a rank tells the others about itself and its machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import pyddpdiag
from pyddpdiag import system
from pyddpdiag.doctor.torch_facts import find
from pyddpdiag.errors import DoctorError
from pyddpdiag.messages.shells import Shell, shell_on
from pyddpdiag.model.fields import MISFITS, Limit, from_json
from pyddpdiag.ranks import interfaces, meeting

#: Variables on which all ranks must agree.
SHARED: Final = ("TORCH_GLOO_LAZY_INIT", "GLOO_DEVICE_TRANSPORT")
_SHOWN: Final = (*SHARED, "GLOO_SOCKET_IFNAME", "USE_LIBUV", "OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG")
_MOST_ADDRESSES = 16


@dataclass(frozen=True)
class Spot:
    """An address where a rank listens.

    Attributes:
        interface: its name there.
        address: IPv4, or IPv6 that is not link-local.
        port: of the doctor's listener.
        mtu: of the interface; 0 if unknown.
        loopback: only ranks of the same machine can reach it.
    """

    interface: str
    address: str
    port: int
    mtu: int = 0
    loopback: bool = False


@dataclass(frozen=True)
class Facts:
    """One rank.

    Attributes:
        rank: its number.
        world_size: as it was started.
        machine: the same for all ranks that share a loopback interface.
        system: Linux or Windows.
        versions: of pyddpdiag, torch and Python.
        variables: those that matter, where set.
        spots: where it listens.
        choice: the address that Gloo will take.
        choice_interface: its interface.
        token: what a caller must present.
    """

    rank: int
    world_size: int
    machine: str
    system: str
    versions: Mapping[str, str]
    variables: Mapping[str, str]
    spots: Annotated[tuple[Spot, ...], Limit(_MOST_ADDRESSES)]
    choice: str
    choice_interface: str
    token: str = field(repr=False, default="")

    @property
    def shell(self) -> Shell:
        """The shell to write lines for that are pasted there."""
        return shell_on(self.system)

    @classmethod
    def from_fields(cls, raw: object) -> Facts:
        """What another rank sent of itself.

        Raises:
            DoctorError: it is something else.
        """
        try:
            return from_json(cls, raw)
        except MISFITS as error:
            raise DoctorError("a rank introduced itself in a way that cannot be understood.") from error


def _machine() -> str:
    """A name for what shares a loopback interface: containers of one machine do not."""
    try:
        return f"{meeting.machine()} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return meeting.machine()


def gather(
    rank: int,
    world_size: int,
    environ: Mapping[str, str],
    ports: Mapping[str, int],
    token: str,
    wait_s: float,
) -> Facts:
    """This rank's facts; `ports`: where it listens, by address."""
    torch = find()
    choice = interfaces.gloo_choice(wait_s, environ)
    spots = [
        Spot(one.name, address, ports[address], one.mtu, one.kind == "loopback")
        for one in interfaces.found()
        for address in one.routable
        if address in ports
    ]
    return Facts(
        rank,
        world_size,
        _machine(),
        system.NAME,
        {
            "pyddpdiag": pyddpdiag.__version__,
            "torch": torch.version if torch is not None else "none",
            "Python": platform.python_version(),
        },
        {name: environ[name] for name in _SHOWN if name in environ},
        tuple(spots[:_MOST_ADDRESSES]),
        choice.address,
        choice.names[0] if choice.names else "",
        token,
    )
