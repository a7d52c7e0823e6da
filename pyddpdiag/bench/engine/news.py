"""What rank 0 reports during a sweep; plain data, for the launcher's pipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gathered:
    """Every rank's host and the interfaces it may use, by rank."""

    hosts: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    default_interface: str


@dataclass(frozen=True)
class Built:
    """A case is ready. `buckets`, `parameters` and `batch_size` describe a step; 0 for other cases."""

    case: int
    parameters: int
    batch_size: int
    dataset: str


@dataclass(frozen=True)
class Measured:
    """One round: seconds of one step (or all-reduce) on the slowest rank, the mean over `steps` of them."""

    case: int
    seconds: float
    steps: int


@dataclass(frozen=True)
class Traced:
    """The case's trace is complete; `source` says whose it is."""

    case: int
    source: str


@dataclass(frozen=True)
class LeftOut:
    """A case that was not measured, and why."""

    case: int
    reason: str


@dataclass(frozen=True)
class Elsewhere:
    """The share of all processors that other programs used during the launch, 0 to 1."""

    share: float


News = Gathered | Built | Measured | Traced | LeftOut | Elsewhere
