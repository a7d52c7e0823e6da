"""Frameworks that make the DDP module and own the training loop, and how a setting is typed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Framework:
    """One of them.

    Attributes:
        title: what a report calls it.
        packages: the Python packages or modules that are part of it.
        ddp: where an option of DistributedDataParallel is typed; `{option}` is `name=value`.
        callback: what records a training from within it; empty: there is none.
        accumulate: how passes are accumulated without averaging each; empty: as without a framework.
        uneven: how ranks with different numbers of batches train on; empty: they cannot; None: as without a framework.
        workers: where the number of a loader's workers is typed; `{count}` is the number.
    """

    title: str
    packages: tuple[str, ...]
    ddp: str
    callback: str = ""
    accumulate: str = ""
    uneven: str | None = ""
    workers: str = "DataLoader(num_workers={count})"


FRAMEWORKS: Final = {
    "lightning": Framework(
        "Lightning",
        ("lightning", "pytorch_lightning"),
        "Trainer(strategy=DDPStrategy({option}))",
        callback="Trainer(callbacks=[pyddpdiag.integrations.lightning.Diagnostics({options})])",
        accumulate="Trainer(accumulate_grad_batches={passes})",
    ),
    "transformers": Framework(
        "the Trainer of transformers",
        ("transformers",),
        "TrainingArguments(ddp_{option})",
        callback="Trainer(callbacks=[pyddpdiag.integrations.transformers.DiagnosticsCallback({options})])",
        accumulate="TrainingArguments(gradient_accumulation_steps={passes})",
        workers="TrainingArguments(dataloader_num_workers={count})",
    ),
    "accelerate": Framework(
        "Accelerate",
        ("accelerate",),
        "Accelerator(kwargs_handlers=[DistributedDataParallelKwargs({option})])",
        callback="pyddpdiag.integrations.accelerate.Diagnostics(accelerator, {options})",
        accumulate="Accelerator(gradient_accumulation_steps={passes}) and, around each pass, "
        "with accelerator.accumulate(model):",
        uneven="with accelerator.join_uneven_inputs([model]):",
    ),
    "ray": Framework(
        "Ray Train",
        ("ray.train",),
        "ray.train.torch.prepare_model(model, parallel_strategy_kwargs=dict({option}))",
        uneven=None,
    ),
}
"""By the name that a sidecar has for it."""


def framework_of(module: str) -> str:
    """The framework that a Python module is part of; empty: none that is known."""
    for name, one in FRAMEWORKS.items():
        if any(module == package or module.startswith(f"{package}.") for package in one.packages):
            return name
    return ""
