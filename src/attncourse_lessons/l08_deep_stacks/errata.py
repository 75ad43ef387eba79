"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from attncourse.layers import layer_norm
from attncourse_lessons.slides.erratum import (
    CS11711,
    CSE576,
    CSE5321,
    EPS,
    PARAMETRIC,
    D,
    Erratum,
    Finding,
    drawn,
    near,
    over_features,
)
from attncourse_lessons.slides.model import logits_by_depth, small_model


def _against_torch(norm) -> Finding:
    x = drawn(5, D, scale=2.0, shift=1.0)                                     # (n, d)
    return near(norm(x), F.layer_norm(x, (D,)), "against torch: worst error")


def _sum_for_mean(x: Tensor) -> Tensor:
    mean = x.sum(dim=-1, keepdim=True)                                        # (n, 1)
    return (x - mean) / torch.sqrt(over_features((x - mean).square()) + EPS)


SUM_FOR_MEAN = Erratum(
    name="a sum for the mean",
    decks=(CSE576, PARAMETRIC),
    place="Layer normalization",
    claim="Let μ = Σ x_j; this is the mean",
    correction="μ = (1/d) Σ x_j",
    question="Does it do what torch's LayerNorm does?",
    printed=_sum_for_mean,
    corrected=layer_norm,
    check=_against_torch,
    by="trusted",
)


def _product_for_difference(x: Tensor) -> Tensor:
    mean = over_features(x)                                                  # (n, 1)
    return (x - mean) / torch.sqrt(over_features((x * mean).square()) + EPS)


PRODUCT_FOR_DIFFERENCE = Erratum(
    name="a product for the difference",
    decks=(CSE576,),
    place="Layer normalization",
    claim="σ = √((1/d) Σ (x_j μ)²)",
    correction="(x_j − μ)²",
    question="Does it do what torch's LayerNorm does?",
    printed=_product_for_difference,
    corrected=layer_norm,
    check=_against_torch,
    by="trusted",
    slip=True,
)


def _at_two_sizes(norm) -> Finding:
    x = drawn(5, D)                                                           # (n, d)
    sizes = [norm(size * x).std(dim=-1, correction=0).mean().item() for size in (1.0, 0.1)]
    said = f"vectors of size 1 leave with size {sizes[0]:.2f}, those of size 0.1 with {sizes[1]:.2f}"
    return Finding(all(abs(size - 1) < 0.01 for size in sizes), said)


def _root_of_deviation(x: Tensor) -> Tensor:
    deviation = over_features((x - over_features(x)).square()).sqrt()                # (n, 1)
    return (x - over_features(x)) / (deviation.sqrt() + EPS)


ROOT_TOO_MANY = Erratum(
    name="a root too many",
    decks=(CSE576, PARAMETRIC),
    place="Layer normalization",
    claim="(x − μ)/(√σ + ε), where σ is already the standard deviation",
    correction="(x − μ)/√(σ² + ε)",
    question="Do vectors of size 1 and of size 0.1 both leave with size 1?",
    printed=_root_of_deviation,
    corrected=layer_norm,
    check=_at_two_sizes,
)


def _centred(norm) -> Finding:
    y = norm(drawn(5, D, shift=1.0))                                          # (n, d)
    return Finding(y.mean(dim=-1).abs().max().item() < 1e-4, f"the mean is {y.mean().item():.2f}".replace("-0.", "0."))


UNIT_MEAN = Erratum(
    name="unit mean",
    decks=(CSE576, PARAMETRIC),
    place="Layer normalization",
    claim="normalizing to unit mean and standard deviation",
    correction="zero mean, and standard deviation one",
    question="Is the mean of a normalised vector zero?",
    printed=lambda x: 1 + layer_norm(x),
    corrected=layer_norm,
    check=_centred,
)


def _zeroed(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def _zeroed_block(block) -> Finding:
    x = drawn(3, 5, D, scale=2.0, shift=1.0)                                  # (batch, n, d)
    return near(block(x, _zeroed, _zeroed), x, "with zeroed sublayers x moves by")


def _from_the_normalised(x: Tensor, attention, feed_forward) -> Tensor:
    """As the equations have it: x³ = x² + x¹, where x¹ = norm(x)."""
    x_1 = layer_norm(x)
    x_3 = attention(x_1) + x_1
    return feed_forward(layer_norm(x_3)) + x_3


def _pre_norm(x: Tensor, attention, feed_forward) -> Tensor:
    x = x + attention(layer_norm(x))
    return x + feed_forward(layer_norm(x))


RESIDUAL_EQUATION = Erratum(
    name="x¹ for x in the sum",
    decks=(CSE5321,),
    place="Pre vs Post norm, right column",
    claim="x³ = x² + x¹, where x¹ = LayerNorm(x)",
    correction="x³ = x² + x",
    question="Zeroed sublayers: does x come back?",
    printed=_from_the_normalised,
    corrected=_pre_norm,
    check=_zeroed_block,
    slip=True,
)


def _both_from_the_normalised(x: Tensor, attention, feed_forward) -> Tensor:
    x = layer_norm(x)
    x = x + attention(x)
    x = layer_norm(x)
    return x + feed_forward(x)


RESIDUAL_CODE = Erratum(
    name="the residual from the normalised x",
    decks=(CS11711,),
    place="In code, class Block",
    claim="x = self.ln1(x) … x = x + x2, and again with ln2",
    correction="give the normalised x a name of its own, and add to the x that came in, in both sublayers",
    question="Zeroed sublayers: does x come back?",
    printed=_both_from_the_normalised,
    corrected=_pre_norm,
    check=_zeroed_block,
)


LAYERS = 3


def _blocks(x: Tensor) -> list:
    """Blocks that can be told apart: each adds one vector of its own."""
    added = drawn(LAYERS, x.shape[-1], seed=1)
    return [lambda x, vector=vector: x + vector for vector in added]


def _states_by_label(run) -> Finding:
    x = drawn(5, D)
    try:
        labels = sorted(run({0: x}, _blocks(x)))
    except KeyError as missing:
        return Finding(False, f"there is no x_{missing} to go into block {missing}")
    return Finding(labels == list(range(LAYERS + 1)), f"after {LAYERS} blocks there are states {labels}")


def _same_label(states: dict, blocks: list) -> dict:
    for l, block in enumerate(blocks):
        states[l] = block(states[l])
    return states


def _next_label(states: dict, blocks: list) -> dict:
    for l, block in enumerate(blocks):
        states[l + 1] = block(states[l])
    return states


SAME_LABEL = Erratum(
    name="x_l for x_{l+1}",
    decks=(CSE576,),
    place="Pre vs Post norm, left column",
    claim="x_l = LayerNorm(x_l⁵), the last line of block l",
    correction="x_{l+1}: what goes into the next block",
    question="Is there a state after every block?",
    printed=_same_label,
    corrected=_next_label,
    check=_states_by_label,
    slip=True,
)


def _final_of_the_last(final) -> Finding:
    x = drawn(5, D)
    states = _next_label({0: x}, _blocks(x))
    return near(final(states), layer_norm(states[LAYERS]), "from the norm of the last state it is off by")


FINAL_OF_ANY = Erratum(
    name="the final norm of x_{l+1}",
    decks=(CSE5321,),
    place="Pre vs Post norm, last line",
    claim="Final LayerNorm: LayerNorm(x_{l+1})",
    correction="of x_{L+1}, after the last block; l stands for any",
    question="Three blocks, and l = 1: is it the last state that is normalised?",
    printed=lambda states, l=1: layer_norm(states[l + 1]),
    corrected=lambda states: layer_norm(states[max(states)]),
    check=_final_of_the_last,
    slip=True,
)


NO_FINAL_NORM = Erratum(
    name="no final norm",
    decks=(CS11711,),
    place="In code, class TransformerLM",
    claim="for block in self.blocks: x = block(x); logits = self.fc(x)",
    correction="harmless with the blocks as printed. Repair those, and one more norm belongs after the last",
    question="Have the logits of an untrained model the same size at every depth?",
    printed=partial(small_model, "no final norm", "the residual from the normalised x"),
    misread=partial(small_model, "no final norm"),
    corrected=small_model,
    check=logits_by_depth,
    kind="no error",
)


def _through_twelve(back) -> Finding:
    jacobians = drawn(12, D, D) / (2 * D**0.5)                                # of the branches
    through = torch.eye(D)
    for J in jacobians:
        through = (torch.eye(D) + J) @ through
    arrives, said = (matrix.norm().item() / D**0.5 for matrix in (through, back(jacobians)))
    return Finding(abs(said / arrives - 1) < 0.1, f"said {said:.1f}, carried back {arrives:.1f}, for 12 layers")


def _all_products(jacobians: Tensor) -> Tensor:
    return torch.linalg.multi_dot([torch.eye(D) + J for J in jacobians.flip(0)])


GRADIENT_ONE = Erratum(
    name="the gradient is 1",
    decks=(CSE576, CS11711),
    place="Residual connections",
    claim="Gradient is great through the residual connection; it's 1! Prevents vanishing gradients",
    correction="1 through the connection; through the layer I + J. A product of several can still grow or vanish",
    question="Twelve residual layers: is that what a gradient is multiplied by?",
    printed=lambda jacobians: torch.eye(D),
    corrected=_all_products,
    check=_through_twelve,
    kind="overclaim",
)

ERRATA = (
    SUM_FOR_MEAN, PRODUCT_FOR_DIFFERENCE, ROOT_TOO_MANY, UNIT_MEAN, RESIDUAL_EQUATION, RESIDUAL_CODE,
    SAME_LABEL, FINAL_OF_ANY, NO_FINAL_NORM, GRADIENT_ONE,
)  # fmt: skip
