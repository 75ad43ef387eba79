"""Lecture 11's captions by beam width and by length penalty, with one length cap for all.

    python benchmarks/beam_widths.py [--seeds 0 1 2] [--steps 800] [--batch-tokens 1024] [--save FILE] [--json]

The Transformer is the one of benchmarks/translations.py, trained by the same recipe from several seeds. Each translates
the first SOME captions of the validation set: with each of WIDTHS and no length penalty, and with BEAMS hypotheses and
each of PENALTIES. A text ends at twice its *own* source's tokens and ten, whatever the width: only sources of one
length share a batch. And each translates all captions greedily and with BEAMS and a penalty of 0.6, by the same cap.

Kept of each way to write: BLEU with its 95 % interval over captions, and of its difference from another way the paired
one; the words written for each word of the references; the texts without a word; the mean log-probability of a text,
the share of texts that the model finds likelier than the reference; and how many of the texts that were empty at one
width have words at the next (`refilled`). About ten minutes a seed on one CPU thread.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from record import about, hand_over, output_arguments
from torch import Tensor
from translations import BEAMS, DATA, PROFILE, SOURCE, TARGET, statistics

from attncourse.data import PAD, EncodedPair, Pair, Tokenizer, collate, encode_pairs
from attncourse.decoding import beam_search
from attncourse.metrics import bleu, bootstrap_bleu
from attncourse.training.evaluation import mean_loss
from attncourse.training.profiles import load_corpora, make_run_config, settings, train_tokenizers
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder

WIDTHS, PENALTIES, SOME, ROWS = (1, 2, 4, 8, 16, 32, 64, 128), (0.0, 0.6, 1.0), 200, 256


def by_source_length(pairs: list[EncodedPair], at_most: int) -> list[list[int]]:
    """Batches of at most so many sources, all of one length."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        groups[len(pair.source)].append(i)
    return [group[k : k + at_most] for _, group in sorted(groups.items()) for k in range(0, len(group), at_most)]


def write(
    model: EncoderDecoder, pairs: list[EncodedPair], target: Tokenizer, n_beams: int, penalty: float
) -> tuple[list[str], list[float]]:
    """The best hypothesis of each source, cut at twice the source's tokens and ten, and its log-probability."""
    texts, log_p = [""] * len(pairs), [0.0] * len(pairs)
    for rows in by_source_length(pairs, max(1, ROWS // n_beams)):
        batch = collate([EncodedPair(pairs[i].source, []) for i in rows])
        most = 2 * batch.source.shape[1] + 10
        found = beam_search(model, batch.source, batch.lengths, n_beams, penalty, most)
        for i, ids, score in zip(rows, found.tokens[:, 0].tolist(), found.scores[:, 0].tolist(), strict=True):
            n_written = sum(token != PAD for token in ids)                     # <eos> counts
            texts[i], log_p[i] = target.decode(ids), round(score * ((5 + n_written) / 6) ** penalty, 2)
    return texts, log_p


@torch.no_grad()
def log_p_of_references(model: EncoderDecoder, pairs: list[EncodedPair]) -> list[float]:
    """The log-probability of each reference, <eos> included."""
    found = []
    for pair in pairs:
        source, lengths, target_in, target_out = collate([pair])
        log_p = model(source, lengths, target_in).log_softmax(dim=-1).gather(-1, target_out[:, :, None])
        found.append(round(log_p.sum().item(), 2))
    return found


class Written(NamedTuple):
    """What a search wrote: BLEU; of each caption four counts of matches and the words; its log-probability."""

    bleu: float
    counts: Tensor
    log_p: Tensor


def resampled(written: Written, words: Tensor) -> Tensor:
    """BLEU of a thousand resamples of the captions; equal resamples for all ways to write."""
    return bootstrap_bleu(written.counts[:, :4], written.counts[:, 4], words[: len(written.counts)])


def ends(values: Tensor) -> list[float]:
    """The 95 % interval."""
    return [round(values.quantile(share).item(), 2) for share in (0.025, 0.975)]


def summary(written: Written, base: Written, words: Tensor, reference_log_p: Tensor | None = None) -> dict:
    """What is kept of a way to write, beside another on the same captions."""
    again, n_words = resampled(written, words), written.counts[:, 4]
    return {
        "bleu": round(written.bleu, 2), "interval": ends(again),
        "gain": round(written.bleu - base.bleu, 2), "gain_interval": ends(again - resampled(base, words)),
        "words": round(n_words.sum().item() / words[: len(n_words)].sum().item(), 4),
        "empty": int((n_words == 0).sum()), "log_p": round(written.log_p.mean().item(), 2),
        **({} if reference_log_p is None
           else {"likelier": round((written.log_p > reference_log_p).double().mean().item(), 4)}),
    }  # fmt: skip


def climb(model: EncoderDecoder, validation: list[Pair], tokenizers: Sequence[Tokenizer]) -> dict:
    """All that is kept of one trained model."""
    encoded, references = encode_pairs(validation, *tokenizers), [pair.target for pair in validation]

    def written(n_beams: int, penalty: float, n: int = SOME) -> Written:
        texts, log_p = write(model, encoded[:n], tokenizers[1], n_beams, penalty)
        found = Written(bleu(texts, references[:n]).score, torch.tensor(statistics(texts, references[:n])),
                        torch.tensor(log_p))  # fmt: skip
        print(f"  {len(texts)} captions, width {n_beams}, penalty {penalty}: BLEU {found.bleu:.1f}", flush=True)
        return found

    words = torch.tensor([row[4] for row in statistics(references, references)])
    reference_log_p = torch.tensor(log_p_of_references(model, encoded[:SOME]))
    penalties = {penalty: written(BEAMS, penalty) for penalty in PENALTIES}
    everything = {n_beams: written(n_beams, 0.6, len(encoded)) for n_beams in (1, BEAMS)}
    widths = {n_beams: written(n_beams, 0.0) for n_beams in WIDTHS}
    return kept(words, reference_log_p, penalties, everything, widths)


def kept(
    words: Tensor, reference_log_p: Tensor, penalties: dict[float, Written], everything: dict[int, Written],
    widths: dict[int, Written],
) -> dict:  # fmt: skip
    """The summaries: widths beside width 4, penalties beside none, on all captions the beam beside greedy search."""
    empty = {n: each.counts[:, 4] == 0 for n, each in widths.items()}
    return {
        "reference_log_p": round(reference_log_p.mean().item(), 2),
        "refilled": {str(wider): int((empty[n] & ~empty[wider]).sum()) for n, wider in pairwise(widths)},
        "widths": {str(n): summary(each, widths[4], words, reference_log_p) for n, each in widths.items()},
        "penalties": {str(alpha): summary(each, penalties[0.0], words) for alpha, each in penalties.items()},
        "all": {str(n): summary(each, everything[1], words) for n, each in everything.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    data, _, _ = settings(PROFILE, DATA)
    data |= {"source": SOURCE, "target": TARGET}
    corpora = load_corpora(data)
    tokenizers = train_tokenizers(data, corpora.train)
    run_config = make_run_config(PROFILE, DATA, tokenizers, {"source": SOURCE, "target": TARGET})
    pairs = encode_pairs(corpora.train, *tokenizers)
    runs = []
    for seed in args.seeds:
        recipe = replace(run_config.recipe, steps=args.steps, batch_tokens=args.batch_tokens, warmup=args.steps // 10,
                         seed=seed)  # fmt: skip
        torch.manual_seed(seed)
        model = EncoderDecoder(run_config.model)
        train(model, pairs, recipe)
        model.eval()
        loss = round(mean_loss(model, encode_pairs(corpora.val, *tokenizers)), 4)
        print(f"seed {seed}: loss on the validation set {loss}", flush=True)
        runs.append({"seed": seed, "loss": loss, **climb(model, corpora.val, tokenizers)})
    command = f"python benchmarks/beam_widths.py --seeds {' '.join(map(str, args.seeds))} --steps {args.steps}"
    result = {
        **about("beam_widths", f"{command} --batch-tokens {args.batch_tokens}", ("torch", "sacrebleu", "attncourse")),
        "steps": args.steps, "batch_tokens": args.batch_tokens, "captions": SOME, "runs": runs,
    }  # fmt: skip
    hand_over(result, args, depth=4)


if __name__ == "__main__":
    main()
