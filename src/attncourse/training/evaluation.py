"""How good a translation model is while it trains, and at the end."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from attncourse.data import EncodedPair, Pair, Tokenizer, collate, encode_pairs
from attncourse.decoding import beam_translate
from attncourse.metrics import bleu, chrf, exact_match, token_loss
from attncourse.transformer import EncoderDecoder

# The score that decides which weights are kept, by the name of the data.
BEST_BY = {"number-words": "exact", "multi30k": "bleu", "text": "bleu"}


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


def make_evaluate(
    name: str, pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer
) -> Callable[[EncoderDecoder], dict[str, float]]:
    """What `train` asks now and then: the loss on these pairs, and BLEU (captions) or the share exactly right."""
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


def describe_metrics(measured: dict[str, float | int | str]) -> str:
    """The metrics as lines, the score by which a run is known last."""
    lines = [f"test loss {measured['loss']:.3f} nats a token"]
    exact = f"exactly right {measured['exact']:.1%} of {measured['pairs']}"
    if "bleu" not in measured:
        return "\n".join([*lines, exact])
    for name, key in (("chrF", "chrf"), ("BLEU", "bleu_lowercase"), ("BLEU", "bleu")):
        lines.append(f"{name} {measured[key]:.1f}  {measured[key + '_signature']}")
    return "\n".join(lines)
