"""How good a model is while it trains, and at the end: one that translates, or a language model."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from attncourse.data import EncodedPair, Pair, Tokenizer, collate, encode_pairs, encode_texts
from attncourse.data.batches import cut
from attncourse.decoding import beam_translate
from attncourse.metrics import bleu, chrf, exact_match, text_log_probabilities, token_loss
from attncourse.training.own_text import PAIRS, TEXTS
from attncourse.transformer import EncoderDecoder

# The score that decides which weights are kept, by the name of the data.
BEST_BY = {"number-words": "exact", "multi30k": "bleu", PAIRS: "bleu", TEXTS: "loss"}


@torch.no_grad()
def mean_loss(model: nn.Module, pairs: Sequence[EncodedPair], batch_size: int = 128) -> float:
    """Cross entropy in nats a target token, over all of them, without label smoothing. ValueError for no pairs."""
    if not pairs:
        raise ValueError("pairs: got none, expected at least one")
    device = next(model.parameters()).device
    by_length = sorted(pairs, key=lambda pair: len(pair.target))
    total, tokens = 0.0, 0
    for start in range(0, len(by_length), batch_size):
        chosen = by_length[start : start + batch_size]
        source, lengths, target_in, target_out = (x.to(device) for x in collate(chosen))
        n = sum(len(pair.target) + 1 for pair in chosen)
        total += token_loss(model(source, lengths, target_in).float(), target_out).item() * n
        tokens += n
    return total / tokens


def mean_text_loss(model: Any, texts: Sequence[Sequence[int]]) -> float:
    """A language model's cross entropy in nats a token, <eos> among them, over all texts. ValueError for no texts.

    Texts that are longer than the model's positions are read in pieces, each as if nothing had gone before.
    """
    if not texts:
        raise ValueError("texts: got none, expected at least one")
    pieces = texts if model.max_positions is None else cut(texts, model.max_positions)
    scores = torch.cat(text_log_probabilities(model, pieces, batch_size=32))
    return -scores.double().mean().item()


def make_evaluate(name: str, examples: Sequence[Any], *tokenizers: Tokenizer) -> Callable[[Any], dict[str, float]]:
    """What `train` asks now and then: the loss on these pairs, and BLEU (captions) or the share exactly right.

    On texts, a language model's loss.
    """
    if name == TEXTS:
        texts = encode_texts(examples, *tokenizers)
        return lambda model: {"loss": mean_text_loss(model, texts)}
    return _evaluate_pairs(name, examples, *tokenizers)


def _evaluate_pairs(
    name: str, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer
) -> Callable[[EncoderDecoder], dict[str, float]]:
    encoded = encode_pairs(pairs, source, target)

    def evaluate(model: EncoderDecoder) -> dict[str, float]:
        written = beam_translate(model, [pair.source for pair in pairs], source, target, n_beams=1)
        truths = [pair.target for pair in pairs]
        if BEST_BY[name] == "exact":
            score = sum(exact_match(written, truths)) / len(truths)
        else:
            score = bleu(written, truths).score
        return {BEST_BY[name]: score, "loss": mean_loss(model, encoded)}

    return evaluate


def final_metrics(
    model: EncoderDecoder, name: str, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, n_beams: int = 5
) -> tuple[dict[str, float | int | str], list[str]]:
    """Everything that is reported of a run, on its test pairs, and what it wrote for them.

    BLEU comes with the signature that makes it comparable.
    """
    truths = [pair.target for pair in pairs]
    written = beam_translate(model, [pair.source for pair in pairs], source, target, n_beams)
    loss = mean_loss(model, encode_pairs(pairs, source, target))
    measured: dict[str, float | int | str] = {"pairs": len(pairs), "beams": n_beams, "loss": loss}
    measured["exact"] = sum(exact_match(written, truths)) / len(truths)
    if BEST_BY[name] == "bleu":
        cased, lower, characters = bleu(written, truths), bleu(written, truths, lowercase=True), chrf(written, truths)
        measured |= {"bleu": cased.score, "bleu_signature": cased.signature, "chrf": characters.score}
        measured |= {"bleu_lowercase": lower.score, "bleu_lowercase_signature": lower.signature}
        measured["chrf_signature"] = characters.signature
    return measured | {"parameters": sum(p.numel() for p in model.parameters())}, written


def text_metrics(model: Any, texts: Sequence[str], tokenizer: Tokenizer) -> dict[str, float | int | str]:
    """Everything that is reported of a language model, on its test texts.

    Bits a byte (of UTF-8) compare models with different tokenizers; perplexity, those with the same.
    """
    encoded = encode_texts(texts, tokenizer)
    loss, tokens = mean_text_loss(model, encoded), sum(len(text) - 1 for text in encoded)
    bits = loss * tokens / math.log(2) / sum(len(text.encode()) for text in texts)
    measured: dict[str, float | int | str] = {"texts": len(texts), "tokens": tokens, "loss": loss}
    measured |= {"bits_per_byte": bits, "perplexity": math.exp(loss)}
    return measured | {"parameters": sum(p.numel() for p in model.parameters())}


def describe_metrics(measured: dict[str, float | int | str]) -> str:
    """The metrics as lines, the score by which a run is known last."""
    if "perplexity" in measured:
        counted = f"{measured['texts']:,} texts, {measured['tokens']:,} tokens"
        loss = f"test loss {measured['loss']:.3f} nats a token, {measured['bits_per_byte']:.2f} bits a byte"
        return f"{loss}, over {counted}\nperplexity {measured['perplexity']:.1f}"
    lines = [f"test loss {measured['loss']:.3f} nats a token"]
    exact = f"exactly right {measured['exact']:.1%} of {measured['pairs']}"
    if "bleu" not in measured:
        return "\n".join([*lines, exact])
    for name, key in (("chrF", "chrf"), ("BLEU", "bleu_lowercase"), ("BLEU", "bleu")):
        lines.append(f"{name} {measured[key]:.1f}  {measured[key + '_signature']}")
    return "\n".join(lines)
