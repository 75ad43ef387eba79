"""Which of the Transformer's modifications help a small one? Each is trained on the docstrings at the same budget.

    python benchmarks/modifications.py [--steps 300] [--seeds 0 1 2 3 4] [--lr 0.01] [--only NAME ...]
                                       [--rope] [--unscaled] [--json] [--save FILE]

The baseline is the block of 2017 with its norms in front, as a language model: LayerNorm, ReLU, sinusoidal positions, a
tied output. Each variant changes one thing ("Llama's four" changes four) and gets the same texts in the same order, the
same number of steps, the same schedule and learning rate. Gated networks have 2/3 of the width, so that they have as
many parameters; where a variant's size differs all the same, the table says so. What counts is the loss on modules that
no model has read, in nats a token, and its difference from the baseline's *with the same seed*.

The lecture on the Transformer draws what `--save src/attncourse_lessons/measured/modifications.json` keeps. Beside it
lie six smaller runs on what the first leaves open: modifications_longer.json has four times as many steps, and so has
modifications_no_positions.json, for models that have no sinusoids to disturb them;
modifications_slower.json a lower learning rate, modifications_unscaled.json embeddings without the factor √d.
modifications_rope.json and modifications_rope_unscaled.json have rotary embeddings in all models, with and without that
factor: beside sinusoids an embedding without it is nearly lost, and every model is worse by about a nat or more.
"""

import argparse
import datetime
import json
import math
import platform
import statistics
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from attncourse.counting import count_flops, count_parameters
from attncourse.data import PAD, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.metrics import token_loss
from attncourse.training import fit_texts
from attncourse.transformer import LanguageModel, TransformerConfig

VOCABULARY, LONGEST, BATCH_TOKENS, LR = 512, 128, 1024, 1e-2
BASELINE = TransformerConfig(
    vocab_size=VOCABULARY, d_model=64, n_layers=3, n_heads=4, d_ff=256, max_length=LONGEST, dropout=0.0,
    scale_embedding=True,  # whatever the positions: else a variant with RoPE would change two things
)  # fmt: skip
GATED = 171  # 2/3 of 256: three matrices of this width have as many numbers as two of that
LLAMA = {"norm": "rms", "activation": "swiglu", "d_ff": GATED, "positions": "rope", "n_kv_heads": 2}
VARIANTS: dict[str, dict] = {
    "baseline": {},
    "GELU": {"activation": "gelu"},
    "ReGLU": {"activation": "reglu", "d_ff": GATED},
    "GEGLU": {"activation": "geglu", "d_ff": GATED},
    "SwiGLU": {"activation": "swiglu", "d_ff": GATED},
    "RMSNorm": {"norm": "rms"},
    "post-norm": {"norm_place": "post"},
    "untied output": {"tie_output": False},
    "twice the layers": {"n_layers": 6, "d_ff": 128, "n_heads": 2, "d_head": 16},
    "learned positions": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "RoPE": {"positions": "rope"},
    "GQA": {"n_kv_heads": 2},
    "Llama's four": LLAMA,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="one model a seed and variant")
    parser.add_argument("--lr", type=float, default=LR, help="the highest learning rate of the schedule")
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--rope", action="store_true", help="rotary embeddings in all models, the baseline's too")
    parser.add_argument("--unscaled", action="store_true", help="no factor √d on any embeddings")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--save", type=Path, help="write the same object to this file, after each seed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    names = ["baseline", *(name for name in args.only if name != "baseline")]
    common: dict = {"positions": "rope"} if args.rope else {}
    common |= {"scale_embedding": False} if args.unscaled else {}

    corpus = docstrings()
    tokenizer = Tokenizer.train(corpus.train, size=VOCABULARY)
    train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
    losses: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for done, seed in enumerate(args.seeds, start=1):
        for name in names:
            started = time.process_time()
            losses[name].append(test_loss(name, train, test, args.steps, seed, args.lr, common))
            seconds[name].append(time.process_time() - started)
            print(f"seed {seed}  {name:<18} {losses[name][-1]:.4f}", flush=True)
        result = summary(losses, seconds, args.seeds[:done], args.steps, args.lr, len(train), len(test))
        result["command"] += " --rope" * args.rope + " --unscaled" * args.unscaled
        if args.save:
            args.save.write_text(json.dumps(result, indent=1) + "\n")

    print(f"\n{'':<20}{'test loss':>10}{'difference':>12}{'± s.e.':>8}{'parameters':>12}{'kFLOP/token':>13}{'s':>7}")
    for name, row in result["variants"].items():
        difference = "" if name == "baseline" else f"{row['difference']:+.4f}{row['standard_error']:>8.4f}"
        cost = f"{row['parameters']:>12,}{row['flops_per_token'] / 1e3:>13.0f}{row['seconds']:>7.1f}"
        print(f"{name:<20}{row['mean']:>10.4f}{difference:>20}{cost}")
    if args.json:
        print(json.dumps(result))


def test_loss(
    name: str, train: list, test: list, steps: int, seed: int, lr: float = LR, common: dict | None = None
) -> float:
    """The loss on the test texts after training, in nats a token, over texts cut where training cut them.

    `common` is what all models have, whatever the variant.
    """
    torch.manual_seed(seed)
    model = LanguageModel(replace(BASELINE, **VARIANTS[name] | (common or {})))
    fit_texts(model, train, steps, BATCH_TOKENS, LONGEST, lr, seed, progress=False)
    return held_out_loss(model, test, 8 * BATCH_TOKENS, LONGEST)


def held_out_loss(model, texts: list, batch_tokens: int, longest: int) -> float:
    """Nats a token, over texts cut at `longest`."""
    total = tokens = 0.0
    with torch.no_grad():
        for batch in text_batches(texts, batch_tokens, longest, seed=0):
            n = (batch.tokens_out != PAD).sum().item()
            total, tokens = total + n * token_loss(model(batch.tokens_in), batch.tokens_out).item(), tokens + n
    return total / tokens


def compared(losses: list[float], others: list[float]) -> dict[str, float]:
    """The mean over the seeds, and the difference from the others of the same seeds with its standard error."""
    differences = [loss - other for loss, other in zip(losses, others, strict=True)]
    spread = statistics.stdev(differences) if len(differences) > 1 else math.nan
    return {
        "mean": round(statistics.mean(losses), 5),
        "difference": round(statistics.mean(differences), 5),
        "standard_error": round(spread / math.sqrt(len(losses)), 5),
    }


def summary(losses: dict, seconds: dict, seeds: list[int], steps: int, lr: float, n_train: int, n_test: int) -> dict:
    """Losses by seed, and what the lecture draws of them: differences against the baseline of the same seed."""
    variants = {}
    for name, found in losses.items():
        config = replace(BASELINE, **VARIANTS[name])
        variants[name] = {
            "losses": [round(loss, 5) for loss in found],
            **compared(found, losses["baseline"]),
            "parameters": count_parameters(config, LanguageModel).total,
            "flops_per_token": round(count_flops(config, LanguageModel, 1, LONGEST).total / LONGEST),
            "seconds": round(statistics.mean(seconds[name]), 1),
        }
    options = f" --lr {lr:g}" * (lr != LR)
    if len(losses) < len(VARIANTS):
        options += " --only " + " ".join(f"'{name}'" if " " in name else name for name in losses if name != "baseline")
    return {
        "command": f"python benchmarks/modifications.py --steps {steps} --seeds {' '.join(map(str, seeds))}" + options,
        "date": datetime.date.today().isoformat(),
        "device": f"one thread of a CPU ({platform.machine()})",
        "python": platform.python_version(),
        "torch": version("torch"),
        "texts": {"train": n_train, "test": n_test},
        "steps": steps,
        "batch_tokens": BATCH_TOKENS,
        "lr": lr,
        "seeds": seeds,
        "variants": variants,
    }


if __name__ == "__main__":
    main()
