"""Reading without padding: what treats every token by itself sees the real ones alone, in one row.

Norms, feed-forward networks, projections and the output compute nothing for padding, which in a batch of captions as
they come is nearly half of the positions; only the attentions still see rows of equal length. FlashAttention's
`unpad_input` and `pad_input` do this between the layers (Dao 2023); here the attentions themselves know nothing of it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attncourse._checks import check_boolean, check_shape, check_tokens
from attncourse.transformer import (
    EncoderDecoder,
    LanguageModel,
    Memory,
    Stack,
    State,
    check_answers,
    cross_entropy,
    source_mask,
)


class Padding:
    """Where the padding of a batch is, to take it out, and to put it back.

    >>> padding = Padding(torch.tensor([[True, True, True], [True, False, False]]))
    >>> padding.unpad(torch.arange(6.0).view(2, 3, 1)).squeeze(-1)
    tensor([0., 1., 2., 3.])

    `index` is where the mask is True, counted through its rows, for whoever knows it already: it is trusted.
    Raises ValueError for tensors of another shape than the mask's, TypeError for a mask that is not boolean.
    """

    def __init__(self, mask: Bool[Tensor, "batch n"], index: Int[Tensor, " n_tokens"] | None = None):
        check_shape("mask", mask, "batch n")
        check_boolean("mask", mask, "a token is real")
        if index is None:
            index = mask.flatten().nonzero().squeeze(-1)          # on a GPU this waits: it alone knows how many
        self.shape, self.index = mask.shape, index                                    # (n_tokens,)
        self.none = len(index) == mask.numel()                    # then there is nothing to leave out, or to copy

    def unpad(self, x: Shaped[Tensor, "batch n ..."]) -> Shaped[Tensor, "n_tokens ..."]:
        """The real tokens alone."""
        if x.shape[:2] != self.shape:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected {tuple(self.shape)} in front, as the mask has")
        x = x.flatten(0, 1)                                                           # (batch · n, ...)
        return x if self.none else x.index_select(0, self.index)                      # (n_tokens, ...)

    def pad(self, x: Shaped[Tensor, "n_tokens ..."]) -> Shaped[Tensor, "batch n ..."]:
        """Texts of equal length again, with zeros where the padding is."""
        if x.shape[0] != self.index.shape[0]:
            raise ValueError(f"x: got {x.shape[0]} tokens, expected {self.index.shape[0]}, as the mask has")
        if not self.none:
            x = x.new_zeros(self.shape.numel(), *x.shape[1:]).index_copy(0, self.index, x)
        return x.unflatten(0, self.shape)                                             # (batch, n, ...)


@contextmanager
def unpadded(stack: Stack, padding: Padding, memory: Padding | None = None) -> Iterator[None]:
    """As long as this lasts, `stack` takes and gives (n_tokens, d_model), and its memory has (1, n_tokens, d_model).

    Masks remain those of the padded batch; `memory` is where its memory's padding was. Forward hooks do it. To an
    attention the tokens pass for a batch of one text. Queries, keys and values are padded as they leave their
    projections, and what the heads have found is unpadded as it enters the output's.
    """
    with ExitStack() as hung:
        for block in stack.blocks:
            hung.enter_context(_unpadded_block(block, padding, memory))
        if stack.bias is not None:                                # of distances within a row of the batch
            whole = (padding.shape[1], padding.shape[1], 0)
            hung.callback(stack.bias.register_forward_pre_hook(lambda *_: whole).remove)
        # What is computed again on the way back is computed after all this is over.
        stack.within = partial(_unpadded_block, padding=padding, memory=memory)
        hung.callback(delattr, stack, "within")
        yield


@contextmanager
def _unpadded_block(block: Any, padding: Padding, memory: Padding | None) -> Iterator[None]:
    handles = []
    for residual, others in ((block.attention, padding), (block.cross, memory)):
        if residual is not None:
            layer = residual.sublayer
            handles.append(layer.register_forward_pre_hook(lambda _, args: (args[0].unsqueeze(0), *args[1:])))
            handles.append(layer.output.register_forward_pre_hook(lambda _, args: padding.unpad(*args)))
            for projection, its in ((layer.query, padding), (layer.key, others), (layer.value, others)):
                handles.append(projection.register_forward_hook(lambda _, args, y, its=its: its.pad(y.squeeze(0))))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def unpadded_start(model: EncoderDecoder, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]) -> State:
    """`model.start`, sooner."""
    mask = source_mask(source, lengths, least=1)                                          # (batch, 1, n_source)
    read = Padding(mask.squeeze(1))
    if read.none:                                                 # then no step need look at a mask
        memory = model.decoder.stack.project(Memory(model.encoder(source)))
    else:
        with unpadded(model.encoder.stack, read), unpadded(model.decoder.stack, read, read):
            memory = model.decoder.stack.project(_read(model, source, mask, read))
    return State(model.config.decoder_layers, memory, model.config.window)


def unpadded_loss(
    model: EncoderDecoder | LanguageModel, compiled: bool = False, **options
) -> Callable[..., Float[Tensor, ""]]:
    """`model.loss`, which takes what that takes and gives what that gives, sooner; compiled, too, if asked for.

    Keep what comes back: a second call compiles again. `options` are torch.compile's. (torch.compile(model.loss) works,
    but a graph cannot find out how many tokens are real, so it computes the padding.) To find the real tokens, a GPU
    has to be waited for; it need not where `source_index` and `target_index` (a language model's `index`) say where
    they are: see `Padding`.
    """
    prepared, compute = (_translating, _translate) if isinstance(model, EncoderDecoder) else (_writing, _write)
    return partial(prepared, model, torch.compile(compute, **options) if compiled else compute)


def _translating(
    model, compute, source, lengths, target_in, target_out, label_smoothing=0.0, pad=0, source_index=None,
    target_index=None,
):  # fmt: skip
    mask = source_mask(source, lengths, least=1)                                          # (batch, 1, n_source)
    check_tokens("target_in", target_in, model.config.decoder_vocab_size, batch=source.shape[0])
    read = Padding(mask.squeeze(1), source_index)
    written = _padding_after("target_out", target_out, target_in, model.config.decoder_vocab_size, pad, target_index)
    with unpadded(model.encoder.stack, read), unpadded(model.decoder.stack, written, read):
        return compute(model, source, mask, read, target_in, target_out, written, label_smoothing, pad)


def _translate(model, source, mask, read, target_in, target_out, written, label_smoothing, pad):
    memory = _read(model, source, mask, read)
    x = written.unpad(model.decoder.embedding(target_in))                                 # (n_tokens, d_model)
    x = model.decoder.stack(x, memory=memory)                                             # (n_tokens, d_model)
    return cross_entropy(model.output(x), written.unpad(target_out), label_smoothing, pad)


def _read(model: EncoderDecoder, source: Tensor, mask: Tensor, padding: Padding) -> Memory:
    x = padding.unpad(model.encoder.embedding(source))                                    # (n_tokens, d_model)
    return Memory(model.encoder.stack(x, mask).unsqueeze(0), mask)                        # (1, n_tokens, d_model)


def _writing(model, compute, tokens_in, tokens_out, label_smoothing=0.0, pad=0, mask=None, index=None):
    check_tokens("tokens_in", tokens_in, model.config.decoder_vocab_size)
    padding = _padding_after("tokens_out", tokens_out, tokens_in, model.config.decoder_vocab_size, pad, index)
    with unpadded(model.decoder.stack, padding):
        return compute(model, tokens_in, tokens_out, padding, mask, label_smoothing, pad)


def _write(model, tokens_in, tokens_out, padding, mask, label_smoothing, pad):
    x = model.decoder.stack(padding.unpad(model.decoder.embedding(tokens_in)), mask)      # (n_tokens, d_model)
    return cross_entropy(model.output(x), padding.unpad(tokens_out), label_smoothing, pad)


def _padding_after(
    name: str, answers: Tensor, tokens: Tensor, vocab_size: int, pad: int, index: Tensor | None
) -> Padding:
    """Where nothing follows any more: padding between real answers is read by those after it."""
    check_answers(name, answers, tokens, vocab_size, pad)
    padding = Padding((answers != pad).flip(1).cumsum(1).flip(1) > 0, index)
    if not len(padding.index):                                    # on a GPU, where `check_answers` may not look
        raise ValueError(f"{name}: got padding alone, expected at least one real token")
    return padding
