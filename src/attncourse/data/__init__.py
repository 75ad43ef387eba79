"""Texts and pairs of sentences, the tokens that they become, and the batches that a model eats."""

from attncourse.data.batches import (
    Batch,
    EncodedPair,
    TextBatch,
    batch_by_tokens,
    batches,
    collate,
    draw_batches,
    encode_pairs,
    encode_texts,
    epoch_batches,
    loader,
    move,
    pad_batch,
    text_batches,
)
from attncourse.data.docstrings import Corpus, docstrings
from attncourse.data.multi30k import Split3, multi30k
from attncourse.data.number_words import Part, aligned_pieces, number_words, say, say_parts
from attncourse.data.parallel import BadData, Pair, read_parallel, read_texts
from attncourse.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "BadData",
    "Batch",
    "Corpus",
    "EncodedPair",
    "Pair",
    "Part",
    "Split3",
    "TextBatch",
    "Tokenizer",
    "aligned_pieces",
    "batch_by_tokens",
    "batches",
    "collate",
    "docstrings",
    "draw_batches",
    "encode_pairs",
    "encode_texts",
    "epoch_batches",
    "loader",
    "move",
    "multi30k",
    "number_words",
    "pad_batch",
    "read_parallel",
    "read_texts",
    "say",
    "say_parts",
    "text_batches",
]
