"""An ordinary Lightning script with a validation loader, which knows nothing of pyddpdiag.

Arguments: epochs and batches. It fits twice: Lightning's sanity check precedes the first fit, and not the second.
"""

from __future__ import annotations

import sys
import tempfile

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORLD_SIZE = 2


class Line(lightning.LightningModule):
    """Learns zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 4)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("apart", self.net(batch[0]).abs().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(epochs: int, batches: int, sanity_steps: int) -> None:
    loader = DataLoader(TensorDataset(torch.ones(2 * batches * WORLD_SIZE, 8)), batch_size=2)
    with tempfile.TemporaryDirectory() as temporary:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=WORLD_SIZE,
            strategy=DDPStrategy(process_group_backend="gloo"),
            max_epochs=epochs,
            num_sanity_val_steps=sanity_steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=temporary,
        )
        trainer.fit(Line(), loader, loader)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for sanity_steps in (2, 0):
        fit(int(sys.argv[1]), int(sys.argv[2]), sanity_steps)
