"""The networks of `pyddpdiag train`, by name: what each is trained on, and its usual settings. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyddpdiag.errors import UsageError

Kind = Literal["digits", "images", "text"]


@dataclass(frozen=True)
class Arch:
    """One network's needs.

    Attributes:
        kind: the data it takes.
        lr: default peak learning rate.
        bucket_cap_mb: default bucket size in MiB; small models need small buckets, or there is only one.
        normalises: has batch normalisation, which needs two samples on every rank.
    """

    kind: Kind
    lr: float
    bucket_cap_mb: float
    normalises: bool = False


ARCHS = {
    "digits-cnn": Arch("digits", 0.03, 0.25),
    "resnet18": Arch("images", 0.05, 25.0, normalises=True),
    "resnet50": Arch("images", 0.05, 25.0, normalises=True),
    "transformer": Arch("text", 0.003, 1.0),
}


def arch_of(name: str) -> Arch:
    """The network of that name. Raises `UsageError` for an unknown one."""
    arch = ARCHS.get(name)
    if arch is None:
        raise UsageError(
            f"--arch is '{name}', which is not known.", hint=f"choose among: {', '.join(ARCHS)}."
        )
    return arch


def check_data(arch: str, data: str | None) -> None:
    """Raises `UsageError` if the network cannot be trained on what --data names, or on nothing."""
    kind = arch_of(arch).kind
    if kind == "digits" and data is not None:
        raise UsageError(
            f"--arch {arch} is trained on handwritten digits, not on {data}.",
            hint="choose --arch resnet18 for an image folder, or --arch transformer for a text file.",
        )
    if kind == "images" and data is None:
        raise UsageError(
            f"--arch {arch} needs images.",
            hint="--data DIR, with images in DIR/train/<class>/ (docs/training.md).",
        )
    if kind == "text" and data is None:
        raise UsageError(f"--arch {arch} needs a text.", hint="--data FILE, any text file in UTF-8.")
