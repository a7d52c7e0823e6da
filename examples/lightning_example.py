"""The recorder under Lightning's DDPStrategy, by one callback. It logs the verdict in the end, and the numbers of the
report with the Trainer's loggers.

DDPStrategy(ddp_comm_hook=pyddpdiag.timed_allreduce) works as well, but only on GPUs: on the CPU, Lightning leaves
communication hooks out without a word (seen with 2.6).

Needs: pip install lightning. Run: python examples/lightning_example.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pyddpdiag.integrations.lightning import Diagnostics

WORLD_SIZE = 2


class Sine(lightning.LightningModule):
    """Learns the sine of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 5))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = (self.net(batch[0]) - batch[0][:, :5].sin()).square().mean()
        if self.global_rank == 0 and index in (0, 15):
            print(f"epoch {self.current_epoch}  batch {index:2d}  loss {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.log("apart", (self.net(batch[0]) - batch[0][:, :5].sin()).abs().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder: str) -> None:
    """Lightning starts this script once more for each further rank."""
    lightning.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(512, 10)), batch_size=16, shuffle=True)
    with tempfile.TemporaryDirectory() as temporary:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=WORLD_SIZE,
            strategy=DDPStrategy(process_group_backend="gloo"),
            callbacks=[Diagnostics(folder)],
            max_epochs=2,
            logger=CSVLogger(f"{folder}-metrics"),
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=temporary,
        )
        trainer.fit(Sine(), loader, loader)
    if trainer.global_rank == 0:
        print(f"Where the time went: pyddpdiag report {folder}")


if __name__ == "__main__":
    # The other ranks inherit the environment, and with it the folder's name.
    default = os.environ.setdefault("EXAMPLE_FOLDER", time.strftime("runs/lightning-%Y%m%d-%H%M%S"))
    main(sys.argv[1] if len(sys.argv) > 1 else default)
