"""Our numbers put into torch's own layers, to see whether the two compute the same: a parity test."""

from collections.abc import Iterator

import torch
from torch import nn

# What torch calls the parts of its blocks, and what a block that is written out in a lesson calls them.
TORCH_NAMES = {
    "self_attn": "attention", "multihead_attn": "cross", "linear1": "feed_forward.up", "linear2": "feed_forward.down",
    "norm1": "norm_1", "norm2": "norm_2", "norm3": "norm_3",
}  # fmt: skip
TORCH_STACKS = {"encoder": ("encoder_blocks", "encoder_norm"), "decoder": ("decoder_blocks", "decoder_norm")}


def randomise(module: nn.Module, std: float = 0.3) -> nn.Module:
    """All parameters drawn anew, and the module in evaluation mode: norms that are still 1 and 0 would hide a swap."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module.eval()


@torch.no_grad()
def copy_into_torch(ours: nn.Module, theirs: nn.Module) -> nn.Module:
    """Put our parameters into torch's module of the same sizes, and return it in evaluation mode.

    `theirs` is an `nn.TransformerEncoderLayer` or `nn.TransformerDecoderLayer`, whose parts a block of ours calls
    attention, cross, feed_forward (with up and down), norm_1, norm_2 and norm_3; or an `nn.Transformer`, whose stacks
    ours calls encoder_blocks, encoder_norm, decoder_blocks and decoder_norm. Our attentions are `MultiHeadAttention`.
    Raises AttributeError for a part that ours lacks.

    >>> from attncourse.attention import MultiHeadAttention
    >>> ours = MultiHeadAttention(8, n_heads=2)
    >>> theirs = copy_into_torch(ours, nn.MultiheadAttention(8, 2, batch_first=True))
    >>> x = torch.randn(1, 5, 8)
    >>> torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-5)
    True
    """
    for mine, other in _leaves(ours, theirs):
        if isinstance(other, nn.MultiheadAttention):              # it keeps W_Q, W_K, W_V in one matrix
            inputs = mine.query, mine.key, mine.value
            other.in_proj_weight.copy_(torch.cat([linear.weight for linear in inputs]))
            other.in_proj_bias.copy_(torch.cat([linear.bias for linear in inputs]))
            mine, other = mine.output, other.out_proj
        other.weight.copy_(mine.weight)
        other.bias.copy_(mine.bias)
    return theirs.eval()


def _leaves(ours, theirs) -> Iterator[tuple]:
    """Pairs of (ours, theirs), each a layer with a weight and a bias, or an attention."""
    if isinstance(theirs, nn.Transformer):
        for stack, (blocks, norm) in TORCH_STACKS.items():
            other = getattr(theirs, stack)
            for block, layer in zip(getattr(ours, blocks), other.layers, strict=True):
                yield from _leaves(block, layer)
            yield getattr(ours, norm), other.norm
    elif isinstance(theirs, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        for theirs_name, ours_name in TORCH_NAMES.items():
            if hasattr(theirs, theirs_name):
                yield ours.get_submodule(ours_name), getattr(theirs, theirs_name)
    else:
        yield ours, theirs
