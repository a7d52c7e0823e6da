"""The cures that a run was asked for: one table of them, checked, as options of `pyddpdiag run`, without torch."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from pyddpdiag.errors import UsageError
from pyddpdiag.paths.lanes import LIMIT, OWN
from pyddpdiag.paths.options import Compress, PathRequest, SharedMemory, path_request


@dataclass(frozen=True)
class Cures:
    """What is applied to every DDP module of a run, and to its ranks' processes.

    Attributes:
        shared_memory, compress, error_feedback, lanes: as in `Recorder.attach`.
        connections: between each pair of ranks, over the interface that Gloo takes; 0: one, Gloo's own.
        bucket_cap_mb, gradient_as_bucket_view: as in `DistributedDataParallel`; None, False: as the script has it.
        bucket_cap_mb_list: a size for each bucket in MiB; empty: as the script has it.
        interfaces: for Gloo (GLOO_SOCKET_IFNAME); empty: as the environment has it.
        threads: of torch in each rank; None: as the script has it.
        pin_ranks: whether each rank keeps to its own share of its host's cores.
        num_workers: of every DataLoader over a map-style data set; None: as the script has it.

    Raises:
        UsageError: a value is out of its range, or options exclude each other.
    """

    shared_memory: SharedMemory = "off"
    compress: Compress | None = None
    error_feedback: bool = False
    lanes: tuple[str, ...] = ()
    connections: int = 0
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()
    gradient_as_bucket_view: bool = False
    interfaces: tuple[str, ...] = ()
    threads: int | None = None
    pin_ranks: bool = False
    num_workers: int | None = None

    def __post_init__(self) -> None:
        if self.lanes and self.connections:
            raise UsageError(
                "--lanes and --connections exclude each other.",
                hint="name an interface twice in --lanes for two connections over it.",
            )
        self.request  # noqa: B018 - checks these
        if self.bucket_cap_mb is not None and self.bucket_cap_mb_list:
            raise UsageError(
                "--bucket-cap-mb and --bucket-cap-mb-list exclude each other.",
                hint="the first is one size for all buckets, the second one for each.",
            )
        sizes = [("--bucket-cap-mb", self.bucket_cap_mb)] if self.bucket_cap_mb is not None else []
        for name, value in [*sizes, *(("--bucket-cap-mb-list", each) for each in self.bucket_cap_mb_list)]:
            if not (math.isfinite(value) and 0 < value < 2**20):
                raise UsageError(
                    f"{name} {value:g} cannot be right.", hint="give MiB, such as 0.25, 1 or 25."
                )
        if self.threads is not None and not 1 <= self.threads <= 2**16:
            raise UsageError(f"--threads is {self.threads}, but at least 1 is needed.")
        # Without workers, torch refuses other arguments that the script may give.
        if self.num_workers is not None and not 1 <= self.num_workers <= 2**10:
            raise UsageError(
                f"--num-workers is {self.num_workers}, but at least 1 is needed.",
                hint="leave the option out to keep the script's own number.",
            )

    @property
    def request(self) -> PathRequest:
        """How buckets are summed."""
        lanes = self.lanes or (OWN,) * self.connections
        return path_request(self.compress, self.error_feedback, self.shared_memory, lanes)

    @property
    def path(self) -> dict[str, Any]:
        """What `Recorder.attach` gets; empty: its defaults."""
        return self.request.arguments

    @property
    def ddp_arguments(self) -> dict[str, Any]:
        """What DistributedDataParallel gets in place of the script's values."""
        names = ("bucket_cap_mb", "bucket_cap_mb_list", "gradient_as_bucket_view")
        given = {name: value for name in names if (value := getattr(self, name))}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    @property
    def bucket_sizes(self) -> tuple[float, ...]:
        """In MiB, one for all buckets, or one for each; empty: as the script has it."""
        return self.bucket_cap_mb_list or (() if self.bucket_cap_mb is None else (self.bucket_cap_mb,))

    def environment(self) -> dict[str, str]:
        """The variables of the launch command's environment that it sets."""
        found = {"GLOO_SOCKET_IFNAME": ",".join(self.interfaces)} if self.interfaces else {}
        return found if self.threads is None else {**found, "OMP_NUM_THREADS": str(self.threads)}

    def options(self) -> dict[str, str]:
        """The options of `pyddpdiag run` that ask for it, with their values; "" for a flag."""
        values = {each: getattr(self, each.field) for each in OPTIONS}
        return {
            each.name: _typed(value) for each, value in values.items() if value != getattr(Cures, each.field)
        }

    def changed_bits(self, world_size: int) -> list[str]:
        """Why the training's bits differ from those of the run without it; empty: they do not."""
        why = []
        if self.compress is not None:
            why.append("gradients travel in 16 bits")
        if self.bucket_sizes and world_size > 2:
            why.append("another bucket layout sums in another order at 3 or more ranks")
        divides = self.shared_memory != "off" or self.request.lanes or self.gradient_as_bucket_view
        if divides and not divides_exactly(world_size):
            why.append(f"gradients are divided by {world_size}, where DDP may multiply")
        if self.threads is not None:
            why.append("another number of threads may add in another order")
        if self.num_workers is not None:
            why.append("other worker processes may draw other random numbers")
        return why


def divides_exactly(ranks: int) -> bool:
    """Whether dividing by the number of ranks, as hooks do, gives the bits of DDP's own multiplying by its inverse."""
    return ranks.bit_count() == 1


def from_options(options: Mapping[str, str]) -> Cures:
    """The reverse of `Cures.options`, for the ranks.

    Raises:
        UsageError, ValueError: it was not made by that.
    """
    given = [each for each in OPTIONS if each.name in options]
    values: dict[str, Any] = {
        each.field: each.read is bool or each.read(options[each.name]) for each in given
    }
    return Cures(**values)


def label_of(options: Mapping[str, str], today: Mapping[str, str]) -> str:
    """What a trial calls a setting: what it has that today's has not."""
    new = (each for each in OPTIONS if each.name in options and options[each.name] != today.get(each.name))
    texts = [each.label.format(options[each.name].replace(",", ", ")) for each in new]
    return " + ".join(texts).replace(" + with ", " with ")


def _typed(value: object) -> str:
    """As it is typed; "" for a flag."""
    if isinstance(value, tuple):
        return ",".join(_typed(each) for each in value)
    return "" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def connections_of(text: str) -> int:
    """The number in `N`, or what `auto` stands for.

    Raises:
        UsageError: it is neither.
    """
    # With more, little is gained (docs/performance.md), and each has threads of its own.
    count = 4 if text == "auto" else int(text) if text.isdecimal() else 0
    if not 2 <= count <= LIMIT:
        raise UsageError(
            f"--connections {text} cannot be right.", hint=f"give a number from 2 to {LIMIT}, or auto."
        )
    return count


def sizes_of(text: str) -> tuple[float, ...]:
    """The sizes in `A,B,...`.

    Raises:
        UsageError: one is no number.
    """
    try:
        return tuple(float(each) for each in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(
            f"--bucket-cap-mb-list {text} holds something that is no number.",
            hint="give MiB, such as 1,4,25.",
        ) from None


class Option(NamedTuple):
    """How a cure is typed and called.

    Attributes:
        field: of `Cures`.
        read: its value from what was typed; bool: a flag.
        label: what a trial calls a setting that has it, around its value.
        help: what --help says.
        typed: how --help writes its value, where that is not its type.
        other_name: of the option of `pyddpdiag run`, where it is not the field's.
    """

    field: str
    read: Callable[[str], Any]
    label: str
    help: str
    typed: str | None = None
    other_name: str = ""

    @property
    def name(self) -> str:
        """Of the option of `pyddpdiag run`."""
        return self.other_name or "--" + self.field.replace("_", "-")


OPTIONS: Final = (
    Option(
        "shared_memory",
        str,
        "shared memory",
        "Average in shared memory within a host. auto: where the ranks have it; require: end with an error where they "
        "do not. On one host the same bits (float32, float64).",
    ),
    Option("compress", str, "{}", "Send gradients in 16 bits: changes the training's bits."),
    Option(
        "error_feedback",
        bool,
        "with error feedback",
        "With --compress: add what was lost to the next step's gradients.",
    ),
    Option(
        "lanes",
        _names,
        "lanes {}",
        "Network interfaces of this host that carry parts of each bucket at once; NAME=MBIT gives a rate, else all are "
        "measured. The same bits.",
        "NAME,...",
    ),
    Option(
        "connections",
        connections_of,
        "connections {}",
        "Connections between each pair of ranks, which carry parts of each bucket at once where that pays; auto: 4. "
        "The same bits.",
        "N",
    ),
    Option(
        "bucket_cap_mb",
        float,
        "buckets of {} MiB",
        "DDP's bucket size in MiB. Changes last bits at 3 or more ranks.",
    ),
    Option(
        "bucket_cap_mb_list",
        sizes_of,
        "buckets of {} MiB",
        "A size for each bucket in MiB; the last is for all further ones (torch 2.13).",
        "A,B",
    ),
    Option("gradient_as_bucket_view", bool, "views", "Let gradients be views of the buckets; the same bits."),
    Option(
        "interfaces",
        _names,
        "interface {}",
        "Network interfaces for Gloo (GLOO_SOCKET_IFNAME).",
        "NAME[,NAME]",
        "--interface",
    ),
    Option(
        "threads",
        int,
        "threads {}",
        "Threads of torch in each rank (OMP_NUM_THREADS). May change the training's last bits.",
    ),
    Option("pin_ranks", bool, "pin-ranks", "Keep each rank to its own share of its host's cores."),
    Option(
        "num_workers",
        int,
        "workers {}",
        "Workers of every DataLoader over a map-style data set. Random numbers that they draw may change.",
    ),
)


def layout_of(value: str) -> tuple[float, ...]:
    """The bucket sizes in `4`, or `1:4:25` for a size of each bucket, in MiB.

    Raises:
        UsageError: it holds no size, or one that is out of its range.
    """
    try:
        sizes = sizes_of(value.replace(":", ","))
        with_layout(Cures(), sizes)  # checks them
    except (UsageError, IndexError):
        raise UsageError(
            f"buckets={value}: that is no value of buckets.",
            hint="write buckets=4, or buckets=1:4:25 for a size of each bucket, in MiB.",
        ) from None
    return sizes


def with_layout(today: Cures, sizes: tuple[float, ...]) -> Cures:
    """These cures with a bucket size in MiB, or with several, one for each bucket.

    Raises:
        UsageError: a size is out of its range.
    """
    if len(sizes) > 1:
        return replace(today, bucket_cap_mb=None, bucket_cap_mb_list=sizes)
    return replace(today, bucket_cap_mb=sizes[0], bucket_cap_mb_list=())


# torch ignores the first where the second is given.
_OUTDOES = {"bucket_cap_mb": "bucket_cap_mb_list"}


def overridden(
    make: Callable[..., Any],
    arguments: Sequence[Any],
    options: Mapping[str, Any],
    wanted: Mapping[str, Any],
) -> tuple[Sequence[Any], Mapping[str, Any], list[str]]:
    """What to call `make` with.

    `arguments`, `options`: what the script calls it with. `wanted`: values by name that go in their place.

    Returns:
        Positional and named arguments; and sentences on each value that differs from the script's own, or cannot be
            given.
    """
    signature = inspect.signature(make)
    try:
        bound = signature.bind(*arguments, **options)
    except TypeError:
        return arguments, options, []  # the constructor will say what is wrong
    notes = []
    for name, value in wanted.items():
        why_not = _refused(signature, name)
        if why_not:
            notes.append(f"{option(name)} is not applied: {why_not}.")
            continue
        for changed, new in ((name, value), (_OUTDOES.get(name, name), None)):
            if changed == name and new is None:
                continue
            given = bound.arguments.get(changed)
            known = signature.parameters.get(changed)
            if known is not None and given is not None and given not in (known.default, new):
                notes.append(f"the script gives {changed}={given!r}; {option(name)} is used instead.")
            if known is not None:
                bound.arguments[changed] = new
    return bound.args, bound.kwargs, notes


def option(name: str) -> str:
    """The option of `pyddpdiag run` for an argument."""
    return "--" + name.replace("_", "-")


def _refused(signature: inspect.Signature, name: str) -> str:
    """Why this torch does not take an argument; empty: it does."""
    if name not in signature.parameters:
        return f"DistributedDataParallel of torch {sys.modules['torch'].__version__} has no {name}"
    dynamo = sys.modules.get("torch._dynamo.config")
    if name == "bucket_cap_mb_list" and getattr(dynamo, "optimize_ddp", "") == "python_reducer":
        return "torch's python_reducer does not take it"
    return ""
