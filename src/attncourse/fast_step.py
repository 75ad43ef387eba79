"""One token more, sooner: `model.step` without what costs more than one sentence's products do.

A step through the modules is hundreds of small calls: checks at every door, views made again, masks of nothing. Here
parameters are looked up once for a decoding, a token is a row (batch, d_model) without an axis of time, and nothing
within is checked. What is computed, and why, is said where the mechanism is: `Block.forward`,
`MultiHeadAttention.forward`. The state is the model's own, so that either may go on where the other stopped.

The products of a single row take as long as the matrices take to come from memory, and on a CPU long rows come up to
four times as fast as short ones: so matrices that are wider than high are copied, (d_in, d_out), and those that read
the same row are joined.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncourse import positions
from attncourse.attention import KeyValueCache, MultiHeadAttention
from attncourse.layers import GATES, PLAIN, FeedForward, LayerNorm, RMSNorm
from attncourse.transformer import (
    Block,
    Decoder,
    Embedding,
    EncoderDecoder,
    LanguageModel,
    Memory,
    Residual,
    Stack,
    State,
)

# What is known here: not Shaw's terms, not T5's buckets, and nothing that stands where a part of ours was.
KNOWN = {
    *(Decoder, Embedding, Stack, Block, Residual, MultiHeadAttention, FeedForward, LayerNorm, RMSNorm),
    *(positions.LearnedPositions, positions.FixedPositions, positions.RoPE),
    *(nn.Embedding, nn.ModuleList, nn.Linear, nn.Dropout, nn.Identity),
}
# Copying takes as long as three steps gain, and needs memory: not for a few tokens, nor for a decoder of more bytes.
COPY_FROM_STEPS, COPY_TO_BYTES = 8, 2**30

Function = Callable[[Tensor], Tensor]


def fast_step(model: Any, n_steps: int) -> Callable[..., tuple[Tensor, Any, Tensor | None]]:
    """`model.step`, which takes what that takes and gives what that gives, sooner where every part is known.

    It is for one decoding, of at most `n_steps`: parameters that change later may not be seen. A model in training or
    with parts of somebody's own gets its own step back, which also answers when weights or gradients are asked for.
    """
    if type(model) not in (EncoderDecoder, LanguageModel) or "step" in vars(model) or not _is_known(model):
        return model.step
    embedding, stack = model.decoder.embedding, model.decoder.stack
    n_bytes = sum(parameter.nbytes for parameter in model.decoder.parameters())
    copied = n_steps >= COPY_FROM_STEPS and n_bytes <= COPY_TO_BYTES and embedding.tokens.weight.is_cpu
    blocks, norm = [_block(block, copied) for block in stack.blocks], _norm(stack.norm)
    first: Any = stack.blocks[0]                                  # all share one rope
    output, rope = _linear(copied, model.output), first.attention.sublayer.rope

    def step(token: Tensor, state: State, with_weights: bool = False):
        if with_weights or torch.is_grad_enabled():
            return model.step(token, state, with_weights)
        start = state.length
        x = embedding(token.unsqueeze(1), start).squeeze(1)                               # (batch, d_model)
        turn = None if rope is None else rope.at(start, x)
        for block, cache, memory in zip(blocks, state.caches, state.memory or state.caches, strict=True):
            x = block(x, cache, memory, turn)
        return output(norm(x)), state, None                                               # (batch, vocab_size)

    return step


def _is_known(model: EncoderDecoder | LanguageModel) -> bool:
    return all(
        type(part) in KNOWN
        and not (part.training or part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))
        for part in (*model.decoder.modules(), model.output)
    )


def _linear(copied: bool, *layers: Any) -> Function:
    """What these layers say of a row, side by side."""
    weights, biases = [layer.weight.T for layer in layers], [layer.bias for layer in layers]    # views
    if not copied and len(layers) > 1:
        parts = [_linear(copied, layer) for layer in layers]
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)
    wide = len(layers) > 1 or weights[0].shape[1] > weights[0].shape[0]
    weight = torch.cat(weights, dim=1).contiguous() if copied and wide else weights[0]          # (d_in, d_out)
    if biases[0] is None:
        return lambda x: torch.mm(x, weight)
    bias = torch.cat(biases) if len(layers) > 1 else biases[0]
    return lambda x: torch.addmm(bias, x, weight)


def _norm(norm: Any) -> Function:
    if isinstance(norm, nn.Identity):
        return norm
    weight, eps = norm.weight, norm.eps
    if isinstance(norm, RMSNorm):
        return lambda x: torch.rms_norm(x, weight.shape, weight, eps)
    bias = norm.bias
    return lambda x: torch.layer_norm(x, weight.shape, weight, bias, eps)


def _feed_forward(layer: FeedForward, copied: bool) -> Function:
    down = _linear(copied, layer.down)
    if layer.gate is None:
        up, bend = _linear(copied, layer.up), PLAIN[layer.activation]
        return lambda x: down(bend(up(x)))
    both, bend = _linear(copied, layer.gate, layer.up), GATES[layer.activation]

    def run(x: Tensor) -> Tensor:
        gate, up = both(x).chunk(2, dim=-1)
        return down(bend(gate) * up)

    return run


def _look(layer: MultiHeadAttention, copied: bool) -> Callable[..., Tensor]:
    """From queries, and the keys and values of all that they may see, to what the layer says."""
    output, scale, grouped = _linear(copied, layer.output), layer.scale, layer.n_kv_heads < layer.n_heads

    def run(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        found = F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=grouped)
        return output(found.flatten(1))                           # (batch, n_heads, 1, d_head) -> (batch, d_model)

    return run


def _self_attention(layer: MultiHeadAttention, copied: bool) -> Callable[..., Tensor]:
    project, look, window = _linear(copied, layer.query, layer.key, layer.value), _look(layer, copied), layer.window
    n_heads, n_kv_heads, d_head = layer.n_heads, layer.n_kv_heads, layer.d_head

    def run(x: Tensor, cache: KeyValueCache, turn: Function | None) -> Tensor:
        heads = project(x).view(-1, n_heads + 2 * n_kv_heads, 1, d_head)  # (batch, those of q, of k, of v, 1, d_head)
        turned, value = heads.split((n_heads + n_kv_heads, n_kv_heads), dim=1)
        query, key = (turned if turn is None else turn(turned)).split((n_heads, n_kv_heads), dim=1)
        key, value = cache.put(key, value)                        # (batch, n_kv_heads, n_key, d_head)
        if window is not None:
            key, value = key[:, :, -window:], value[:, :, -window:]
        return look(query, key, value)

    return run


def _cross_attention(layer: MultiHeadAttention, copied: bool) -> Callable[[Tensor, Memory], Tensor]:
    project, look, split = _linear(copied, layer.query), _look(layer, copied), (-1, layer.n_heads, 1, layer.d_head)

    def run(x: Tensor, memory: Memory) -> Tensor:
        (key, value), mask = memory
        return look(project(x).view(split), key, value, None if mask is None else mask.unsqueeze(1))

    return run


def _block(block: Any, copied: bool) -> Callable[..., Tensor]:
    attention, norm_1 = _self_attention(block.attention.sublayer, copied), _norm(block.attention.norm)
    feed_forward, norm_3 = _feed_forward(block.ff.sublayer, copied), _norm(block.ff.norm)
    crosses = block.cross is not None
    if crosses:
        cross, norm_2 = _cross_attention(block.cross.sublayer, copied), _norm(block.cross.norm)

    def pre(x: Tensor, cache: KeyValueCache, memory: Memory, turn: Function | None) -> Tensor:
        x = x + attention(norm_1(x), cache, turn)
        if crosses:
            x = x + cross(norm_2(x), memory)
        return x + feed_forward(norm_3(x))

    def post(x: Tensor, cache: KeyValueCache, memory: Memory, turn: Function | None) -> Tensor:
        x = norm_1(x + attention(x, cache, turn))
        if crosses:
            x = norm_2(x + cross(x, memory))
        return norm_3(x + feed_forward(x))

    return pre if block.norm_place == "pre" else post
