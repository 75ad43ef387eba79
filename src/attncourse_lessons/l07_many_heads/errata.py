"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from attncourse.attention import MultiHeadAttention
from attncourse.counting import count_parameters, preset
from attncourse.transformer import EncoderDecoder, LanguageModel
from attncourse_lessons.slides.erratum import (
    CSE576,
    CSE5321,
    FOUNDATIONS,
    NARANG,
    PARAMETRIC,
    Erratum,
    Finding,
    drawn,
    near,
)


def _heads_to_outputs(combine) -> Finding:
    heads, matrix = drawn(2, 7, 16), drawn(32, 32, seed=1)                    # (h, n, d/h), (d, d)
    expected = torch.stack([torch.cat([head[i] for head in heads]) @ matrix for i in range(7)])
    return near(combine(heads, matrix), expected)


Y_ON_THE_LEFT = Erratum(
    name="Y on the left",
    decks=(PARAMETRIC, CSE576),
    place="Multi-headed attention",
    claim="output_ℓ ∈ R^(d/h), and output = Y[output_1; …; output_h]; […]Y in the other deck",
    correction="that is one token, a column. Tokens are rows in the line above: R^(n×d/h), and […]Y",
    question="Seven tokens, d = 32: does each token's row go through Y?",
    printed=lambda heads, matrix: matrix @ torch.cat(list(heads), dim=-1),
    corrected=lambda heads, matrix: torch.cat(list(heads), dim=-1) @ matrix,
    check=_heads_to_outputs,
    kind="convention",
    by="shapes",
)


SEMICOLON = Erratum(
    name="a semicolon for two things",
    decks=(CSE576, PARAMETRIC),
    place="Sequence-Stacked form of Attention; Multi-headed attention",
    claim="X = [x_1; …; x_n] ∈ R^(n×d), and on the next slide [output_1; …; output_h]",
    correction="the first stacks rows, the second sets matrices side by side: say torch.stack, torch.cat(dim=-1)",
    question="Seven tokens, d = 32: what the first means, done to two heads, does it go through Y?",
    printed=lambda heads, matrix: torch.cat(list(heads), dim=0) @ matrix,
    corrected=lambda heads, matrix: torch.cat(list(heads), dim=-1) @ matrix,
    check=_heads_to_outputs,
    kind="convention",
    by="shapes",
)


def _unscaled(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT


def _scaled(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / math.sqrt(query.shape[-1])


def _size_of_scores(score) -> Finding:
    sizes = [score(drawn(400, d), drawn(400, d, seed=1)).std().item() for d in (16, 256)]
    said = f"scores of size {sizes[0]:.1f} at d = 16, {sizes[1]:.1f} at d = 256"
    return Finding(abs(sizes[1] / sizes[0] - 1) < 0.1, said)


CROSS_UNSCALED = Erratum(
    name="cross-attention unscaled",
    decks=(CSE576, PARAMETRIC),
    place="Cross-attention (details)",
    claim="output = softmax(ZQ(HK)ᵀ) × HV",
    correction="divide by √d_k here, too, as the Transformer does; the function is the same",
    question="Do scores of vectors of another width have the same size?",
    printed=_unscaled,
    corrected=_scaled,
    check=_size_of_scores,
    kind="convention",
)


GPT_3 = "Transformer architecture specifications, From GPT-3"


def _of_t5(layers: int, heads: int):
    def check(width) -> Finding:
        config = replace(preset("t5 base").config, n_layers=layers, d_ff=width(), n_heads=heads)
        millions = count_parameters(config, EncoderDecoder).total / 1e6
        return Finding(abs(millions - 223) < 1, f"{millions:.0f} million parameters; the row says 223")

    return check


D_FF_8 = Erratum(
    name="d_ff of the 8 layers",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="8 layers, d_ff = 4096, H = 18: 223M",
    correction="4608: layers × d_ff is the same in all these rows",
    question="Counted: is it the 223 million of the row?",
    printed=lambda: 4096,
    corrected=lambda: 4608,
    check=_of_t5(layers=8, heads=18),
    by="trusted",
    slip=True,
)


D_FF_6 = Erratum(
    name="d_ff of the 6 layers",
    decks=(CSE5321,),
    place=NARANG,
    claim="6 layers, d_ff = 1044, H = 24: 223M",
    correction="6144",
    question="Counted: is it the 223 million of the row?",
    printed=lambda: 1044,
    corrected=lambda: 6144,
    check=_of_t5(layers=6, heads=24),
    by="trusted",
    slip=True,
)


def _of_gpt_3(name: str, millions: int):
    def check(changed) -> Finding:
        config = replace(preset(name).config, d_head=128, **changed())
        counted = count_parameters(config, LanguageModel).total / 1e6
        said = f"{counted:,.0f} million parameters; the paper's table D.1 says {millions:,}"
        return Finding(abs(counted - millions) < 5, said)

    return check


HEADS_24 = Erratum(
    name="24 heads",
    decks=(CSE5321,),
    place=GPT_3,
    claim="GPT-3 XL: d_model 2048, 24 heads of 128 (copied faithfully from the paper)",
    correction="16 heads of 128, which fit the count (24 of 128 could be a wider layer inside)",
    question="Counted: is it what the paper's own table D.1 says?",
    printed=lambda: {"n_heads": 24},
    corrected=lambda: {"n_heads": 16},
    check=_of_gpt_3("gpt-3 xl", 1320),
    by="trusted",
)


WIDTH_5140 = Erratum(
    name="a width of 5140",
    decks=(CSE5321,),
    place=GPT_3,
    claim="GPT-3 13B: d_model 5140, 40 heads of 128 (copied faithfully from the paper)",
    correction="5120, which is 40 · 128",
    question="Counted: is it what the paper's own table D.1 says?",
    printed=lambda: {"n_heads": 40, "d_model": 5140},
    corrected=lambda: {"n_heads": 40, "d_model": 5120},
    check=_of_gpt_3("gpt-3 13b", 12850),
    by="trusted",
)


def _scores_held(numbers) -> Finding:
    n, x = 10, drawn(1, 10, 16)
    counted = {}
    for heads in (1, 8):
        tables: list[Tensor] = []
        MultiHeadAttention(16, heads)(x, weights=tables)
        counted[heads] = tables[0].numel()
    said = {heads: numbers(n, heads) for heads in counted}
    return Finding(said == counted, f"said {said[8]} scores for 8 heads and 10 tokens, counted {counted[8]}")


SAME_COMPUTATION = Erratum(
    name="same amount of computation",
    decks=(PARAMETRIC,),
    place="Multi-headed attention",
    claim="Same amount of computation as single-head self-attention!",
    correction="in matrix products; the tables of scores, and the softmax over them, are h times as many",
    question="Is that how many scores there are?",
    printed=lambda n, heads: n * n,
    corrected=lambda n, heads: heads * n * n,
    check=_scores_held,
    by="trusted",
    kind="overclaim",
)


def _layer(query: Tensor, key: Tensor, value: Tensor, matrices: Tensor) -> Tensor:
    """A layer with its projections inside, as `nn.MultiheadAttention` is."""
    query, key, value = (x @ W for x, W in zip((query, key, value), matrices, strict=True))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


def _with_these_projections(call) -> Finding:
    x = drawn(5, 8)
    got, named = call(x, drawn(3, 8, 8, seed=1) / math.sqrt(8))
    return near(got, _layer(x, x, x, named), "from the equation it is off by")


PROJECTED_TWICE = Erratum(
    name="projected twice",
    decks=(CSE5321,),
    place="Positional Embeddings, code",
    claim="mha(W_q(embeddings), W_k(embeddings), W_v(embeddings))",
    correction="still attention: it projects inside again, and two matrices in a row are one. mha(x, x, x) is enough",
    question="Is it softmax(QKᵀ/√d)V, with the projections that are named?",
    printed=lambda x, W: (_layer(x @ W[0], x @ W[1], x @ W[2], W), W @ W),    # two in a row
    misread=lambda x, W: (_layer(x @ W[0], x @ W[1], x @ W[2], W), W),        # W_q, W_k, W_v
    corrected=lambda x, W: (_layer(x, x, x, W), W),
    check=_with_these_projections,
    by="trusted",
    kind="no error",
)


def _variance_of_scores(variance) -> Finding:
    d, d_k = 64, 16
    x, y = drawn(2, 4000, d)                                                  # as LayerNorm leaves them: mean 0, size 1
    query, key = (W / math.sqrt(3 * d) for W in drawn(2, d, d_k, seed=1))     # the size of nn.Linear's at the start
    measured = ((x @ query) * (y @ key)).sum(dim=-1).div(math.sqrt(d_k)).var().item()
    said = variance(query, key)
    return Finding(abs(said / measured - 1) < 0.2, f"said {said:.2f}, measured {measured:.2f}")


VARIANCE = Erratum(
    name="variance from LayerNorm",
    decks=(FOUNDATIONS,),
    place="Training Trick #3: Scaled Dot Product Attention",
    claim="After LayerNorm, the mean and variance of vector elements is 0 and 1",
    correction="of x, not of xW_Q and yW_K, whose product is taken; what those have is W's doing",
    question="nn.Linear's usual start: is that the variance of q·k/√d_k?",
    printed=lambda query, key: 1.0,
    corrected=lambda query, key: ((query @ key.mT).square().sum() / query.shape[-1]).item(),
    check=_variance_of_scores,
    kind="overclaim",
)

ERRATA = (
    Y_ON_THE_LEFT, SEMICOLON, CROSS_UNSCALED, D_FF_8, D_FF_6, HEADS_24, WIDTH_5140, SAME_COMPUTATION,
    PROJECTED_TWICE, VARIANCE,
)  # fmt: skip
