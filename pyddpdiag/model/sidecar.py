"""The sidecar of one rank: one schema, for the recorder that writes it and the reader that trusts nothing in it.

docs/examples/rank_0.json is an example, which a test holds against this. A field that is added is optional: sidecars of
every release are read.
"""

from __future__ import annotations

# Longer than 400 lines: one schema, for the writer and the reader.
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from pyddpdiag.model.ending import End, Stay, end_from_json, end_to_json, stay_from_json, stay_to_json
from pyddpdiag.model.gpu import GpuUse, gpu_from_json, gpu_to_json
from pyddpdiag.model.lanes import GroupLane, lane_to_json, lanes_from_json
from pyddpdiag.model.launch import Launch, launch_from_json, launch_to_json
from pyddpdiag.model.training import Training, training_from_json, training_to_json
from pyddpdiag.model.tried import Tried, tried_from_json, tried_to_json
from pyddpdiag.model.untrusted import needed_list, needed_whole, number, text, time_ns, whole
from pyddpdiag.output import clean

FORMAT: Final = "ddptrace"
SCHEMA_VERSION: Final = 1

ENTRIES_LIMIT: Final = 2**16
"""Entries of each list: groups, modules, layouts, and the parameters and ranks in them."""

NAME_LIMIT: Final = 512

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """A process group: its name, backend and global ranks.

    `shared_memory`: "used" if its ranks average in shared memory; else why they do not; empty if nobody asked.
    `lanes`: the interfaces that carry parts of its buckets at once, if there are several.
    """

    name: str
    backend: str
    ranks: tuple[int, ...]
    shared_memory: str = ""
    lanes: tuple[GroupLane, ...] = ()


@dataclass(frozen=True)
class Module:
    """A DDP module: its class name, its process group and its parameters' names, in DDP's order.

    `shapes` and `dtypes` are of the parameters. Columns, and no object for each: a run may have millions.
    `reduced_by` names what reduces in place of the hook, as "python_reducer"; empty: nothing does. `ddp` holds DDP's
    settings and what its model has (docs/trace-format.md). `used`: of the search for unused parameters, in how many
    `passes` it ran, and so on. `never_used`: parameters that got no gradient in any of them.
    """

    name: str
    group: int
    bucket_cap_mb: float | None
    parameters: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    reduced_by: str = ""
    ddp: Mapping[str, int] = field(default_factory=dict, hash=False)
    used: Mapping[str, int] = field(default_factory=dict, hash=False)
    never_used: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    """Which parameters lie in a bucket, as indices into the module's list, in the buffer's order.

    `index` is DDP's at that time, `bytes` the size of the flat buffer.
    """

    module: int
    parameters: tuple[int, ...]
    dtype: str
    index: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Interface:
    """A network interface of the rank's machine.

    `addresses` are "IP/PREFIX"; `speed_mbit` is the rate that the system reports, None if it reports none.
    """

    addresses: tuple[str, ...]
    speed_mbit: int | None = None
    up: bool = True


@dataclass(frozen=True)
class Sidecar:
    """What a sidecar tells; empty, zero or None is what the file does not tell.

    Attributes:
        pyddpdiag: version of the tool that recorded.
        recorded_by: what made the recorder for the script: "run" (`pyddpdiag run`), "train", or the framework's name
            (`FRAMEWORKS`); empty: the script itself.
        framework: that made the DDP module, by the name of `FRAMEWORKS`; empty: the script did, or nothing is known.
        launch: the command that `pyddpdiag run` ran; None: it did not record this, or an older version did.
        pid: of the recording process.
        process_started_s: when that process started, seconds since 1970; with `pid` and `process_namespace` it tells
            one process from another.
        process_namespace: differs between containers that cannot see each other's processes; "" where there are none.
        torch_threads: threads of torch's pool when the recorder was opened.
        cores: the processor cores that the process may run on, by the system's numbers.
        machine_cores: how many its machine has; 0: not known.
        memory: in bytes: `used`, the most that the process was seen to use (resident), and `machine`, what its
            machine has; empty: not known.
        quota: a container's limit of processor time: `milli_cores`, and since the recorder was opened `periods`,
            `throttled_periods` in which it was held back, and `throttled_us`; empty: there is none.
        traffic: what each interface has carried since the recorder was opened, of all programs: `sent` and `received`
            bytes by name; empty: the system does not tell.
        build_config: what the native module was built with.
        environment: variables that change how DDP or Gloo behave, as far as they were set.
        clock: name and identity of the records' clock.
        interfaces: network interfaces that have an address, by name, when the recorder was opened.
        groups, modules, layouts: by id, by index, by id.
        closed: the recorder was closed normally.
        end: what ended the process before the end of its script; None: nothing is known of that.
        gpu: medians of the samples of its GPU until the file was written; None: it has none, or none could be taken.
        seen: where it was when it had recorded nothing for some time; None: it was not looked at.
        training: its optimizers, loaders and what they step with.
        start_up: when the process had done what on the records' clock, in ns; empty: not known, or it had another
            recorder before.
        trial: of cures, as far as it was when the file was written; None: there was none.
        debugging: torch's settings that slow it down: 2 where it was on when the file was written, 1 earlier only.
        ended_ns: when the recorder was closed or, if it never was, the process ended, on the records' clock; 0: not
            known.
    """

    run_id: str = ""
    rank: int = 0
    world_size: int = 0
    host: str = ""
    pid: int = 0
    process_started_s: float | None = None
    process_namespace: str | None = None
    platform: str = ""
    python: str = ""
    torch: str = ""
    pyddpdiag: str = ""
    recorded_by: str = ""
    framework: str = ""
    launch: Launch | None = None
    torch_threads: int = 0
    cores: tuple[int, ...] = ()
    machine_cores: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    quota: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    build_config: Mapping[str, str | int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    clock: Mapping[str, str | int] = field(default_factory=dict)
    interfaces: Mapping[str, Interface] = field(default_factory=dict)
    groups: Mapping[int, Group] = field(default_factory=dict)
    modules: Mapping[int, Module] = field(default_factory=dict)
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    closed: bool = False
    end: End | None = None
    seen: Stay | None = None
    gpu: GpuUse | None = None
    training: Training = field(default_factory=Training)
    start_up: Mapping[str, str | int] = field(default_factory=dict)
    trial: Tried | None = None
    debugging: Mapping[str, int] = field(default_factory=dict)
    ended_ns: int = 0

    def start_up_lines(self, name: str) -> dict[str, int]:
        """The lines of a stretch in `start_up`, and for how long the rank was there, in ns: the most frequent first."""
        pairs = ((self.start_up.get(key), self.start_up.get(f"{key}_ns")) for key in line_names(name))
        return {line: spent for line, spent in pairs if isinstance(line, str) and isinstance(spent, int)}


def line_names(name: str) -> tuple[str, ...]:
    """Under which names `start_up` has the lines of a stretch, the most frequent first."""
    return (name, f"{name}_2", f"{name}_3")


_HEAD: Final = tuple(
    each.name for each in fields(Sidecar) if each.type in ("str", "int", "float | None", "str | None")
)
"""What stands in the file as it is."""


def to_json(sidecar: Sidecar) -> dict[str, Any]:
    """The content of the file, to be dumped as JSON."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **{name: getattr(sidecar, name) for name in _HEAD if getattr(sidecar, name) is not None},
        **({"launch": launch_to_json(sidecar.launch)} if sidecar.launch is not None else {}),
        "cores": list(sidecar.cores),
        **({"memory": dict(sidecar.memory)} if sidecar.memory else {}),
        **({"quota": dict(sidecar.quota)} if sidecar.quota else {}),
        **(
            {"traffic": {name: dict(bytes_) for name, bytes_ in sidecar.traffic.items()}}
            if sidecar.traffic
            else {}
        ),
        "build_config": dict(sidecar.build_config),
        "environment": dict(sidecar.environment),
        "clock": dict(sidecar.clock),
        "interfaces": [
            {"name": name, "addresses": list(each.addresses), "speed_mbit": each.speed_mbit, "up": each.up}
            for name, each in sidecar.interfaces.items()
        ],
        "groups": [
            {
                "id": hex_id(key),
                "name": group.name,
                "backend": group.backend,
                "ranks": list(group.ranks),
                **({"shared_memory": group.shared_memory} if group.shared_memory else {}),
                **({"lanes": [lane_to_json(lane) for lane in group.lanes]} if group.lanes else {}),
            }
            for key, group in sidecar.groups.items()
        ],
        "modules": [
            {
                "index": index,
                "name": module.name,
                "group": hex_id(module.group),
                "bucket_cap_mb": module.bucket_cap_mb,
                "parameters": [
                    {"name": name, "shape": list(shape), "dtype": dtype}
                    for name, shape, dtype in zip(
                        module.parameters, module.shapes, module.dtypes, strict=True
                    )
                ],
                **({"reduced_by": module.reduced_by} if module.reduced_by else {}),
                **({"ddp": dict(module.ddp)} if module.ddp else {}),
                **({"used": dict(module.used)} if module.used else {}),
                **({"never_used": list(module.never_used)} if module.never_used else {}),
            }
            for index, module in sidecar.modules.items()
        ],
        "buckets": [
            {
                "id": hex_id(key),
                "module": layout.module,
                "index": layout.index,
                "parameters": list(layout.parameters),
                "bytes": layout.bytes,
                "dtype": layout.dtype,
            }
            for key, layout in sidecar.layouts.items()
        ],
        "closed": sidecar.closed,
        **({"end": end_to_json(sidecar.end)} if sidecar.end is not None else {}),
        **({"seen": stay_to_json(sidecar.seen)} if sidecar.seen is not None else {}),
        **({"gpu": gpu_to_json(sidecar.gpu)} if sidecar.gpu is not None else {}),
        **({"training": training_to_json(sidecar.training)} if sidecar.training != Training() else {}),
        **({"start_up": dict(sidecar.start_up)} if sidecar.start_up else {}),
        **({"trial": tried_to_json(sidecar.trial)} if sidecar.trial is not None else {}),
        **({"debugging": dict(sidecar.debugging)} if sidecar.debugging else {}),
    }


def from_json(
    raw: Mapping[str, Any], keep: Callable[[Any], Any] = lambda value: value
) -> tuple[Sidecar, tuple[str, ...]]:
    """What can be understood of a file's content. Never raises for what stands in it.

    Args:
        raw: the parsed JSON object.
        keep: called with every group, module and layout; may return an equal one that is there already.

    Returns:
        the sidecar, and what is wrong with it.
    """
    warnings = []
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        warnings.append(
            f"schema_version is {clean(repr(version)[:40])}, this version reads {SCHEMA_VERSION}."
        )
    groups, skipped_groups = _collect(raw.get("groups"), _group, keep)
    modules, skipped_modules = _collect(raw.get("modules"), _module, keep)
    layouts, skipped_layouts = _collect(raw.get("buckets"), _layout, keep)
    interfaces, skipped_interfaces = _collect(raw.get("interfaces"), _interface, keep)
    skipped = skipped_groups + skipped_modules + skipped_layouts + skipped_interfaces
    if skipped:
        warnings.append(f"{skipped} entries could not be understood and were left out.")
    sidecar = Sidecar(
        run_id=_text(raw, "run_id"),
        rank=whole(raw.get("rank")),
        world_size=whole(raw.get("world_size")),
        host=_text(raw, "host"),
        pid=whole(raw.get("pid")),
        platform=_text(raw, "platform"),
        python=_text(raw, "python"),
        torch=_text(raw, "torch"),
        pyddpdiag=_text(raw, "pyddpdiag"),
        recorded_by=_text(raw, "recorded_by"),
        framework=_text(raw, "framework"),
        launch=launch_from_json(raw["launch"]) if "launch" in raw else None,
        torch_threads=whole(raw.get("torch_threads")),
        cores=_cores(raw.get("cores")),
        machine_cores=whole(raw.get("machine_cores")),
        memory=_numbers(raw.get("memory")),
        quota=_numbers(raw.get("quota")),
        traffic=_traffic(raw.get("traffic")),
        build_config=_table(raw.get("build_config")),
        environment={name: str(value) for name, value in _table(raw.get("environment")).items()},
        clock=_table(raw.get("clock")),
        interfaces=interfaces,
        process_started_s=number(raw.get("process_started_s")),
        process_namespace=_text(raw, "process_namespace") if "process_namespace" in raw else None,
        groups=groups,
        modules=modules,
        layouts=layouts,
        closed=raw.get("closed") is True,
        end=end_from_json(raw.get("end")),
        seen=stay_from_json(raw.get("seen")),
        gpu=gpu_from_json(raw.get("gpu"), whole(raw.get("rank"))),
        training=training_from_json(raw.get("training")),
        start_up=_table(raw.get("start_up")),
        trial=tried_from_json(raw.get("trial")),
        debugging=_numbers(raw.get("debugging")),
        ended_ns=time_ns(raw.get("ended_ns")),
    )
    return sidecar, tuple(warnings)


def hex_id(number: int) -> str:
    """A 64-bit id as it stands in the file."""
    return f"{number:016x}"


def _collect(
    entries: Any, convert: Callable[[dict[str, Any]], tuple[K, T]], keep: Callable[[T], T]
) -> tuple[dict[K, T], int]:
    """Convert a list of entries into a dictionary by id, counting those that don't fit."""
    if entries is None:
        return {}, 0
    if not isinstance(entries, list):
        return {}, 1
    converted: dict[K, T] = {}
    skipped = max(0, len(entries) - ENTRIES_LIMIT)
    for entry in entries[:ENTRIES_LIMIT]:
        try:
            key, value = convert(entry)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            skipped += 1
        else:
            converted[key] = keep(value)
    return converted, skipped


def _group(entry: dict[str, Any]) -> tuple[int, Group]:
    return _id(entry["id"]), Group(
        _text(entry, "name"),
        _text(entry, "backend"),
        _integers(entry["ranks"]),
        _text(entry, "shared_memory"),
        lanes_from_json(entry.get("lanes")),
    )


def _module(entry: dict[str, Any]) -> tuple[int, Module]:
    parameters = _few(entry.get("parameters", []))
    group = entry.get("group")
    return _integer(entry["index"]), Module(
        _text(entry, "name"),
        _id(group) if group else 0,
        number(entry.get("bucket_cap_mb")),
        tuple(_text(each, "name") for each in parameters),
        tuple(_shape(each.get("shape")) for each in parameters),
        tuple(_text(each, "dtype") for each in parameters),
        _text(entry, "reduced_by"),
        _numbers(entry.get("ddp")),
        _numbers(entry.get("used")),
        _integers(entry.get("never_used", [])),
    )


def _layout(entry: dict[str, Any]) -> tuple[int, Layout]:
    return _id(entry["id"]), Layout(
        _integer(entry.get("module", 0)),
        _integers(entry.get("parameters", [])),
        _text(entry, "dtype"),
        whole(entry.get("index")),
        whole(entry.get("bytes")),
    )


def _interface(entry: dict[str, Any]) -> tuple[str, Interface]:
    addresses = _few(entry.get("addresses", []))
    return _text(entry, "name"), Interface(
        tuple(clean(each, NAME_LIMIT) for each in addresses if isinstance(each, str)),
        whole(entry.get("speed_mbit")) or None,
        entry.get("up") is not False,
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    return text(entry, key, NAME_LIMIT)


def _table(entries: Any) -> dict[str, str | int]:
    """Short texts and whole numbers by name; others are left out."""
    if not isinstance(entries, dict):
        return {}
    known: dict[str, str | int] = {}
    for name, value in list(entries.items())[:64]:
        if isinstance(value, str):
            known[clean(name, NAME_LIMIT)] = clean(value, NAME_LIMIT)
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
            known[clean(name, NAME_LIMIT)] = value
    return known


def _numbers(entries: Any) -> dict[str, int]:
    """Whole numbers by name, none of them negative; others are left out."""
    return {name: value for name, value in _table(entries).items() if isinstance(value, int) and value >= 0}


def _traffic(entries: Any) -> dict[str, dict[str, int]]:
    """Bytes by interface; of an interface that is not understood nothing is known."""
    if not isinstance(entries, dict):
        return {}
    return {str(name): counts for name, each in list(entries.items())[:256] if (counts := _numbers(each))}


def _id(value: Any) -> int:
    """A 64-bit number written as hex digits."""
    if not isinstance(value, str) or not 1 <= len(value) <= 16 or not set(value) <= set(string.hexdigits):
        raise ValueError("not an id")
    return int(value, 16)


def _integer(value: Any) -> int:
    return needed_whole(value, 2**32)


def _integers(values: Any) -> tuple[int, ...]:
    return tuple(_integer(value) for value in _few(values))


def _cores(values: Any) -> tuple[int, ...]:
    try:
        return _integers(values) if values is not None else ()
    except (TypeError, ValueError):
        return ()


def _shape(values: Any) -> tuple[int, ...]:
    return tuple(whole(value) for value in values[:16]) if isinstance(values, list) else ()


def _few(values: Any) -> list[Any]:
    return needed_list(values, ENTRIES_LIMIT)
