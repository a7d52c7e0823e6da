"""The sidecar of one rank: one schema, for the recorder that writes it and the reader that trusts nothing in it.

docs/examples/rank_0.json is an example, which a test holds against this. A field that is added is optional: sidecars of
every release are read.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pyddpdiag.model import fields
from pyddpdiag.model.ending import End, Stay
from pyddpdiag.model.fields import ELSEWHERE, IF_ANY, Form, Limit
from pyddpdiag.model.gpu import GpuUse
from pyddpdiag.model.launch import Launch
from pyddpdiag.model.training import Training
from pyddpdiag.model.tried import Tried, tried_from_json, tried_to_json
from pyddpdiag.model.untrusted import LATEST_NS, needed_list, needed_whole, text, whole
from pyddpdiag.output import clean


@dataclass(frozen=True)
class GroupLane:
    """One lane.

    Attributes:
        interface: as the rank that wrote it calls it.
        mbit: its rate in Mbit/s as it sums, which all ranks have agreed on.
        share: of the largest bucket, as it went when this was written, from 0 to 1; before the first, of one of 25 MiB.
    """

    interface: str
    mbit: float | None
    share: float | None


FORMAT: Final = "ddptrace"
SCHEMA_VERSION: Final = 1

ENTRIES_LIMIT: Final = 2**16
"""Entries of each list: groups, modules, layouts, and the parameters and ranks in them."""

NAME_LIMIT: Final = 512

K = TypeVar("K")
T = TypeVar("T")


def hex_id(number: int) -> str:
    """A 64-bit id as it stands in the file."""
    return f"{number:016x}"


def _id(value: Any) -> int:
    if not isinstance(value, str) or not 1 <= len(value) <= 16 or not set(value) <= set(string.hexdigits):
        raise ValueError("not an id")
    return int(value, 16)


Id = Annotated[int, Form(hex_id, lambda value: _id(value) if value else 0)]
Name = Annotated[str, Limit(NAME_LIMIT)]
Numbers = Annotated[tuple[Annotated[int, Limit(2**32)], ...], Limit(ENTRIES_LIMIT)]
Counts = Mapping[Name, int]
Words = Mapping[Name, str | int]


@dataclass(frozen=True)
class Group:
    """A process group: its name, backend and global ranks.

    `shared_memory`: "used" if its ranks average in shared memory; else why they do not; empty if nobody asked.
    `lanes`: the interfaces that carry parts of its buckets at once, if there are several.
    """

    name: Name
    backend: Name
    ranks: Numbers
    shared_memory: Annotated[str, IF_ANY, Limit(NAME_LIMIT)] = ""
    lanes: Annotated[tuple[GroupLane, ...], IF_ANY] = ()


@dataclass(frozen=True)
class Module:
    """A DDP module: its class name, its process group and its parameters' names, in DDP's order.

    `shapes` and `dtypes` are of the parameters. Columns, and no object for each: a run may have millions.
    `reduced_by` names what reduces in place of the hook, as "python_reducer"; empty: nothing does. `ddp` holds DDP's
    settings and what its model has (docs/trace-format.md). `used`: of the search for unused parameters, in how many
    `passes` it ran, and so on. `never_used`: parameters that got no gradient in any of them.
    """

    forgiving: ClassVar[bool] = True

    name: Name = ""
    group: Id = 0
    bucket_cap_mb: float | None = None
    parameters: Annotated[tuple[str, ...], ELSEWHERE] = ()
    shapes: Annotated[tuple[tuple[int, ...], ...], ELSEWHERE] = ()
    dtypes: Annotated[tuple[str, ...], ELSEWHERE] = ()
    reduced_by: Annotated[str, IF_ANY, Limit(NAME_LIMIT)] = ""
    ddp: Annotated[Counts, IF_ANY] = field(default_factory=dict, hash=False)
    used: Annotated[Counts, IF_ANY] = field(default_factory=dict, hash=False)
    never_used: Annotated[Numbers, IF_ANY] = ()


@dataclass(frozen=True)
class Layout:
    """Which parameters lie in a bucket, as indices into the module's list, in the buffer's order.

    `index` is DDP's at that time, `bytes` the size of the flat buffer.
    """

    module: int = 0
    parameters: Numbers = ()
    dtype: Name = ""
    index: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Interface:
    """A network interface of the rank's machine.

    `addresses` are "IP/PREFIX"; `speed_mbit` is the rate that the system reports, None if it reports none.
    """

    addresses: Annotated[tuple[Name, ...], Limit(ENTRIES_LIMIT)]
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
        debugging: torch's settings that slow it down: 2 where it was on when the file was written, 1 earlier only;
            of the profiler, at how many writes.
        ended_ns: when the recorder was closed or, if it never was, the process ended, on the records' clock; 0: not
            known.
    """

    forgiving: ClassVar[bool] = True

    run_id: Name = ""
    rank: int = 0
    world_size: int = 0
    host: Name = ""
    pid: int = 0
    process_started_s: Annotated[float | None, IF_ANY] = None
    process_namespace: Annotated[str | None, IF_ANY, Limit(NAME_LIMIT)] = None
    platform: Name = ""
    python: Name = ""
    torch: Name = ""
    pyddpdiag: Name = ""
    recorded_by: Name = ""
    framework: Name = ""
    launch: Annotated[Launch | None, IF_ANY] = None
    torch_threads: int = 0
    cores: Numbers = ()
    machine_cores: int = 0
    memory: Annotated[Counts, IF_ANY] = field(default_factory=dict)
    quota: Annotated[Counts, IF_ANY] = field(default_factory=dict)
    traffic: Annotated[Mapping[Name, Counts], IF_ANY, Limit(256)] = field(default_factory=dict)
    build_config: Words = field(default_factory=dict)
    environment: Mapping[Name, Name] = field(default_factory=dict)
    clock: Words = field(default_factory=dict)
    interfaces: Annotated[Mapping[str, Interface], ELSEWHERE] = field(default_factory=dict)
    groups: Annotated[Mapping[int, Group], ELSEWHERE] = field(default_factory=dict)
    modules: Annotated[Mapping[int, Module], ELSEWHERE] = field(default_factory=dict)
    layouts: Annotated[Mapping[int, Layout], ELSEWHERE] = field(default_factory=dict)
    closed: bool = False
    end: Annotated[End | None, IF_ANY] = None
    seen: Annotated[Stay | None, IF_ANY] = None
    gpu: Annotated[GpuUse | None, IF_ANY] = None
    training: Annotated[Training, IF_ANY] = field(default_factory=Training)
    start_up: Annotated[Words, IF_ANY] = field(default_factory=dict)
    trial: Annotated[Tried | None, IF_ANY, Form(tried_to_json, tried_from_json)] = None
    debugging: Annotated[Counts, IF_ANY] = field(default_factory=dict)
    ended_ns: Annotated[int, Limit(LATEST_NS + 1)] = 0

    def start_up_lines(self, name: str) -> dict[str, int]:
        """The lines of a stretch in `start_up`, and for how long the rank was there, in ns: the most frequent first."""
        pairs = ((self.start_up.get(key), self.start_up.get(f"{key}_ns")) for key in line_names(name))
        return {line: spent for line, spent in pairs if isinstance(line, str) and isinstance(spent, int)}


def line_names(name: str) -> tuple[str, ...]:
    """Under which names `start_up` has the lines of a stretch, the most frequent first."""
    return (name, f"{name}_2", f"{name}_3")


def to_json(sidecar: Sidecar) -> dict[str, Any]:
    """The content of the file, to be dumped as JSON."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **fields.to_json(sidecar),
        "interfaces": [{"name": name, **fields.to_json(each)} for name, each in sidecar.interfaces.items()],
        "groups": [{"id": hex_id(key), **fields.to_json(group)} for key, group in sidecar.groups.items()],
        "modules": [
            {
                "index": index,
                **fields.to_json(module),
                "parameters": [
                    {"name": name, "shape": list(shape), "dtype": dtype}
                    for name, shape, dtype in zip(
                        module.parameters, module.shapes, module.dtypes, strict=True
                    )
                ],
            }
            for index, module in sidecar.modules.items()
        ],
        "buckets": [{"id": hex_id(key), **fields.to_json(layout)} for key, layout in sidecar.layouts.items()],
    }


def from_json(
    raw: Mapping[str, Any], keep: Callable[[Any], Any] = lambda value: value
) -> tuple[Sidecar, tuple[str, ...]]:
    """What can be understood of a file's content. Never raises for what stands in it.

    `keep`: called with every group, module and layout; may return an equal one that is there already.

    Returns:
        the sidecar, and what is wrong with it.
    """
    warnings = []
    version = raw.get("schema_version")
    if version != SCHEMA_VERSION:
        warnings.append(
            f"schema_version is {clean(repr(version)[:40])}, this version reads {SCHEMA_VERSION}."
        )
    parts = {
        "interfaces": _collect(raw.get("interfaces"), _interface, keep),
        "groups": _collect(raw.get("groups"), partial(_with_id, Group), keep),
        "modules": _collect(raw.get("modules"), _module, keep),
        "layouts": _collect(raw.get("buckets"), partial(_with_id, Layout), keep),
        "gpu": (fields.maybe_from_json(GpuUse, raw.get("gpu"), rank=whole(raw.get("rank"))), 0),
    }
    skipped = sum(left_out for _, left_out in parts.values())
    if skipped:
        warnings.append(f"{skipped} entries could not be understood and were left out.")
    given = {name: found for name, (found, _) in parts.items()}
    return fields.from_json(Sidecar, raw, **given), tuple(warnings)


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
        except fields.MISFITS:
            skipped += 1
        else:
            converted[key] = keep(value)
    return converted, skipped


def _with_id(kind: type[T], entry: Any) -> tuple[int, T]:
    return _id(entry["id"]), fields.from_json(kind, entry)


def _interface(entry: Any) -> tuple[str, Interface]:
    return text(entry, "name", NAME_LIMIT), fields.from_json(Interface, entry)


def _module(entry: dict[str, Any]) -> tuple[int, Module]:
    parameters = needed_list(entry.get("parameters", []), ENTRIES_LIMIT)
    columns = {
        "parameters": tuple(text(each, "name", NAME_LIMIT) for each in parameters),
        "shapes": tuple(_shape(each.get("shape")) for each in parameters),
        "dtypes": tuple(text(each, "dtype", NAME_LIMIT) for each in parameters),
    }
    return needed_whole(entry["index"], 2**32), fields.from_json(Module, entry, **columns)


def _shape(values: Any) -> tuple[int, ...]:
    return tuple(whole(value) for value in values[:16]) if isinstance(values, list) else ()
