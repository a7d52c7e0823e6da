"""Result files: pytest-benchmark's JSON with what DDP needs on top, under `extra_info`.

Reading and writing them takes neither torch nor the native module; whatever is wrong with one is said, with the place
in it. `docs/benchmarks.md` describes the keys.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np

import pyddpdiag
from pyddpdiag.bench.intervals import estimate
from pyddpdiag.bench.machine import machine_info
from pyddpdiag.errors import ResultError, ResultVersionError, UsageError
from pyddpdiag.paths.averaging import current_label
from pyddpdiag.system.result_files import write_whole

SCHEMA: Final = "pyddpdiag-bench"
SCHEMA_VERSION: Final = 1
KINDS: Final = ("step", "allreduce", "scaling")
SPLIT: Final = ("compute_s", "data_wait_s", "exposed_s", "queue_s", "wire_s")


@dataclass(frozen=True)
class Entry:
    """One measured case.

    Attributes:
        name: unique within its file.
        group: cases that stand beside each other.
        params: what was varied, by name.
        extra_info: everything else, with `kind` (see KINDS); written as it is.
        round_s: seconds of each round, at least one.
    """

    name: str
    group: str
    params: Mapping[str, Any]
    extra_info: Mapping[str, Any]
    round_s: tuple[float, ...]

    @property
    def kind(self) -> str:
        """What was measured: `step`, `allreduce` or `scaling`."""
        return str(self.extra_info["kind"])


@dataclass(frozen=True)
class ResultFile:
    """A result file as it was read: where from, its machine, its entries, and what it says of the sweep."""

    path: str
    machine: Mapping[str, Any]
    entries: tuple[Entry, ...]
    sweep: Mapping[str, Any] = field(default_factory=dict)


def launches_of(entry: Entry) -> list[int]:
    """How many of the rounds each set of processes measured, in order; one set where the file does not tell."""
    launches = entry.extra_info.get("sittings")
    count = len(entry.round_s)
    if (
        isinstance(launches, list)
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in launches)
        and sum(launches) == count
    ):
        return list(launches)
    return [count]


def by_launch(entry: Entry) -> list[tuple[float, ...]]:
    """The rounds of each launch."""
    found, begin = [], 0
    for count in launches_of(entry):
        found.append(entry.round_s[begin : begin + count])
        begin += count
    return found


def scaling_entry(
    *,
    world_size: int,
    model: str,
    dataset: str,
    batch_size: int,
    duration_s: float,
    epochs: Sequence[Mapping[str, float]] = (),
    split: Mapping[str, float | None] | None = None,
    dtype: str = "float32",
    more: Mapping[str, Any] | None = None,
) -> Entry:
    """The entry of one whole training run of a scaling series; see `save`.

    Args:
        world_size: number of ranks; 1 is without DDP.
        model, dataset, batch_size, dtype: what must be equal in runs that are compared; the batch is that of
            all ranks together.
        duration_s: of the whole training, in seconds.
        epochs: each with `epoch`, `loss`, `accuracy`, `elapsed_s` (since the start of the training).
        split: seconds of the whole run by the names in SPLIT, mean over the ranks; None where not known.
        more: further keys for `extra_info`.

    Raises:
        UsageError: a number that cannot be right, or an unknown name in `split`.
    """
    if world_size < 1 or not (np.isfinite(duration_s) and duration_s > 0):
        raise UsageError(f"a run of {world_size} ranks in {duration_s} s cannot be right.")
    unknown = set(split or {}) - set(SPLIT)
    if unknown:
        raise UsageError(f"unknown part of the time: {', '.join(sorted(unknown))}.", hint=", ".join(SPLIT))
    info = {
        **(more or {}),
        "kind": "scaling",
        "world_size": world_size,
        "model": model,
        "dataset": dataset,
        "batch_size": batch_size,
        "dtype": dtype,
        "duration_s": duration_s,
        "epochs": [dict(epoch) for epoch in epochs],
        "split": {name: (split or {}).get(name) for name in SPLIT},
    }
    return Entry(
        name=f"scaling[{model}-{world_size}]",
        group=f"scaling {model}",
        params={"world_size": world_size},
        extra_info=info,
        round_s=(duration_s,),
    )


def save(
    path: str | os.PathLike[str],
    entries: Sequence[Entry],
    *,
    force: bool = False,
    machine: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a result file, whole or not at all, and returns its path.

    Args:
        path: of the file; its folder is made if it does not exist.
        machine: facts of the machine; default: this one's.
        sweep: how the sweep went, kept under `pyddpdiag` at the top.

    Raises:
        ResultExistsError: the file exists and `force` is not given.
        ResultWriteError: it cannot be written; a file that was there before is untouched.
    """
    target = Path(path)
    text = json.dumps(to_document(entries, machine, sweep), indent=1, allow_nan=False)
    write_whole(target, text + "\n", force=force, option="--output")
    return target


def to_document(
    entries: Sequence[Entry],
    machine: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The file's content as plain dictionaries, lists, numbers and strings."""
    return {
        "machine_info": dict(machine if machine is not None else machine_info()),
        "commit_info": {},
        "benchmarks": [_benchmark(entry) for entry in entries],
        "datetime": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "version": "5.0.0",
        "pyddpdiag": {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "version": pyddpdiag.__version__,
            **(sweep or {}),
        },
    }


def stamped(info: Mapping[str, Any], round_s: Sequence[float]) -> dict[str, Any]:
    """`extra_info` of an entry as it is written: with schema, rounds, and their median and interval."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **info,
        "median_s": estimate(round_s).as_dict(),
        "round_s": list(round_s),
    }


def _benchmark(entry: Entry) -> dict[str, Any]:
    return {
        "group": entry.group,
        "name": entry.name,
        "fullname": entry.name,
        "params": dict(entry.params),
        "param": None,
        "extra_info": stamped(entry.extra_info, entry.round_s),
        "options": {
            "disable_gc": True,
            "timer": "perf_counter",
            "min_rounds": 1,
            "max_time": 0.0,
            "min_time": 0.0,
            "warmup": True,
        },
        "stats": _stats(entry.round_s),
    }


def _stats(round_s: Sequence[float]) -> dict[str, Any]:
    """The statistics that pytest-benchmark's own tools expect, of seconds per round."""
    data = np.sort(np.asarray(round_s, np.float64))
    q1, median, q3 = (float(q) for q in np.percentile(data, [25, 50, 75]))
    iqr, mean = q3 - q1, float(data.mean())
    stddev = float(data.std(ddof=1)) if len(data) > 1 else 0.0
    inside = data[(data >= q1 - 1.5 * iqr) & (data <= q3 + 1.5 * iqr)]
    far = int(np.count_nonzero(abs(data - mean) > stddev))
    outliers = len(data) - len(inside)
    return {
        "min": float(data[0]),
        "max": float(data[-1]),
        "mean": mean,
        "stddev": stddev,
        "rounds": len(data),
        "median": median,
        "iqr": iqr,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outliers,
        "stddev_outliers": far,
        "outliers": f"{far};{outliers}",
        "ld15iqr": float(inside[0]) if len(inside) else float(data[0]),
        "hd15iqr": float(inside[-1]) if len(inside) else float(data[-1]),
        "ops": 1 / mean if mean else 0.0,
        "total": float(data.sum()),
        "data": [float(value) for value in round_s],
        "iterations": 1,
    }


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
