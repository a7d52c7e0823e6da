"""Creates the networks of `archs`, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import nn

from pyddpdiag.errors import UsageError
from pyddpdiag.workloads.digits_net import DigitsNet
from pyddpdiag.workloads.resnet import resnet18, resnet50
from pyddpdiag.workloads.text import CONTEXT
from pyddpdiag.workloads.transformer import Transformer

_SMALL_BERT: Final = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


def build(name: str, classes: int) -> nn.Module:
    """The network of that name, in training mode, with weights from torch's random numbers.

    Args:
        name: in `archs.ARCHS`.
        classes: the number of classes; digits always have 10, and an `mlp` returns as many numbers as it
            takes.

    Raises:
        UsageError: a library that builds it is missing.
    """
    return _BUILDERS[name](classes)


def mlp_width(name: str) -> int:
    """How many numbers an `mlp` takes."""
    return _MLP_WIDTHS[name]


def _mlp(width: int) -> nn.Module:
    # Next to no compute per parameter: the step is almost all communication.
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))


def _bert(classes: int, **config: Any) -> nn.Module:
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            "the BERT models are built by the transformers package, which cannot be imported.",
            hint="pip install 'pyddpdiag[models]', or choose another network.",
        ) from error
    # Dropout draws random numbers, which costs time unrelated to communication; it stays, as in training.
    network: nn.Module = transformers.BertForSequenceClassification(
        transformers.BertConfig(num_labels=classes, **config)
    )
    return network.train()


_MLP_WIDTHS: Final = {"mlp": 1024, "mlp_small": 256}
_BUILDERS: Final[dict[str, Callable[[int], nn.Module]]] = {
    "digits-cnn": lambda _: DigitsNet(),
    "resnet18": resnet18,
    "resnet50": resnet50,
    "transformer": lambda classes: Transformer(classes, CONTEXT),
    "mlp": lambda _: _mlp(_MLP_WIDTHS["mlp"]),
    "mlp_small": lambda _: _mlp(_MLP_WIDTHS["mlp_small"]),
    "bert_base": _bert,
    "bert_small": lambda classes: _bert(classes, **_SMALL_BERT),
}
