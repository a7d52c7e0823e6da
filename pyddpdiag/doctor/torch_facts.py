"""What the installed torch is, read from its files: importing it takes seconds, and may fail."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

_VERSION = re.compile(r"^(\d+)\.(\d+)")


@dataclass(frozen=True)
class Torch:
    """The installed torch.

    Attributes:
        version: such as "2.13.0+cpu".
        folder: of the package.
        cuda: the CUDA version that it was built for; "" for a CPU build.
        rocm: likewise.
    """

    version: str
    folder: Path
    cuda: str = ""
    rocm: str = ""

    @property
    def minor(self) -> tuple[int, int]:
        """Major and minor number; (0, 0) if the version cannot be read."""
        match = _VERSION.match(self.version)
        return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def find() -> Torch | None:
    """The torch of this Python; None if there is none."""
    try:
        version = importlib.metadata.version("torch")
        spec = importlib.util.find_spec("torch")
    except (importlib.metadata.PackageNotFoundError, ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if not places:
        return None
    folder = Path(places[0])
    try:
        text = (folder / "version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    values = dict(re.findall(r"^(\w+)(?:: [^=\n]+)? = '([^']*)'", text, re.MULTILINE))
    return Torch(version, folder, values.get("cuda", ""), values.get("hip", ""))
