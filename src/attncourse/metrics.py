"""How good a model is: its loss, what it gets exactly right, and how both change with the source's length."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attncourse.data.tokenizer import PAD


def token_loss(
    logits: Float[Tensor, "batch n_target vocabulary"], target: Int[Tensor, "batch n_target"], pad: int = PAD
) -> Float[Tensor, ""]:
    """Cross entropy in nats, averaged over the real target tokens: padding counts for nothing.

    Raises ValueError for a target of another shape than the logits have in front.
    """
    if logits.shape[:-1] != target.shape:
        expected = f"{tuple(logits.shape[:-1])}, as the logits have"
        raise ValueError(f"target: got shape {tuple(target.shape)}, expected {expected}")
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad)


def exact_match(answers: Sequence[str], truths: Sequence[str]) -> list[bool]:
    """Which answers are right to the last character. Raises ValueError for lists of different length."""
    if len(answers) != len(truths):
        raise ValueError(f"answers: got {len(answers)} for {len(truths)} truths, expected one for each")
    return [answer == truth for answer, truth in zip(answers, truths, strict=True)]


def accuracy_by_length(
    right: Sequence[bool], lengths: Sequence[int], edges: Sequence[int]
) -> dict[tuple[int, int], float]:
    """The share that is right, bucket by bucket: {(shortest, longest): accuracy}.

    `edges` are the longest lengths of the buckets, ascending: (8, 16) makes 1–8 and 9–16. Empty buckets are left out; a
    length beyond the last edge raises ValueError.
    """
    if max(lengths) > edges[-1]:
        raise ValueError(f"edges: got {list(edges)}, expected the last to reach the longest length, {max(lengths)}")
    buckets = {}
    for shortest, longest in zip([1, *(edge + 1 for edge in edges)], edges, strict=False):
        inside = [ok for ok, length in zip(right, lengths, strict=True) if shortest <= length <= longest]
        if inside:
            buckets[shortest, longest] = sum(inside) / len(inside)
    return buckets
