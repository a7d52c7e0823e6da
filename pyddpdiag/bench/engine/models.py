"""The models that can be measured, by name: real architectures with random weights, and inputs of real shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pyddpdiag.errors import UsageError

# Beyond the digits, whose loss means something, inputs are random: only their shape decides the time.
_SEED = 0


@dataclass(frozen=True)
class Workload:
    """A model with its input.

    Attributes:
        module: in training mode, float32.
        loss: of the given module (this one, wrapped) on the input.
        batch_size: samples per rank and step.
        dataset: where the input is from.
    """

    module: nn.Module
    loss: Callable[[nn.Module], torch.Tensor]
    batch_size: int
    dataset: str = "random"


def build(name: str) -> Workload:
    """The workload of this name, equal on all ranks. Raises `UsageError` if a library it needs is missing."""
    torch.manual_seed(_SEED)
    return _REGISTRY[name]()


def _digits() -> Workload:
    from pyddpdiag.train.data import load_digits
    from pyddpdiag.train.models import DigitsNet

    digits = load_digits()
    images, labels = digits.train_images[:32].clone(), digits.train_labels[:32].clone()
    return Workload(DigitsNet(), lambda m: functional.cross_entropy(m(images), labels), 32, "digits")


def _mlp(width: int, layers: int) -> Workload:
    # Next to no compute per parameter: the step is almost all communication.
    module = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    inputs = torch.randn(2, width)
    return Workload(module, lambda m: m(inputs).square().mean(), 2)


def _resnet(side: int, batch: int, **config: Any) -> Workload:
    transformers = _transformers()
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000, **config))
    images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
    return Workload(
        module.train(), lambda m: functional.cross_entropy(m(pixel_values=images).logits, labels), batch
    )


def _bert(tokens: int, batch: int, **config: Any) -> Workload:
    transformers = _transformers()
    # Dropout draws random numbers, which costs time but tells nothing of communication; it stays, as in training.
    module = transformers.BertForSequenceClassification(transformers.BertConfig(**config))
    words, labels = torch.randint(1000, (batch, tokens)), torch.randint(2, (batch,))
    return Workload(
        module.train(), lambda m: functional.cross_entropy(m(input_ids=words).logits, labels), batch
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "the ResNet and BERT models are built by the transformers package, which cannot be imported.",
            hint="pip install 'pyddpdiag[models]', or choose --model digits or mlp.",
        ) from error
    return transformers


_SMALL_BERT = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
_REGISTRY: dict[str, Callable[[], Workload]] = {
    "digits": _digits,
    "mlp": lambda: _mlp(1024, 4),
    "mlp_small": lambda: _mlp(256, 4),
    "resnet50": lambda: _resnet(224, 2),
    "resnet_small": lambda: _resnet(
        64, 4, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    ),
    "bert_base": lambda: _bert(128, 2),
    "bert_small": lambda: _bert(64, 2, **_SMALL_BERT),
}
