"""What is trained on: pairs, texts, or anything else that is cut into batches and has a loss."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from attncourse.counting import count_training_flops
from attncourse.data import EncodedPair, collate, draw_batches
from attncourse.data.batches import cut, rectangle
from attncourse.metrics import token_loss
from attncourse.transformer import EncoderDecoder, LanguageModel
from attncourse.unpadding import unpadded_loss

E = TypeVar("E")
Loss = Callable[..., Tensor]


class Examples(Generic[E]):
    """All that `train` asks of what it trains on. For data of your own, derive from this: two methods are enough.

    `n_targets(example)` is how many numbers of it the loss of a batch is the mean of: its weight beside others.
    `collate(examples)` makes a batch, a NamedTuple of tensors, of a few examples.

    >>> class Labelled(Examples):
    ...     def n_targets(self, example):
    ...         return 1
    ...     def collate(self, examples):
    ...         images, labels = zip(*examples)
    ...         return LabelledBatch(torch.stack(images), torch.tensor(labels))
    """

    called = "examples"
    workers = 2
    """For a GPU, how many processes make batches ahead; 0 where that takes longer than to make one."""

    def __init__(self, examples: Sequence[E]):
        self.examples = examples
        if not len(examples):
            raise ValueError(f"{self.called}: got none, expected at least one")

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, i: int) -> E:
        return self.examples[i]

    def n_targets(self, example: E) -> int:
        raise NotImplementedError

    def collate(self, examples: Sequence[E]) -> Any:
        raise NotImplementedError

    def size(self, example: E) -> int:
        """How many tokens it takes of a batch's `batch_tokens`."""
        return self.n_targets(example)

    def n_tokens(self, example: E) -> int:
        """How many tokens the model reads of it."""
        return self.n_targets(example)

    def epoch_batches(self, batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
        """The numbers of each batch's examples, each example once: of like size together, in an order that is drawn."""
        return draw_batches([self.size(example) for example in self.examples], batch_tokens, seed, epoch)

    def loss(self, model: Any, compiled: bool) -> Loss:
        """What computes a batch's mean loss: it takes the batch's tensors, and `label_smoothing` by name."""
        if not hasattr(model, "loss"):
            raise TypeError(f"model: got {type(model).__name__}, expected one with a method `loss`")
        return torch.compile(model.loss, dynamic=True) if compiled else model.loss

    def flops(self, model: nn.Module) -> Callable[[E], int] | None:
        """What counts the FLOPs of a step of training on one example; None where nobody knows."""
        return None

    def check(self, model: nn.Module) -> None:
        """Raises ValueError for an example that the model cannot take."""


class PairBatch(NamedTuple):
    """A `Batch`, and where its real tokens are, counted through the rows: a GPU would have to be asked."""

    source: Int[Tensor, "batch n_source"]
    lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch n_target"]
    target_out: Int[Tensor, "batch n_target"]
    source_index: Int[Tensor, " n_source_tokens"]
    target_index: Int[Tensor, " n_target_tokens"]


class Pairs(Examples[EncodedPair]):
    """Pairs of token ids, for a model that translates.

    It is an `EncoderDecoder`, has a `loss` of its own, or gives logits when called with (source, lengths, target_in).
    """

    called = "pairs"
    workers = 0

    def n_targets(self, example: EncodedPair) -> int:
        return len(example.target) + 1                            # <eos>

    def size(self, example: EncodedPair) -> int:
        return max(len(example.source), len(example.target) + 1)

    def n_tokens(self, example: EncodedPair) -> int:
        return len(example.source) + len(example.target) + 1

    def collate(self, examples: Sequence[EncodedPair]) -> PairBatch:
        batch = collate(examples)
        n_targets = [self.n_targets(pair) for pair in examples]
        return PairBatch(*batch, _index([len(pair.source) for pair in examples]), _index(n_targets))

    def loss(self, model: Any, compiled: bool) -> Loss:
        call: Loss
        if type(model) is EncoderDecoder:                         # a subclass may have another loss, or forward
            call = unpadded_loss(model, compiled, dynamic=True)
            return lambda *batch, label_smoothing: call(
                *batch[:4], label_smoothing, source_index=batch[4], target_index=batch[5]
            )
        if hasattr(model, "loss"):
            call = super().loss(model, compiled)
            return lambda *batch, label_smoothing: call(*batch[:4], label_smoothing=label_smoothing)
        forward: Any = torch.compile(model, dynamic=True) if compiled else model
        return lambda source, lengths, target_in, target_out, *_, label_smoothing: token_loss(
            forward(source, lengths, target_in), target_out, label_smoothing=label_smoothing
        )

    def flops(self, model: nn.Module) -> Callable[[EncodedPair], int] | None:
        if type(model) is not EncoderDecoder:
            return None
        count = cache(lambda n, n_target: count_training_flops(model.config, EncoderDecoder, 1, n, n_target))
        return lambda pair: count(len(pair.source), len(pair.target) + 1)

    def check(self, model: nn.Module) -> None:
        most = getattr(model, "max_positions", None)
        for i, pair in enumerate(self.examples):
            if not pair.source:
                raise ValueError(f"pairs[{i}]: got an empty source, expected at least one token")
            if most is not None and (n := self.size(pair)) > most:
                raise ValueError(f"pairs[{i}]: got {n} tokens, expected at most {most}, the model's positions")


class IndexedTexts(NamedTuple):
    """A `TextBatch`, and where its real tokens are, counted through the rows."""

    tokens_in: Int[Tensor, "batch n"]
    tokens_out: Int[Tensor, "batch n"]
    tokens_index: Int[Tensor, " n_tokens"]


class Texts(Examples[Sequence[int]]):
    """Token ids of texts, <bos> in front, as `encode_texts` makes them: for a language model.

    It is a `LanguageModel`, has a `loss` of its own, or gives logits when called with tokens. Texts of which more than
    `max_length` tokens would be read are cut into pieces, as `text_batches` does.
    """

    called = "texts"
    workers = 0

    def __init__(self, texts: Sequence[Sequence[int]], max_length: int | None = None):
        for i, text in enumerate(texts):
            if len(text) < 2:
                raise ValueError(f"texts[{i}]: got {len(text)} tokens, expected <bos> and at least one token more")
        super().__init__(texts if max_length is None else cut(texts, max_length))

    def n_targets(self, example: Sequence[int]) -> int:
        return len(example) - 1

    def collate(self, examples: Sequence[Sequence[int]]) -> IndexedTexts:
        tokens = rectangle(examples)                                                  # (batch, n + 1)
        return IndexedTexts(tokens[:, :-1], tokens[:, 1:], _index([self.n_targets(text) for text in examples]))

    def loss(self, model: Any, compiled: bool) -> Loss:
        call: Loss
        if type(model) is LanguageModel:
            call = unpadded_loss(model, compiled, dynamic=True)
            return lambda tokens_in, tokens_out, index, label_smoothing: call(
                tokens_in, tokens_out, label_smoothing, index=index
            )
        if hasattr(model, "loss"):
            call = super().loss(model, compiled)
            return lambda *batch, label_smoothing: call(*batch[:2], label_smoothing=label_smoothing)
        forward: Any = torch.compile(model, dynamic=True) if compiled else model
        return lambda tokens_in, tokens_out, *_, label_smoothing: token_loss(
            forward(tokens_in), tokens_out, label_smoothing=label_smoothing
        )

    def flops(self, model: nn.Module) -> Callable[[Sequence[int]], int] | None:
        if type(model) is not LanguageModel:
            return None
        count = cache(lambda n: count_training_flops(model.config, LanguageModel, 1, n))
        return lambda text: count(len(text) - 1)

    def check(self, model: nn.Module) -> None:
        most = getattr(model, "max_positions", None)
        for i, text in enumerate(self.examples):
            if most is not None and len(text) - 1 > most:
                raise ValueError(f"texts[{i}]: got {len(text) - 1} tokens, expected at most {most}: give a max_length")


def as_examples(data: Any, model: nn.Module) -> Examples:
    """Pairs and lists of token ids as what they are, and `Examples` as they come.

    Raises ValueError for none, or for some that the model cannot take; TypeError for what is neither.
    """
    if not isinstance(data, Examples):
        if not len(data):
            raise ValueError("data: got none, expected at least one pair or text")
        if isinstance(data[0], EncodedPair):
            data = Pairs(data)
        elif isinstance(data[0], (list, tuple)) and all(isinstance(token, int) for token in data[0]):
            data = Texts(data, getattr(model, "max_positions", None))
        else:
            expected = "EncodedPair (from encode_pairs), a list of token ids (from encode_texts), or Examples"
            raise TypeError(f"data: got {type(data[0]).__name__}, expected {expected}")
    data.check(model)
    return data


def _index(lengths: Sequence[int]) -> Int[Tensor, " n_tokens"]:
    """Where the real tokens are in rows of these lengths, padded to the longest."""
    real = np.arange(max(lengths)) < np.array(lengths)[:, None]                       # (batch, n)
    return torch.from_numpy(np.flatnonzero(real))                                     # (n_tokens,)
