"""The sidecar of one rank: names for what the records number. Optional, and nothing in it is trusted."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyddpdiag.trace.text import clean

SIDECAR_LIMIT: Final = 64 * 2**20
NAME_LIMIT: Final = 512


@dataclass(frozen=True)
class Group:
    """A process group: its name, backend and global ranks."""

    name: str
    backend: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Module:
    """A DDP module: its class name and the names of its parameters, in DDP's order."""

    name: str
    group: int
    bucket_cap_mb: float | None
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Which parameters lie in a bucket, as indices into the module's list, in the buffer's order."""

    module: int
    parameters: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Sidecar:
    """What a sidecar tells; everything is empty where the file is missing or broken."""

    host: str = ""
    torch: str = ""
    platform: str = ""
    groups: Mapping[int, Group] = field(default_factory=dict)
    modules: Mapping[int, Module] = field(default_factory=dict)
    layouts: Mapping[int, Layout] = field(default_factory=dict)


def read_sidecar(path: Path) -> tuple[Sidecar, tuple[str, ...]]:
    """Read a sidecar as far as it can be understood. Never raises; says what was left out.

    Returns:
        the sidecar, and what is wrong with it.
    """
    try:
        if not path.is_file():
            return Sidecar(), ("missing: names of hosts, groups and parameters are not known.",)
        if path.stat().st_size > SIDECAR_LIMIT:
            return Sidecar(), (f"larger than {SIDECAR_LIMIT >> 20} MiB, not read.",)
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = clean(str(error), 200) or type(error).__name__
        return Sidecar(), (f"cannot be read ({reason}): names are not known.",)
    if not isinstance(raw, dict):
        return Sidecar(), ("holds no JSON object: names are not known.",)
    warnings: list[str] = []
    version = raw.get("schema_version")
    if version != 1:
        warnings.append(f"schema_version is {clean(repr(version), 40)}, this version reads 1.")
    groups, skipped_groups = _collect(raw.get("groups"), _group)
    modules, skipped_modules = _collect(raw.get("modules"), _module)
    layouts, skipped_layouts = _collect(raw.get("buckets"), _layout)
    skipped = skipped_groups + skipped_modules + skipped_layouts
    if skipped:
        warnings.append(f"{skipped} entries could not be understood and were left out.")
    sidecar = Sidecar(
        _text(raw, "host"), _text(raw, "torch"), _text(raw, "platform"), groups, modules, layouts
    )
    return sidecar, tuple(warnings)


def _collect(entries: Any, convert: Any) -> tuple[dict[int, Any], int]:
    """Convert a list of entries into a dictionary by id, counting those that don't fit."""
    if entries is None:
        return {}, 0
    if not isinstance(entries, list):
        return {}, 1
    known: dict[int, Any] = {}
    skipped = 0
    for entry in entries:
        try:
            key, value = convert(entry)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            skipped += 1
        else:
            known[key] = value
    return known, skipped


def _group(entry: dict[str, Any]) -> tuple[int, Group]:
    return _id(entry["id"]), Group(_text(entry, "name"), _text(entry, "backend"), _integers(entry["ranks"]))


def _module(entry: dict[str, Any]) -> tuple[int, Module]:
    names = tuple(_text(parameter, "name") for parameter in entry.get("parameters", []))
    cap = entry.get("bucket_cap_mb")
    # A bool is an int to Python, and a NaN would not survive the way to JSON.
    known = isinstance(cap, (int, float)) and not isinstance(cap, bool) and 0 <= cap < 1e12
    group = entry.get("group")
    return _integer(entry["index"]), Module(
        _text(entry, "name"),
        _id(group) if group else 0,
        float(cap) if known and cap is not None else None,
        names,
    )


def _layout(entry: dict[str, Any]) -> tuple[int, Layout]:
    return _id(entry["id"]), Layout(
        _integer(entry.get("module", 0)), _integers(entry.get("parameters", [])), _text(entry, "dtype")
    )


def _text(entry: dict[str, Any], key: str) -> str:
    value = entry.get(key, "")
    return clean(value, NAME_LIMIT) if isinstance(value, str) else ""


def _id(value: Any) -> int:
    """A 64-bit number written as hex digits."""
    if not isinstance(value, str) or not 1 <= len(value) <= 16 or not set(value) <= set(string.hexdigits):
        raise ValueError("not an id")
    return int(value, 16)


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
        raise ValueError("not an index")
    return value


def _integers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError("not a list")
    return tuple(_integer(value) for value in values)
