"""Interfaces, the host name, GLOO_SOCKET_IFNAME, and the address that Gloo will take."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator

from pyddpdiag.doctor.check import Outcome, Situation, failed, passed, warned
from pyddpdiag.messages.shells import Line, SetVariable
from pyddpdiag.output import clean
from pyddpdiag.ranks import interfaces
from pyddpdiag.ranks.interfaces import VARIABLE, Interface
from pyddpdiag.ranks.tcp import resolve

_NCCL = re.compile(r"^[\^=]")


def check(situation: Situation) -> Iterator[Outcome]:
    """What there is, what was asked for, and what Gloo takes."""
    known = interfaces.found()
    if not known:
        yield failed("interfaces", "no interface of this machine has an IP address.", "Bring one up.")
        return
    yield passed("interfaces", "; ".join(map(str, known)))
    variable = list(_variable(situation, known))
    yield from variable
    yield _host_name(situation, known)
    if not variable or not any(outcome.status for outcome in variable):
        yield _choice(situation, known)


def _variable(situation: Situation, known: list[Interface]) -> Iterator[Outcome]:
    """GLOO_SOCKET_IFNAME: exact names of interfaces that have an address, each once."""
    text = situation.environ.get(VARIABLE)
    if text is None:
        return
    if text == "":
        return  # torch takes it for unset
    best = interfaces.outward(known) or known[0]
    names = {one.name: one for one in known}
    mend = SetVariable(VARIABLE, best.name)
    parts = text.split(",")
    for part in parts:
        problem = _problem_of_name(part, names)
        if problem:
            stripped = ",".join(dict.fromkeys(p.strip() for p in parts if p.strip() in names))
            yield failed(
                VARIABLE,
                f"'{clean(text, 80)}': {problem}",
                "Give the exact name of an interface (see 'interfaces'), or several by commas without blanks.",
                SetVariable(VARIABLE, stripped) if stripped else mend,
            )
            return
    twice = sorted({part for part in parts if parts.count(part) > 1})
    if twice:
        yield warned(
            VARIABLE,
            f"'{clean(text, 80)}' names {', '.join(twice)} more than once.",
            "Name each interface once, in the same order on all ranks.",
            SetVariable(VARIABLE, ",".join(dict.fromkeys(parts))),
        )
        return
    down = [part for part in parts if not names[part].up]
    if down:
        yield failed(VARIABLE, f"{', '.join(down)} is down.", "Bring it up, or name another one.", mend)
        return
    loopback = [part for part in parts if names[part].kind == "loopback"]
    if loopback and situation.launch.several_machines:
        yield failed(
            VARIABLE,
            f"{', '.join(loopback)} is the loopback interface, which the ranks on other machines cannot reach.",
            "Name the interface that leads to them.",
            mend,
        )
        return
    count = (
        "one interface"
        if len(parts) == 1
        else f"{len(parts)} interfaces, which all ranks must name in the same order"
    )
    yield passed(VARIABLE, f"{text}: {count}")


def _problem_of_name(name: str, names: dict[str, Interface]) -> str:
    if name in names:
        return ""
    if not name.strip():
        return "there is an empty name in it."
    if name.strip() in names:
        return "there are blanks around a name, and Gloo takes them for a part of it."
    if _NCCL.match(name):
        return f"{clean(name, 40)} is NCCL's syntax; Gloo takes names as they are."
    try:
        ipaddress.ip_address(name.strip())
    except ValueError:
        starts = [known for known in names if known.startswith(name)]
        hint = (
            f" NCCL would take it as the beginning of {', '.join(starts)}; Gloo does not." if starts else ""
        )
        return f"there is no interface {clean(name, 40)} with an IP address.{hint}"
    owner = next((one.name for one in names.values() if name.strip() in one.addresses), "")
    return f"{clean(name, 40)} is an address, not a name" + (f"; its interface is {owner}." if owner else ".")


def _host_name(situation: Situation, known: list[Interface]) -> Outcome:
    name = socket.gethostname()
    best = interfaces.outward(known)
    lines: tuple[Line, ...] = (SetVariable(VARIABLE, best.name),) if best else ()
    fix = "Set GLOO_SOCKET_IFNAME on every rank to the interface that leads to the others, or correct the hosts file."
    # With the variable, nobody asks for the name.
    pinned = bool(situation.environ.get(VARIABLE))
    several = situation.launch.several_machines
    found = resolve(name, situation.wait_s)
    if found is None:
        text = f"'{clean(name, 80)}': the name server did not answer within {situation.wait_s:g} s"
        return (
            passed("host name", f"{text}; GLOO_SOCKET_IFNAME is set")
            if pinned
            else warned("host name", f"{text}.", fix, *lines)
        )
    mine = {address for one in known for address in one.addresses}
    plain = [address.split("%", 1)[0] for address in found]
    shown = (
        f"'{clean(name, 80)}' is {', '.join(found)}"
        if found
        else f"'{clean(name, 80)}' resolves to no address"
    )
    if pinned:
        return passed("host name", f"{shown}; Gloo does not ask, as GLOO_SOCKET_IFNAME is set")
    if not found:
        trouble = "Gloo falls back to the loopback interface"
    elif all(interfaces.is_loopback(address) for address in plain):
        trouble = "ranks on other machines would connect to themselves"
    elif not any(address in mine or interfaces.is_loopback(address) for address in plain):
        trouble = "none of these is an address of this machine, and Gloo falls back to the loopback interface"
    elif all(interfaces.is_link_local(address) for address in plain):
        trouble = "a link-local address is useless without its interface"
    else:
        return passed("host name", shown)
    if several:
        return failed("host name", f"{shown}: {trouble}.", fix, *lines)
    if several is None and best is not None:
        return passed(
            "host name",
            f"{shown}: fine for ranks on this machine; for several machines set {VARIABLE}={best.name}",
        )
    return passed("host name", f"{shown}: fine, as all ranks are on this machine")


def _choice(situation: Situation, known: list[Interface]) -> Outcome:
    choice = interfaces.gloo_choice(situation.wait_s, situation.environ)
    names = ", ".join(choice.names) or "an interface without a name"
    text = f"{names} ({choice.address}), because {choice.why}"
    owner = next((one for one in known if one.name in choice.names), None)
    best = interfaces.outward(known)
    if situation.launch.several_machines and best is not None:
        fix = "Pin the interface that leads to the other machines."
        if owner is not None and owner.kind in ("docker", "VPN"):
            return warned(
                "Gloo takes",
                f"{text}: that is a {owner.kind} interface.",
                fix,
                SetVariable(VARIABLE, best.name),
            )
    return passed("Gloo takes", text)
