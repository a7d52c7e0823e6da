"""Lines of docs/schedulers.md as a user pastes them: only names of interfaces and ports are put in."""

import os
import re
import shutil
import sys
from pathlib import Path

from pyddpdiag.ranks import interfaces
from support.ports import own_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"
JOB = Path(__file__).with_name("scheduled_job.py")


def lines(heading: str, place: int = 0) -> str:
    """A block of the page.

    Args:
        heading: of its section.
        place: which of its indented blocks, from 0.
    """
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert found, f"no section '{heading}' in {PAGE.name}"
    section = rest.partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", section, re.MULTILINE)
    return re.sub(r"^    ", "", blocks[place], flags=re.MULTILINE)


def here(text: str) -> str:
    """The same for this machine: its loopback, and a port that is free."""
    return text.replace("eth0", interfaces.loopback() or "").replace("29500", str(own_port()))


def bed(folder: Path) -> dict[str, str]:
    """A folder in which the lines find `train.py`; the variables with which they find this environment's programs."""
    shutil.copy2(JOB, folder / "train.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interfaces.loopback() or ""}
