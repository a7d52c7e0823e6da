"""What the files of a run hold."""

from collections.abc import Iterable
from pathlib import Path


def held_by(path: Path) -> bytes:
    """Of a trace without its unused slots, which a copy of it lacks."""
    return path.read_bytes().rstrip(b"\0") if path.suffix == ".ddptrace" else path.read_bytes()


def contents(paths: Iterable[Path]) -> dict[str, bytes]:
    """By name."""
    return {path.name: held_by(path) for path in paths}
