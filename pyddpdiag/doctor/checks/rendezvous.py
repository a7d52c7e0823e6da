"""Where the ranks are to meet: a file, or an address and a port."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from pyddpdiag.doctor.check import Outcome, Situation, failed, passed, warned
from pyddpdiag.messages.shells import EndProcess, Line, RemoveFile, SetVariable
from pyddpdiag.output import clean
from pyddpdiag.ranks import interfaces, stale
from pyddpdiag.ranks.rendezvous import FileTarget, Place, TcpTarget
from pyddpdiag.ranks.stale import FileState
from pyddpdiag.ranks.tcp import Answer, Reach, ask_store, free_port, holder, resolve
from pyddpdiag.system.regular_file import RegularFile

_NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "fuse.sshfs",
    "lustre",
    "gpfs",
    "ceph",
    "beegfs",
    "drvfs",
}
_TIMEOUT_S = 300.0


def check(situation: Situation) -> Iterator[Outcome]:
    """The file or the address, if one is known."""
    if situation.problem:
        yield failed("rendezvous", situation.problem, "Use file:///PATH, tcp://host:port or env://.")
    elif isinstance(situation.target, FileTarget):
        yield from _file(situation, Path(situation.target.path))
    elif isinstance(situation.target, TcpTarget):
        yield from _tcp(situation, situation.target)
    else:
        yield passed("rendezvous", "none given; --rendezvous file:///PATH or tcp://host:port checks one")


def _file(situation: Situation, path: Path) -> Iterator[Outcome]:
    name = "rendezvous file"
    if not path.parent.is_dir():
        yield failed(
            name, f"the folder {clean(str(path.parent))} does not exist.", "Make it, or use another path."
        )
        return
    file_system = _network_file_system(path.parent)
    if file_system:
        yield warned(
            "file system",
            f"{clean(str(path.parent))} is on a network file system ({file_system}), whose locks and "
            f"caches FileStore relies on.",
            "For ranks on several machines a TCP store is safer: MASTER_ADDR and MASTER_PORT, or tcp://host:port.",
        )
    if not path.exists():
        yield from _new_file(path)
        return
    remove = RemoveFile(str(path))
    try:
        # First of all: reading would wait, too, where locks are mandatory.
        locked = stale.held(path, min(0.6, situation.wait_s))
    except OSError as error:
        yield failed(
            name,
            f"{clean(str(path))} cannot be opened: {error.strerror or error}.",
            "Use another file.",
            remove,
        )
        return
    if locked:
        who = stale.holders(path)
        yield failed(
            name,
            f"{clean(str(path))} is locked by {', '.join(map(str, who)) or 'another process'}: "
            "ranks would wait for it without a message, past every timeout.",
            "End that process, or use another file.",
            *(EndProcess(each.pid) for each in who if each.pid is not None),
        )
        return
    yield _contents(situation, path, remove)


def _new_file(path: Path) -> Iterator[Outcome]:
    name = "rendezvous file"
    probe = path.with_name(path.name + ".doctor")
    try:
        probe.open("xb").close()
        probe.unlink()
    except OSError as error:
        yield failed(
            name,
            f"no file can be made in {clean(str(path.parent))}: {error.strerror or error}.",
            "Use another folder.",
        )
        return
    yield passed(name, f"{clean(str(path))} does not exist yet, and can be made")


def _contents(situation: Situation, path: Path, remove: Line) -> Outcome:
    name = "rendezvous file"
    try:
        with RegularFile(path, links="none") as file:
            content = file.read(0, 16 * 1024 * 1024)
            age_s = time.time() - path.stat().st_mtime
    except OSError as error:
        return failed(
            name,
            f"{clean(str(path))} cannot be read: {error.strerror or error}.",
            "Use another file.",
            remove,
        )
    launch = situation.launch
    place = Place(launch.rank or 0, launch.world_size or 1, 1, FileTarget(str(path)))
    state, hello = stale.judge(content, place, _TIMEOUT_S, time.time())
    if state is FileState.USABLE and not content:
        return passed(name, f"{clean(str(path))} is empty")
    what = f"{clean(str(path))} exists and is not empty ({len(content)} bytes, {_age(age_s)} old)"
    if state is FileState.USABLE:
        return passed(
            name, f"{clean(str(path))} is in use by a run that starts now: {hello.who() if hello else ''}"
        )
    who = f", and {hello.who()} was there" if hello is not None else ""
    reasons = {
        FileState.STALE: "is left over from an earlier run, whose processes have ended",
        FileState.BUSY: "belongs to a run that still exists, or to the rest of one",
        FileState.UNKNOWN: "belongs to processes that cannot be seen from here",
    }
    reason = reasons.get(
        state, "it is not known whose it is: ranks would read the addresses of an earlier run in it"
    )
    return failed(
        name,
        f"{what}{who}: it {reason}." if state in reasons else f"{what}: {reason}.",
        "Make sure that no run uses it, delete it, and use a new file name for every run.",
        remove,
    )


def _age(seconds: float) -> str:
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{max(0, int(seconds))} s"


def _network_file_system(folder: Path) -> str:
    try:
        mounts = [(Path(p.mountpoint), p.fstype) for p in psutil.disk_partitions(all=True)]
    except (OSError, psutil.Error):
        return ""
    there = folder.resolve()
    over = [(len(mount.parts), kind) for mount, kind in mounts if mount == there or mount in there.parents]
    kind = max(over)[1].lower() if over else ""
    if str(there).startswith("\\\\"):
        return "SMB"
    return kind if kind in _NETWORK_FILE_SYSTEMS else ""


def _tcp(situation: Situation, target: TcpTarget) -> Iterator[Outcome]:
    name = "MASTER_ADDR"
    if target.host != target.host.strip():
        yield failed(
            name,
            f"'{clean(target.host, 80)}' has blanks around it.",
            "Remove them.",
            SetVariable(name, target.host.strip()),
        )
        return
    found = resolve(target.host, situation.wait_s)
    known = interfaces.found()
    best = interfaces.outward(known)
    address = found[0] if found else ""
    shown = target.host if address == target.host else f"{clean(target.host, 80)} ({address})"
    here = interfaces.is_loopback(address) or any(address in one.addresses for one in known)
    serves = situation.launch.rank in (0, None) and not target.agent
    text = fix = ""
    if not found:
        what = "does not resolve to an address" if found is not None else "was not resolved in time"
        text = f"'{clean(target.host, 80)}' {what}."
        fix = "Give the IPv4 address of rank 0's machine. If that is this one:"
    elif interfaces.is_loopback(address) and situation.launch.several_machines:
        text = (
            f"{shown} is a loopback address: ranks on other machines would look for the store on their own."
        )
        fix = "Give the address of rank 0's machine that the others can reach. If that is this one:"
    elif interfaces.is_link_local(address):
        text = f"{shown} is link-local: torch cannot use it without its interface."
        fix = "Give a routable IPv4 address."
    elif serves and situation.launch.rank == 0 and not here:
        text = f"this is rank 0, which serves the store, but {shown} is no address of this machine."
        fix = "Give an address of this machine to all ranks."
    if text:
        yield failed(
            name, text, fix, SetVariable(name, best.addresses[0] if best is not None else "127.0.0.1")
        )
        return
    yield passed(name, f"{shown}{', this machine' if here else ''}")
    yield _port(situation, target, address, here, serves)


def _port(situation: Situation, target: TcpTarget, address: str, here: bool, serves: bool) -> Outcome:
    name = "MASTER_PORT"
    answer, reach = ask_store(address, target.port, situation.wait_s)
    if here and serves:
        if answer is Answer.NOBODY and reach is Reach.REFUSED:
            return passed(name, f"{target.port} is free")
        who = holder(target.port)
        held = f" ({who})" if who is not None else ""
        if situation.launch.rank is None and answer is Answer.STORE:
            return passed(
                name,
                f"a torch store answers at {target}{held}: that of another rank, or of a run that is there",
            )
        return failed(
            name,
            f"{target.port} is held by {answer.value}{held}: "
            + (
                "ranks would wait for it without a message."
                if answer is Answer.SILENT
                else "rank 0 cannot serve its store there."
            ),
            "Use another port on all ranks, or end that process.",
            SetVariable(name, str(free_port(target.port))),
        )
    if answer is Answer.STORE:
        return passed(name, f"a torch store answers at {target}")
    if answer in (Answer.SILENT, Answer.OTHER_PROGRAM):
        return failed(
            name,
            f"{answer.value} is at {target}, not a torch store: ranks would wait for it without a message.",
            "Use another port on all ranks.",
            SetVariable(name, str(free_port(target.port))),
        )
    return _unanswered(situation, target, reach)


def _unanswered(situation: Situation, target: TcpTarget, reach: Reach) -> Outcome:
    name = "MASTER_PORT"
    if reach is Reach.REFUSED:
        return warned(
            name,
            f"nobody listens at {target} yet: rank 0 has not started, or is elsewhere.",
            "Start rank 0; its machine answers.",
        )
    what = {
        Reach.FILTERED: (
            f"does not answer within {situation.wait_s:g} s: a firewall drops the packets, or nobody is there"
        ),
        Reach.UNROUTABLE: "cannot be reached: no route leads there",
    }.get(reach, "cannot be reached")
    return failed(
        name,
        f"{target} {what}.",
        f"On rank 0's machine, let port {target.port} in, and check the address and the cable or VPN in between.",
    )
