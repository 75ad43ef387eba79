"""From pairs of sentences to padded tensors."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attncourse.data.number_words import Pair
from attncourse.data.tokenizer import BOS, EOS, PAD, Tokenizer


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]


class Batch(NamedTuple):
    """`target_out` is `target_in` one step later: what the decoder must say when it has read so far."""

    source: Int[Tensor, "batch n_source"]
    lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch n_target"]
    target_out: Int[Tensor, "batch n_target"]


def encode_pairs(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> list[EncodedPair]:
    """Token ids of both sides, computed once so that every epoch need not."""
    return [EncodedPair(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]


def collate(pairs: Sequence[EncodedPair]) -> Batch:
    """Pad a few pairs to one length: <bos> t1 … tn goes in, t1 … tn <eos> must come out.

    Raises ValueError for an empty list or an empty source, TypeError for pairs of texts.
    """
    if pairs and not isinstance(pairs[0], EncodedPair):
        raise TypeError(f"pairs: got {type(pairs[0]).__name__}, expected EncodedPair, as encode_pairs makes them")
    if not pairs or not all(pair.source for pair in pairs):
        got = "an empty source" if pairs else "none"
        raise ValueError(f"pairs: got {got}, expected one or more, with at least one token in each source")

    def pad(sequences: list[list[int]]) -> Tensor:
        return pad_sequence([torch.tensor(s) for s in sequences], batch_first=True, padding_value=PAD)

    return Batch(
        source=pad([pair.source for pair in pairs]),                              # (batch, n_source)
        lengths=torch.tensor([len(pair.source) for pair in pairs]),               # (batch,)
        target_in=pad([[BOS, *pair.target] for pair in pairs]),                   # (batch, n_target)
        target_out=pad([[*pair.target, EOS] for pair in pairs]),                  # (batch, n_target)
    )


def batches(pairs: Sequence[EncodedPair], batch_size: int, seed: int) -> Iterator[Batch]:
    """One epoch in an order drawn from `seed`, each batch of pairs of like length, so that little of it is padding."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [pairs[i] for i in torch.randperm(len(pairs), generator=generator)]
    # Sorting whole epochs would make the same batches every time; sorting a few batches at a time does not.
    pool = 20 * batch_size
    for start in range(0, len(shuffled), pool):
        nearby = sorted(shuffled[start : start + pool], key=lambda pair: len(pair.target))
        groups = [nearby[i : i + batch_size] for i in range(0, len(nearby), batch_size)]
        for i in torch.randperm(len(groups), generator=generator):
            yield collate(groups[i])
