"""Texts and pairs of sentences, the tokens that they become, and the batches that a model eats."""

from attncourse.data.batches import (
    Batch,
    EncodedPair,
    TextBatch,
    batches,
    collate,
    encode_pairs,
    encode_texts,
    pad_batch,
    text_batches,
)
from attncourse.data.docstrings import Corpus, docstrings
from attncourse.data.number_words import Pair, number_words, say
from attncourse.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "Corpus",
    "EncodedPair",
    "Pair",
    "TextBatch",
    "Tokenizer",
    "batches",
    "collate",
    "docstrings",
    "encode_pairs",
    "encode_texts",
    "number_words",
    "pad_batch",
    "say",
    "text_batches",
]
