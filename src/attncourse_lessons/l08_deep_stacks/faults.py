"""Blocks with one fault each, made from a right one: what a learner's structural tests of exercise 8 are to find."""

import torch
from torch import Tensor, nn


def one_fault_each(right: type[nn.Module]) -> list[type[nn.Module]]:
    """Three subclasses of a pre-norm block with `norm_1`, `norm_2` and `forward(x, mask)`: A, B and C.

    A has a norm on the residual stream, B ignores its mask, C uses its first norm in place of the second.
    """

    def norm_on_the_stream(self, x: Tensor, mask: Tensor) -> Tensor:
        return right.forward(self, self.norm_1(x), mask)

    def no_mask(self, x: Tensor, mask: Tensor) -> Tensor:
        return right.forward(self, x, torch.ones_like(mask))

    def one_norm(self, x: Tensor, mask: Tensor) -> Tensor:
        own, self.norm_2 = self.norm_2, self.norm_1
        output = right.forward(self, x, mask)
        self.norm_2 = own
        return output

    wrong = {"BlockA": norm_on_the_stream, "BlockB": no_mask, "BlockC": one_norm}
    return [type(name, (right,), {"forward": forward}) for name, forward in wrong.items()]
