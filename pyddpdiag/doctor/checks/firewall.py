"""The firewall of this machine, as far as it can be read without root. Gloo's ports are random, in both directions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pyddpdiag.doctor.check import Outcome, Situation, passed, warned
from pyddpdiag.messages.shells import ByShell

_WINDOWS_KEY = r"SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy"
_PROFILES = ("DomainProfile", "StandardProfile", "PublicProfile")
_ALLOW = ByShell(
    "sudo iptables -I INPUT -p tcp -s ADDRESS-OF-THE-OTHERS -j ACCEPT",
    'New-NetFirewallRule -DisplayName "python (Gloo)" -Direction Inbound -Program (Get-Command '
    "python).Source -Action Allow",
)


def check(situation: Situation) -> Iterator[Outcome]:
    """Whether something may drop what other ranks send, and that this machine can connect to itself at all."""
    active = [*_windows(), *_ufw(), *_iptables(situation.wait_s)]
    if not active:
        yield passed("firewall", "none found that drops incoming connections")
        return
    text = f"{'; '.join(active)}: connections from other machines to random ports may be dropped"
    if situation.launch.several_machines:
        yield warned(
            "firewall",
            f"{text}.",
            "Let the other ranks' machines in on all ports, and check with 'pyddpdiag doctor --mesh' on every rank.",
            _ALLOW,
        )
    else:
        yield passed("firewall", f"{text}; that matters only with several machines")


def _windows() -> Iterator[str]:
    try:
        import winreg
    except ImportError:
        return
    for profile in _PROFILES:
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, f"{_WINDOWS_KEY}\\{profile}") as key:  # type: ignore[attr-defined,unused-ignore]
                enabled = winreg.QueryValueEx(key, "EnableFirewall")[0]  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            continue
        if enabled:
            yield f"Windows Firewall is on ({profile.removesuffix('Profile')})"


def _ufw() -> Iterator[str]:
    try:
        text = Path("/etc/ufw/ufw.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if any(line.strip().lower() == "enabled=yes" for line in text.splitlines()):
        yield "ufw is on"


def _iptables(wait_s: float) -> Iterator[str]:
    """For root only: the policy and rules of the INPUT chain."""
    tool = shutil.which("iptables")
    if tool is None:
        return
    try:
        done = subprocess.run(
            [tool, "-S", "INPUT"],
            capture_output=True,
            text=True,
            timeout=wait_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return
    if done.returncode:
        return
    lines = done.stdout.splitlines()
    closed = [
        line for line in lines if line.endswith("-j DROP") or " -j REJECT" in line or line == "-P INPUT DROP"
    ]
    if closed:
        yield f"iptables drops or rejects ({closed[0].strip()})"
