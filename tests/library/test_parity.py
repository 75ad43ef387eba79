"""Our numbers in torch's own modules: the same output, and a swap that is noticed."""

import pytest
import torch
from torch import nn

from attncourse.attention import MultiHeadAttention
from attncourse.layers import FeedForward
from attncourse.parity import copy_into_torch, randomise


class EncoderBlock(nn.Module):
    def __init__(self, swapped=False):
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(8, 2), FeedForward(8, 12)
        self.norm_1, self.norm_2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.swapped = swapped

    def forward(self, x):
        first, second = (self.norm_2, self.norm_1) if self.swapped else (self.norm_1, self.norm_2)
        x = x + self.attention(first(x))
        return x + self.feed_forward(second(x))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_block_equals_torchs_with_its_numbers_unless_its_norms_are_swapped(swapped):
    ours = randomise(EncoderBlock(swapped))
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True)
    assert copy_into_torch(ours, theirs) is theirs and not theirs.training
    x = torch.randn(3, 5, 8)
    assert torch.allclose(ours(x), theirs(x), atol=1e-4) is not swapped


def test_new_norms_would_hide_the_swap():
    ours = EncoderBlock(swapped=True).eval()
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True)
    x = torch.randn(3, 5, 8)
    assert torch.allclose(ours(x), copy_into_torch(ours, theirs)(x), atol=1e-4)


def test_a_part_that_ours_lacks_is_an_error():
    ours = EncoderBlock()
    del ours.norm_2
    with pytest.raises(AttributeError, match="norm_2"):
        copy_into_torch(ours, nn.TransformerEncoderLayer(8, 2, 12))
