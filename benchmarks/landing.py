"""The translator of the course's first page: three sentences of ours, what it wrote, and all its attention weights.

    attncourse train --data multi30k --to runs/captions
    python benchmarks/landing.py --run runs/captions [--save FILE] [--json]

The model is trained with the profile `cpu`; it writes greedily. Its weights are kept in thousandths, as (n_layers,
n_heads, n_query, n_key), of the encoder's self-attention, the decoder's, and cross-attention.
"""

import argparse
import json
from pathlib import Path

import torch
from record import about, hand_over, output_arguments

from attncourse import decoding
from attncourse.data import BOS, EOS
from attncourse.training.runs import load_run

# Written for this course, in the manner of captions (translations.py has them, too). None is in Multi30k.
SENTENCES = (
    "Der Ball wird von einem weißen Hund über die Wiese getragen.",
    "Ein Mann, der einen blauen Helm trägt, repariert ein Fahrrad.",
    "Eine Frau in einem roten Mantel wartet auf den Bus.",
)


def record(folder: Path) -> dict:
    """What is kept of the run in `folder`."""
    run = load_run(folder, task="translation")
    run.model.eval()
    score = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["test"]
    result = about("landing", "python benchmarks/landing.py --run runs/captions")
    result |= {
        "trained": "attncourse train --data multi30k --to runs/captions",
        "parameters": score["parameters"],
        "bleu": round(score["bleu"], 2),
        "signature": score["bleu_signature"],
        "sentences": [],
    }
    for sentence in SENTENCES:
        source = torch.tensor([run.source.encode(sentence)])
        lengths = torch.tensor([source.shape[1]])
        with torch.no_grad():
            ids = decoding.greedy(run.model, source, lengths, max_length=40).tokens[0].tolist()
            assert ids[-1] == EOS, f"the translation of {sentence!r} does not end"
            target_in = torch.tensor([[BOS, *ids[:-1]]])
            weights = run.model(source, lengths, target_in, with_weights=True)[1]
        result["sentences"].append(
            {
                "sentence": sentence,
                "translation": run.target.decode(ids),
                "source": run.source.pieces(sentence),
                "target": run.target.pieces([BOS, *ids[:-1]]),
                "written": run.target.pieces(ids),
                "weights": {
                    kind: (1000 * each[0]).round().int().tolist() for kind, each in weights._asdict().items()
                },
            }
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="the folder of the trained run")
    output_arguments(parser)
    args = parser.parse_args()
    result = record(args.run)
    for one in result["sentences"]:
        print(f"{one['sentence']}  →  {one['translation']}")
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
