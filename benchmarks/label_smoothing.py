"""Lecture 10's model, with and without label smoothing, on few pairs and on many: is it calibrated?

    python benchmarks/label_smoothing.py [--seeds 0 1 2] [--pairs 100 8000] [--shares 0 0.1] [--steps 400] [--save FILE]

The question is whether label smoothing mends calibration, or whether its ε happened to fit the error of a model that
saw few pairs. The data, split, vocabularies and model are the lecture's: German and English number words, one block of
encoder and one of decoder. All runs take the same steps with the same batch size and rates; only the number of training
pairs, ε and the seed differ. Kept of each run, on 500 validation pairs: the share of tokens that are right, the mean
confidence, the expected calibration error in ten bins, and the plain loss in nats per token. One thread.
"""

import argparse
import random

import torch
from record import about, hand_over, output_arguments
from torch import nn

from attncourse.data import PAD, EncodedPair, Tokenizer, collate, encode_pairs, number_words
from attncourse.training.evaluation import mean_loss
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, TransformerConfig

VOCABULARY, VALIDATION, MEASURED = 112, 1000, 500


@torch.no_grad()
def calibration(model: nn.Module, encoded: list[EncodedPair]) -> dict[str, float]:
    """What the lecture measures, over the real tokens of some pairs."""
    batch = collate(encoded)
    p = model(batch.source, batch.lengths, batch.target_in).softmax(dim=-1)
    confidence, choice = p.max(dim=-1)
    real = batch.target_out != PAD
    right, confidence = (choice == batch.target_out)[real].float(), confidence[real]
    bins = (10 * confidence).long().clamp(max=9)
    gaps = torch.zeros(10).index_add(0, bins, confidence - right)
    return {
        "right": round(right.mean().item(), 4),
        "confidence": round(confidence.mean().item(), 4),
        "ece": round(gaps.abs().sum().item() / len(right), 4),
        "loss": round(mean_loss(model, encoded), 4),
    }


def measure(seeds: list[int], sizes: list[int], shares: list[float], steps: int) -> dict:
    """The record: {pairs: {ε: [what one seed's model came to, …]}}."""
    options = (f"--{name} {' '.join(map(str, values))}" for name, values in
               {"seeds": seeds, "pairs": sizes, "shares": shares, "steps": [steps]}.items())  # fmt: skip
    pairs = number_words("de", "en", train=9_000, test=0, max_items=2, dates=0, seed=0).train
    random.Random(0).shuffle(pairs)
    german = Tokenizer.train((pair.source for pair in pairs[VALIDATION:]), size=VOCABULARY)
    english = Tokenizer.train((pair.target for pair in pairs[VALIDATION:]), size=VOCABULARY)
    validation = encode_pairs(pairs[:MEASURED], german, english)
    training = encode_pairs(pairs[VALIDATION:], german, english)
    config = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64, n_layers=1,
                               n_heads=4, d_ff=128, dropout=0.0)  # fmt: skip
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for size in sizes:
        for share in shares:
            for seed in seeds:
                torch.manual_seed(seed)
                model = EncoderDecoder(config)
                recipe = Recipe(steps=steps, batch_tokens=1024, lr=6e-3, warmup=steps // 10, schedule="cosine",
                                label_smoothing=share, seed=seed)  # fmt: skip
                train(model, training[:size], recipe)
                came_to = calibration(model.eval(), validation)
                found.setdefault(str(size), {}).setdefault(f"{share:g}", []).append(came_to)
                print(f"{size} pairs, ε = {share:g}, seed {seed}: {came_to}", flush=True)
    record = about("label_smoothing", f"python benchmarks/label_smoothing.py {' '.join(options)}")
    return record | {"seeds": seeds, "steps": steps, "batch_tokens": 1024, "vocabulary": VOCABULARY, "pairs": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--pairs", type=int, nargs="+", default=[100, 8000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument("--steps", type=int, default=400)
    output_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hand_over(measure(options.seeds, options.pairs, options.shares, options.steps), options, depth=3)


if __name__ == "__main__":
    main()
