"""Reads result files; whatever is wrong with one is said, with the place in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

from pyddpdiag.bench.results import KINDS, SCHEMA, SCHEMA_VERSION, Entry, ResultFile
from pyddpdiag.errors import ResultError, ResultVersionError
from pyddpdiag.paths.averaging import current_label

_BYTES_LIMIT: Final = 512 * 2**20
# What comparing needs of each kind, with the type it must have.
_NEEDED: Final[dict[str, dict[str, type | tuple[type, ...]]]] = {
    "step": {"world_size": int, "model": str, "hook": str, "bucket_cap_mb": (int, float), "dtype": str},
    "allreduce": {"world_size": int, "bytes": int, "dtype": str},
    "scaling": {"world_size": int, "model": str, "dtype": str, "duration_s": (int, float)},
}


def read(path: str | os.PathLike[str]) -> ResultFile:
    """Reads a result file.

    Raises:
        ResultVersionError: it was written by a version whose schema this one does not know.
        ResultError: it cannot be read, is no JSON, is another tool's, or lacks something.
    """
    name = str(path)
    try:
        if Path(path).stat().st_size > _BYTES_LIMIT:
            raise ResultError(f"'{name}' is larger than {_BYTES_LIMIT >> 20} MiB: that is not a result file.")
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ResultError(f"cannot read '{name}': {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ResultError(f"'{name}' is not text, so it is not a result file.", hint=_HINT) from error
    except ValueError as error:  # a NUL in it, or half a surrogate pair
        raise ResultError(f"cannot read '{name}': no file can have this name.") from error
    return parse(text, name)


_HINT: Final = (
    "give files that `pyddpdiag bench --output`, `pyddpdiag train --scaling` or our benchmarks wrote."
)


def parse(text: str, name: str) -> ResultFile:
    """The content of a result file; `name` is used in errors.

    Raises:
        ResultVersionError: it was written by a version whose schema this one does not know.
        ResultError: it is not complete JSON, is another tool's, or lacks something.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ResultError(
            f"'{name}' is not complete JSON{where}: it was cut off or is something else.", hint=_HINT
        ) from error
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(benchmarks, list):
        raise ResultError(f"'{name}' is JSON, but not of pytest-benchmark's form.", hint=_HINT)
    sweep = document.get("pyddpdiag", {})
    if isinstance(sweep, dict) and "schema_version" in sweep:
        _check_version(sweep["schema_version"], name)
    if not benchmarks and not (isinstance(sweep, dict) and sweep.get("schema") == SCHEMA):
        raise ResultError(f"'{name}' holds no benchmarks.", hint=_HINT)
    machine = document.get("machine_info")
    machine = machine if isinstance(machine, dict) else {}
    # A file of a whole pytest run holds other benchmarks, too: they are left aside, but not if there is nothing else.
    ours = [b for b in benchmarks if _is_ours(b)]
    if benchmarks and not ours:
        raise ResultError(
            f"'{name}' is a pytest-benchmark file, but none of its benchmarks is ours (no schema '{SCHEMA}').",
            hint=_HINT,
        )
    entries = tuple(_entry(one, machine, f"'{name}', benchmark {place}") for place, one in enumerate(ours))
    return ResultFile(name, machine, entries, sweep if isinstance(sweep, dict) else {})


def article() -> ResultFile:
    """The figures that Microsoft's article on DistributedDataParallel on Windows published."""
    text = (resources.files("pyddpdiag.bench") / "data" / "article.json").read_text(encoding="utf-8")
    return parse(text, "article.json")


def _is_ours(benchmark: object) -> bool:
    info = benchmark.get("extra_info") if isinstance(benchmark, dict) else None
    return isinstance(info, dict) and info.get("schema") == SCHEMA


def _check_version(version: object, name: str) -> None:
    if version != SCHEMA_VERSION:
        raise ResultVersionError(
            f"'{name}' has schema version {version!r}, and this version of pyddpdiag knows {SCHEMA_VERSION}.",
            hint="compare it with the version that wrote it, or measure again.",
        )


def _entry(benchmark: Mapping[str, Any], machine: Mapping[str, Any], where: str) -> Entry:
    info = dict(benchmark["extra_info"])
    _check_version(info.get("schema_version"), where)
    kind = info.get("kind")
    if kind not in KINDS:
        raise ResultError(f"{where}: unknown kind {kind!r}.", hint=f"known: {', '.join(KINDS)}.")
    for key, wanted in _NEEDED[str(kind)].items():
        if not isinstance(info.get(key), wanted) or isinstance(info.get(key), bool):
            raise ResultError(f"{where}: '{key}' is missing or not what it should be: {info.get(key)!r}.")
    if info["world_size"] < 1:
        raise ResultError(f"{where}: 'world_size' is {info['world_size']}.")
    rounds = info.get("round_s")
    if not isinstance(rounds, list) or not rounds or not all(_is_time(value) for value in rounds):
        raise ResultError(f"{where}: 'round_s' must be a list of times above 0.")
    # A file may hold several machines' entries; each says for itself where it differs from the file.
    info.setdefault("system", machine.get("system", ""))
    if "model" in info and "hook" in info:
        info["hook"] = current_label(info["hook"])
    params = benchmark.get("params")
    return Entry(
        name=str(benchmark.get("name", "")),
        group=str(benchmark.get("group") or ""),
        params=params if isinstance(params, dict) else {},
        extra_info=info,
        round_s=tuple(float(value) for value in rounds),
    )


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(0 < value < np.inf)
