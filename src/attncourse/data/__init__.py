"""Pairs of sentences, the tokens that they become, and the batches that a model eats."""

from attncourse.data.batches import Batch, EncodedPair, batches, collate, encode_pairs
from attncourse.data.number_words import Pair, number_words, say
from attncourse.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "EncodedPair",
    "Pair",
    "Tokenizer",
    "batches",
    "collate",
    "encode_pairs",
    "number_words",
    "say",
]
