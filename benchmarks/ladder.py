"""Lecture 03's ladder at any budget: lists exactly right, by how many numbers they hold, for each decoder.

    python benchmarks/ladder.py [--steps 450] [--seeds 0] [--json]

Beside the three models of the lecture: attention without input feeding (the cell reads the embedding alone).
"""

import argparse
import json

import torch

from attncourse.data import Tokenizer, encode_pairs, number_words
from attncourse.decoding import translate
from attncourse.metrics import accuracy_by_length, exact_match
from attncourse.recurrent import SUMMARIES, Seq2Seq
from attncourse.training import fit

UNFED = "attention, no input feeding"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=450, help="training steps of each model (the lecture's: 450)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="the table shows the mean over these")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    torch.set_num_threads(1)

    pairs = number_words("en", "de", train=20_000, test=1_000, dates=0, seed=0)
    english = Tokenizer.train((pair.source for pair in pairs.train), size=112)
    german = Tokenizer.train((pair.target for pair in pairs.train), size=112, keep_apart="hundert|und")
    encoded = encode_pairs(pairs.train, english, german)
    sources, truths = zip(*pairs.test, strict=True)
    numbers = [source.count(",") + 1 for source in sources]

    table: dict[str, list[float]] = {}
    print(f"{'exactly right, lists of':<32}" + "".join(f"{n:>7}" for n in range(1, 6)))
    for name in (*SUMMARIES, UNFED):
        rows = []
        for seed in args.seeds:
            torch.manual_seed(seed)
            summary = "attention" if name == UNFED else name
            model = Seq2Seq(len(english), len(german), 32, 128, summary, input_feeding=name != UNFED)
            fit(model, encoded, steps=args.steps, batch_size=32, lr=6e-3, seed=seed, progress=False)
            written = [translation.text for translation in translate(model, sources, english, german)]
            rows.append(accuracy_by_length(exact_match(written, truths), numbers, edges=range(1, 6)).values())
        table[name] = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        print(f"{name:<32}" + "".join(f"{share:>7.0%}" for share in table[name]), flush=True)
    if args.json:
        print(json.dumps({"steps": args.steps, "seeds": args.seeds, "torch": torch.__version__, "right": table}))


if __name__ == "__main__":
    main()
