"""Networks with one fixed batch each, for benchmarks: real architectures, random weights, inputs of real shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from pyddpdiag.workloads.networks import build, mlp_width
from pyddpdiag.workloads.text import CONTEXT
from pyddpdiag.workloads.workload import load_digits

# Except for the digits, whose loss is meaningful, inputs are random: only their shape decides the time.
_SEED: Final = 0


@dataclass(frozen=True)
class FixedBatch:
    """A network with its only batch.

    Attributes:
        module: in training mode, float32.
        loss: of the given module (this one, wrapped) on the batch.
        batch_size: samples per rank and step.
        dataset: where the batch is from.
    """

    module: nn.Module
    loss: Callable[[nn.Module], Tensor]
    batch_size: int
    dataset: str = "random"


def fixed_batch(name: str) -> FixedBatch:
    """The network of this name in `archs.ARCHS` with its batch, equal on all ranks.

    Raises:
        UsageError: a library that builds it is missing.
    """
    torch.manual_seed(_SEED)
    return _MAKERS[name](name)


def _digits(name: str) -> FixedBatch:
    digits = load_digits()
    images, labels = digits.train_images[:32].clone(), digits.train_labels[:32].clone()
    return FixedBatch(build(name, 10), lambda m: functional.cross_entropy(m(images), labels), 32, "digits")


def _mlp(name: str) -> FixedBatch:
    network = build(name, 0)
    inputs = torch.randn(2, mlp_width(name))
    return FixedBatch(network, lambda m: m(inputs).square().mean(), 2)


def _images(side: int, batch: int) -> Callable[[str], FixedBatch]:
    def make(name: str) -> FixedBatch:
        network = build(name, 1000)
        images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
        return FixedBatch(network, lambda m: functional.cross_entropy(m(images), labels), batch)

    return make


def _text(name: str) -> FixedBatch:
    letters, batch = 64, 16
    network = build(name, letters)
    text = torch.randint(letters, (batch, CONTEXT + 1))
    return FixedBatch(
        network,
        lambda m: functional.cross_entropy(m(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()),
        batch,
    )


def _tokens(count: int, batch: int) -> Callable[[str], FixedBatch]:
    def make(name: str) -> FixedBatch:
        network = build(name, 2)
        words, labels = torch.randint(1000, (batch, count)), torch.randint(2, (batch,))
        return FixedBatch(
            network, lambda m: functional.cross_entropy(m(input_ids=words).logits, labels), batch
        )

    return make


_MAKERS: Final[dict[str, Callable[[str], FixedBatch]]] = {
    "digits-cnn": _digits,
    "resnet18": _images(64, 4),
    "resnet50": _images(224, 2),
    "transformer": _text,
    "mlp": _mlp,
    "mlp_small": _mlp,
    "bert_base": _tokens(128, 2),
    "bert_small": _tokens(64, 2),
}
