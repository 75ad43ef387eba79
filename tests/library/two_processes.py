"""Trains a small model; run by `torchrun` and without it, to compare. Prints what it measured as JSON.

    torchrun --nproc-per-node 2 tests/two_processes.py FOLDER MICRO_BATCHES SHARD STEPS

$DROPOUT is the model's. With $SHOW_EVALUATION each evaluation makes that file, and goes on until it is interrupted.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from attncourse.data import EncodedPair
from attncourse.training.distributed import distributed_context
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, TransformerConfig

CONFIG = TransformerConfig(vocab_size=20, d_model=16, n_layers=1, n_heads=2, d_ff=32, dropout=0.0)


def pairs(n: int = 60) -> list[EncodedPair]:
    """Sequences of several lengths, and the same reversed."""
    generator = torch.Generator().manual_seed(0)
    sources = [torch.randint(4, 20, (2 + i % 7,), generator=generator).tolist() for i in range(n)]
    return [EncodedPair(source, source[::-1]) for source in sources]


def main() -> None:
    folder, micro_batches, shard, steps = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = EncoderDecoder(replace(CONFIG, dropout=float(os.environ.get("DROPOUT", 0))))
    asked = []

    def evaluate(model) -> dict[str, float]:
        asked.append(True)
        if file := os.environ.get("SHOW_EVALUATION"):
            Path(file).touch()
            while True:
                time.sleep(0.01)
        return {"bleu": float(sum(p.abs().sum() for p in model.parameters()))}

    with distributed_context("cpu") as processes:
        recipe = Recipe(
            steps=int(steps), batch_tokens=24, accumulate=int(micro_batches) // processes.count, warmup=4, lr=1e-2,
            ema=0.9, evaluate_every=5, save_every=4, shard=shard == "shard", compile=shard == "shard",
        )  # fmt: skip
        resume = (Path(folder) / "checkpoint.safetensors").exists()
        progress = train(model, pairs(), recipe, folder, evaluate, resume=resume, processes=processes)
        if processes.is_main:
            print(json.dumps({"losses": [step.loss for step in progress.steps], "scores": progress.scores}))
        else:
            assert not asked, "only the first process evaluates"


if __name__ == "__main__":
    main()
