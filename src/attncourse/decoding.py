"""Writing a target when nobody tells the model what comes next."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attncourse.data import BOS, EOS, PAD, EncodedPair, Tokenizer, collate
from attncourse.recurrent import Seq2Seq


class Decoded(NamedTuple):
    tokens: Int[Tensor, "batch n_target"]
    weights: Float[Tensor, "batch n_target n_memory"]


@torch.no_grad()
def greedy(
    model: Seq2Seq, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"], max_length: int = 150
) -> Decoded:
    """Take the most probable token at each step, until every sentence has said <eos> or has `max_length` tokens.

    The tokens end with <eos> and are padded behind it; `weights[b, t]` is where the model looked when it wrote
    `tokens[b, t]`. The model is put in evaluation mode and left as it was.
    """
    training = model.training
    model.eval()
    memory = model.encode(source, lengths)
    state, attentional = memory.start, torch.zeros_like(memory.start)
    token = torch.full_like(lengths, BOS)                                                 # (batch,)
    finished = torch.zeros_like(token, dtype=torch.bool)                                  # (batch,)
    steps: list[tuple[Tensor, Tensor]] = []
    while len(steps) < max_length and not finished.all():
        logits, state, attentional, weights = model.decoder(token, state, attentional, memory.states, memory.mask)
        token = logits.argmax(dim=-1).masked_fill(finished, PAD)                          # (batch,)
        finished = finished | (token == EOS)
        steps.append((token, weights))
    model.train(training)
    return Decoded(*(torch.stack(each, dim=1) for each in zip(*steps, strict=True)))


class Translation(NamedTuple):
    """A sentence in the target language, and the alignment of its pieces with the source's."""

    text: str
    source_pieces: list[str]
    target_pieces: list[str]
    weights: Float[Tensor, "n_target n_memory"]


def translate(
    model: Seq2Seq, texts: Sequence[str], source: Tokenizer, target: Tokenizer, batch_size: int = 250
) -> list[Translation]:
    """Translate sentences greedily, in batches, in the order given; <eos> is the last target piece."""
    translations = []
    for start in range(0, len(texts), batch_size):
        chunk = [EncodedPair(source.encode(text), []) for text in texts[start : start + batch_size]]
        batch = collate(chunk)
        tokens, weights = greedy(model, batch.source, batch.lengths)
        for pair, ids, rows in zip(chunk, tokens.tolist(), weights, strict=True):
            ids = ids[: ids.index(EOS) + 1] if EOS in ids else ids
            n_memory = min(len(pair.source), rows.shape[1])
            rows = rows[: len(ids), :n_memory]
            translations.append(Translation(target.decode(ids), source.pieces(pair.source), target.pieces(ids), rows))
    return translations
