"""The control groups of this process, such as those of its container: files of Linux, version 1 and 2.

Elsewhere they do not exist, and there is no limit that could be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
_LIMIT: Final = 65_536


def folders(controller: str, root: Path = ROOT, own: Path = OWN) -> Iterator[Path]:
    """The control groups around the process, from its own outwards; a limit on an outer one counts as well.

    Args:
        controller: what they limit, as version 1 names it: "cpu" or "memory".
        root: where the control groups are.
        own: names those of the process.
    """
    for line in text_of(own).splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            base = root
        elif controller in controllers.split(","):
            base = next((root / name for name in (controllers, controller) if (root / name).is_dir()), root)
        else:
            continue
        # In a container its own group may be mounted as the root, whatever the path says.
        inner = base / path.lstrip("/")
        folder = inner if inner.is_dir() and ".." not in inner.parts else base
        while True:
            yield folder
            if folder == base:
                break
            folder = folder.parent


def counters(path: Path) -> dict[str, int]:
    """The numbers by name in a file such as `cpu.stat`; empty: there is none."""
    lines = (line.split() for line in text_of(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def text_of(path: Path) -> str:
    """The content of such a file; empty: it cannot be read."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(_LIMIT).strip()
    except OSError:
        return ""
