"""The recorder under Hugging Face's Trainer, by one callback. It logs the verdict in the end.

Needs: pip install transformers accelerate. Run:
torchrun --nproc-per-node 2 examples/transformers_example.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
from torch.utils.data import TensorDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from pyddpdiag.integrations.transformers import DiagnosticsCallback

SENTENCES = 128


class Sentences(TensorDataset):
    """Random words; a sentence's class is whether its first word is from the upper half of the vocabulary."""

    def __init__(self) -> None:
        words = torch.randint(0, 64, (SENTENCES, 8), generator=torch.Generator().manual_seed(0))
        super().__init__(words, (words[:, 0] >= 32).long())

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words, label = super().__getitem__(index)
        return {"input_ids": words, "labels": label}


def main(folder: str | None) -> None:
    """A small BERT, made by its configuration: nothing is downloaded."""
    set_seed(0)
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with tempfile.TemporaryDirectory() as outputs:
        arguments = TrainingArguments(
            output_dir=outputs,
            use_cpu=True,
            ddp_backend="gloo",
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            num_train_epochs=4,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
        )
        diagnostics = DiagnosticsCallback(folder)
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=arguments,
            train_dataset=Sentences(),
            eval_dataset=Sentences(),
            callbacks=[diagnostics],
        )
        trainer.train()
        trainer.log(diagnostics.numbers)  # to all that `report_to` names; on the first rank there are some
    if trainer.is_world_process_zero():
        losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
        for epoch in (0, -1):
            print(f"epoch {epoch % len(losses)}  loss {losses[epoch]:.4f}", flush=True)
        print(f"Logged: {' '.join(sorted(trainer.state.log_history[-1]))}", flush=True)


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(f"This example needs a launcher: torchrun --nproc-per-node 2 {sys.argv[0]} [FOLDER]")
    main(sys.argv[1] if len(sys.argv) > 1 else None)
