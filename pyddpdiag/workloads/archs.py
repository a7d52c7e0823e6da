"""The networks by name, for `pyddpdiag train` and `pyddpdiag bench` alike. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyddpdiag.errors import UsageError

Kind = Literal["digits", "images", "text"]


@dataclass(frozen=True)
class Training:
    """How a network is trained.

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


#: Every network; None if there is no data to train it on, so that only its time can be measured.
ARCHS: Final[dict[str, Training | None]] = {
    "digits-cnn": Training("digits", 0.03, 0.25),
    "resnet18": Training("images", 0.05, 25.0, normalises=True),
    "resnet50": Training("images", 0.05, 25.0, normalises=True),
    "transformer": Training("text", 0.003, 1.0),
    "mlp": None,
    "mlp_small": None,
    "bert_base": None,
    "bert_small": None,
}
TRAINED: Final = tuple(name for name, training in ARCHS.items() if training is not None)


def arch_of(name: str) -> Training:
    """How the network with that name is trained.

    Raises:
        UsageError: it is unknown, or cannot be trained.
    """
    training = ARCHS.get(name)
    if training is None:
        why = "which is measured by `pyddpdiag bench` only" if name in ARCHS else "which is not known"
        raise UsageError(f"--arch is '{name}', {why}.", hint=f"choose among: {', '.join(TRAINED)}.")
    return training


def check_data(arch: str, data: str | None) -> None:
    """Refuses data of a kind that the network cannot be trained on.

    Raises:
        UsageError: --data is of another kind, or missing.
    """
    kind = arch_of(arch).kind
    if kind == "digits" and data is not None:
        raise UsageError(
            f"--arch {arch} is trained on handwritten digits, not on {data}.",
            hint="choose --arch resnet18 for an image folder, or --arch transformer for a text file.",
        )
    if kind == "images" and data is None:
        raise UsageError(
            f"--arch {arch} needs images.",
            hint="--data DIR, with images in DIR/train/<class>/ (pyddpdiag help training).",
        )
    if kind == "text" and data is None:
        raise UsageError(f"--arch {arch} needs a text.", hint="--data FILE, any text file in UTF-8.")
