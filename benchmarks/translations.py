"""What each rung of the ladder makes of ten sentences of ours, after the same short training on captions.

    python benchmarks/translations.py [--steps 800] [--batch-tokens 1024] [--seed 0] [--save FILE] [--json]

The four rungs (recurrent: mean pool, last state, attention; Transformer) are trained on Multi30k by the profile `cpu`,
with the same batches, steps and recipe, and so few of them that all four take about 25 minutes on one CPU thread: the
profile's own 2,200 steps of 2,048 tokens do better. Each then translates SENTENCES, greedily and with five beams. Kept
of them: the texts, and for the two rungs that attend the alignment (attention weights of the greedy translation; the
Transformer's are the mean over the heads of its last block).

Of the validation set, whose text is not ours to pass on, only counts are kept: for each caption and each way of
writing the n-grams that match the reference (four numbers) and the words written, and the reference's words. BLEU and
its bootstrap need no more. (A text ends at twice the longest source of its batch and ten tokens; greedy batches are the
largest, so greedy texts end later than a beam's.) The test set is not looked at.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import sacrebleu
import torch
from record import about
from training import recurrent

from attncourse.data import encode_pairs
from attncourse.decoding import beam_translate, translate
from attncourse.metrics import bleu, chrf
from attncourse.recurrent import SUMMARIES
from attncourse.training.evaluation import mean_loss
from attncourse.training.profiles import load_corpora, make_run_config, settings, train_tokenizers
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder

PROFILE, DATA, SOURCE, TARGET, BEAMS = "cpu", "multi30k", "de", "en", 5

# Written for this course, in the manner of captions, with a translation of ours. None is in Multi30k.
SENTENCES = {
    "Ein kleiner Hund rennt am Strand entlang.": "A small dog runs along the beach.",
    "Eine Frau in einem roten Mantel wartet auf den Bus.": "A woman in a red coat is waiting for the bus.",
    "Drei Jungen springen von einem Steg ins Wasser.": "Three boys are jumping off a pier into the water.",
    "Auf dem Tisch steht ein Korb mit grünen Äpfeln.": "On the table there is a basket of green apples.",
    "Zwei Kinder bauen im Garten eine Burg aus Sand.": "Two children are building a castle of sand in the garden.",
    "Ein alter Mann sitzt auf einer Bank und liest Zeitung.":
        "An old man is sitting on a bench, reading a newspaper.",
    "Ein Mädchen malt ein Bild, während ihre Mutter zuschaut.":
        "A girl is painting a picture while her mother watches.",
    "Ein Mann, der einen blauen Helm trägt, repariert ein Fahrrad.":
        "A man wearing a blue helmet is repairing a bicycle.",
    "Der Ball wird von einem weißen Hund über die Wiese getragen.":
        "The ball is being carried across the meadow by a white dog.",
    "Nachts spielt eine Musikerin auf einem leeren Marktplatz Akkordeon.":
        "At night, a musician plays the accordion on an empty market square.",
}  # fmt: skip


def statistics(written: list[str], references: list[str]) -> list[list[int]]:
    """Of each sentence the 1- to 4-grams that match, and its words, as sacreBLEU's 13a cuts them."""
    metric = sacrebleu.BLEU(effective_order=True)                 # which changes no count
    scores = [metric.sentence_score(ours, [theirs]) for ours, theirs in zip(written, references, strict=True)]
    return [[*score.counts, score.sys_len] for score in scores]


def other_measures(written: list[str], references: list[str]) -> dict[str, float]:
    """BLEU of the same texts, measured in other ways: {signature: score}."""
    found = {}
    for options in ({}, {"lowercase": True}, {"tokenize": "none"}, {"tokenize": "intl"}, {"tokenize": "char"}):
        metric = sacrebleu.BLEU(**options)
        score = metric.corpus_score(written, [references]).score
        found[str(metric.get_signature())] = round(score, 2)
    return found


def alignments(model, tokenizers) -> list[dict]:
    """Of each sentence the pieces of both sides, and the weights in thousandths, a row for each target piece."""
    return [
        {
            "source": one.source_pieces,
            "target": one.target_pieces,
            "weights": (1000 * one.weights).round().int().tolist(),
        }
        for one in translate(model, list(SENTENCES), *tokenizers)
    ]


def climb(rung: str, run_config, pairs, validation, tokenizers) -> dict:
    """Train one rung; what it writes, and how good it is on the validation set."""
    torch.manual_seed(run_config.recipe.seed)
    config = run_config.model
    model = EncoderDecoder(config) if rung == "Transformer" else recurrent(config, rung)
    began = time.perf_counter()
    train(model, pairs, run_config.recipe)
    seconds = time.perf_counter() - began
    sources, references = (list(side) for side in zip(*validation, strict=True))
    kept: dict = {
        "parameters": sum(p.numel() for p in model.parameters()), "training_seconds": round(seconds),
        "loss": mean_loss(model, encode_pairs(validation, *tokenizers)),
    }  # fmt: skip
    for name, n_beams in (("greedy", 1), ("beam", BEAMS)):
        written = beam_translate(model, sources, *tokenizers, n_beams=n_beams)
        kept[name] = {
            "texts": beam_translate(model, list(SENTENCES), *tokenizers, n_beams=n_beams),
            "bleu": bleu(written, references).score, "chrf": chrf(written, references).score,
            "other_measures": other_measures(written, references), "statistics": statistics(written, references),
        }  # fmt: skip
    if rung in ("attention", "Transformer"):
        kept["alignments"] = alignments(model, tokenizers)
    both = f"{kept['greedy']['bleu']:.1f} greedily, {kept['beam']['bleu']:.1f} with {BEAMS} beams"
    print(f"{rung:>12}: {seconds:.0f} s, loss {kept['loss']:.3f}, BLEU on the validation set {both}", flush=True)
    print("\n".join(f"{'':>14}{text}" for text in kept["beam"]["texts"]), flush=True)
    return kept


def as_text(result: dict) -> str:
    """JSON, a line for each rung and fact: the statistics are a thousand rows."""
    rungs = ",\n".join(f"    {json.dumps(name)}: {json.dumps(rung, ensure_ascii=False, separators=(',', ':'))}"
                       for name, rung in result["rungs"].items())  # fmt: skip
    facts = "".join(f"  {json.dumps(name)}: {json.dumps(fact, ensure_ascii=False)},\n"
                    for name, fact in result.items() if name != "rungs")  # fmt: skip
    return f'{{\n{facts}  "rungs": {{\n{rungs}\n  }}\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800, help="updates of each rung")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the JSON object in this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    torch.set_num_threads(1)

    data, _, _ = settings(PROFILE, DATA)
    data |= {"source": SOURCE, "target": TARGET}
    corpora = load_corpora(data)
    known = {pair.source for part in corpora for pair in part}
    assert known.isdisjoint(SENTENCES), "our sentences are to be our own"
    tokenizers = train_tokenizers(data, corpora.train)
    run_config = make_run_config(PROFILE, DATA, tokenizers, {"source": SOURCE, "target": TARGET})
    recipe = replace(run_config.recipe, steps=args.steps, batch_tokens=args.batch_tokens, warmup=args.steps // 10,
                     seed=args.seed)  # fmt: skip
    run_config = run_config._replace(recipe=recipe)
    pairs = encode_pairs(corpora.train, *tokenizers)
    references = [pair.target for pair in corpora.val]
    metric = sacrebleu.BLEU()
    metric.corpus_score(references, [references])                 # or it has no signature yet
    rungs = {rung: climb(rung, run_config, pairs, corpora.val, tokenizers)
             for rung in ("mean pool", "last state", "attention", "Transformer")}  # fmt: skip
    assert {"mean pool", "last state", "attention"} == set(SUMMARIES)
    options = f"--steps {args.steps} --batch-tokens {args.batch_tokens} --seed {args.seed}"
    result = {
        **about("translations", f"python benchmarks/translations.py {options}", ("torch", "sacrebleu", "attncourse")),
        "data": data, "profile": PROFILE, "steps": args.steps, "batch_tokens": args.batch_tokens, "seed": args.seed,
        "beams": BEAMS, "signature": str(metric.get_signature()),
        "sentences": SENTENCES,
        "validation_words": [row[4] for row in statistics(references, references)],
        "rungs": rungs,
    }  # fmt: skip
    if args.save:
        args.save.write_text(as_text(result), encoding="utf-8")
    if args.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
