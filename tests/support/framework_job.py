"""Ordinary scripts of two frameworks, which know nothing of pyddpdiag, for trials.

Arguments: "lightning" or "trainer" (that of transformers), how many steps, and a folder for the weights of each rank.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

WIDTH, ROWS, RANKS = 512, 4, 2


class Net(nn.Module):
    """Little compute for each parameter: the step is communication."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """(n, 512) float32 to its loss: learns zeros."""
        return {"loss": self.layers(x).square().mean()}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """As many as the steps need."""

    def __init__(self, steps: int) -> None:
        self.rows = torch.randn(steps * ROWS * RANKS, WIDTH, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.rows[index]}


def by_lightning(steps: int) -> nn.Module:
    """Lightning starts the second rank."""
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    module = Module()
    with tempfile.TemporaryDirectory() as temporary:
        lightning.Trainer(
            accelerator="cpu",
            devices=RANKS,
            strategy=DDPStrategy(process_group_backend="gloo"),
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=temporary,
        ).fit(module, torch.utils.data.DataLoader(Rows(steps), batch_size=ROWS))
    return module.net


def by_trainer(steps: int) -> nn.Module:
    """The trainer of transformers, in ranks of torchrun."""
    import transformers

    net = Net()
    with tempfile.TemporaryDirectory() as temporary:
        arguments = transformers.TrainingArguments(
            temporary,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=ROWS,
            num_train_epochs=1,
            optim="sgd",
            learning_rate=0.01,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        transformers.Trainer(net, arguments, train_dataset=Rows(steps)).train()
    return net


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trained = {"lightning": by_lightning, "trainer": by_trainer}[sys.argv[1]](int(sys.argv[2]))
    weights = [parameter.detach() for parameter in trained.parameters()]
    torch.save(weights, Path(sys.argv[3], f"weights-{os.environ.get('LOCAL_RANK', '0')}.pt"))
