"""Errata of attention itself, sums, masks, cross-attention and heads; and of order, which it does not see."""

import math

import torch
from torch import Tensor

from attncourse.positions import shift_matrix, sinusoidal
from attncourse_lessons.errata.entry import (
    CS11711,
    CSE576,
    CSE5321,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    drawn,
    equal,
    near,
)

N = 6  # words, where a number of words is needed


def _average(weighted_sum) -> Finding:
    """Six values that are all alike: whatever the weights are, their average is that value."""
    weights = drawn(N, N).softmax(dim=-1)                                     # (n, n)
    same = drawn(1, 4, seed=1).expand(N, 4)                                   # (n, d)
    return near(weighted_sum(weights, same), same, "the average of equal values is off by")


SUM_OVER_I = Erratum(
    name="sum over the asker",
    decks=(CSE576,),
    place="Self-Attention: keys, queries, values from the same sequence",
    claim="o_i = Σ_i α_ij v_i",
    correction="o_i = Σ_j α_ij v_j: the sum runs over the words that answer",
    question="Values that are all alike: does their average come back?",
    lecture="self_attention",
    printed=lambda weights, values: weights.mT @ values,                      # summed over i: what is left names j
    corrected=lambda weights, values: weights @ values,
    check=_average,
    slip=True,
)


def _masked(scores: Tensor, forbidden: Tensor) -> Tensor:
    return scores.masked_fill(forbidden, -torch.inf).softmax(dim=-1)


def _places(n: int) -> tuple[Tensor, Tensor]:
    """i (n, 1), the word that asks, and j (n,), the word that answers."""
    return torch.arange(n)[:, None], torch.arange(n)


def _no_future(weigh) -> Finding:
    weights = weigh(drawn(N, N))                                              # (n, n)
    ahead = weights.triu(1).sum(dim=-1).max().item()
    return Finding(ahead == 0, f"at most {ahead:.2f} of a word's weight lies in its future")


def _nothing_masked(scores: Tensor) -> Tensor:
    i, j = _places(len(scores))
    return _masked(scores, (i > i) | (j > len(scores)))


def _causal(scores: Tensor) -> Tensor:
    i, j = _places(len(scores))
    return _masked(scores, j > i)


I_GREATER_I = Erratum(
    name="i > i",
    decks=(CSE576,),
    place="Masking the future in self-attention",
    claim="e_ij = q_i·k_j where j ≤ i, −∞ where i > i",
    correction="−∞ where j > i",
    question="Does any weight lie in the future?",
    lecture="masking",
    printed=_nothing_masked,
    corrected=_causal,
    check=_no_future,
    slip=True,
)


def _strict(scores: Tensor) -> Tensor:
    i, j = _places(len(scores))
    return _masked(scores, j >= i)


def _rows_share_one(weigh) -> Finding:
    sums = weigh(drawn(N, N)).sum(dim=-1)                                     # (n,)
    said = ", ".join("NaN" if math.isnan(total) else f"{total:.2f}" for total in sums.tolist())
    return Finding(torch.allclose(sums, torch.ones(N)), f"the rows sum to {said}")


NOT_ITSELF = Erratum(
    name="not even itself",
    decks=(PARAMETRIC,),
    place="Masking the future in self-attention, formula and table",
    claim="e_ij = q_i·k_j where j < i, −∞ where j ≥ i",
    correction="q_i·k_j where j ≤ i, −∞ where j > i (j < i fits only if row i is of the word being predicted)",
    question="Does each row sum to one?",
    lecture="masking",
    printed=_strict,
    corrected=_causal,
    check=_rows_share_one,
)


def _zeroed(scores: Tensor) -> Tensor:
    i, j = _places(len(scores))
    return scores.softmax(dim=-1) * (j <= i)


WEIGHTS_ZEROED = Erratum(
    name="weights set to 0",
    decks=(CSE576, PARAMETRIC),
    place="Barriers and solutions for Self-Attention as a building block",
    claim="Mask out the future by artificially setting attention weights to 0!",
    correction="scores to −∞, before the softmax, as both decks' own formulas have it",
    question="Does each row sum to one?",
    lecture="cross_attention",
    printed=_zeroed,
    corrected=_causal,
    check=_rows_share_one,
)


def _growing_queries(query: Tensor, key: Tensor, value: Tensor, t: int) -> Tensor:
    """Remembered until step t: the keys and the queries. Of the values there is that of the newest word."""
    return (query[: t + 1] @ key[: t + 1].mT).softmax(dim=-1) @ value[t : t + 1]


def _growing_values(query: Tensor, key: Tensor, value: Tensor, t: int) -> Tensor:
    return (query[t : t + 1] @ key[: t + 1].mT).softmax(dim=-1) @ value[: t + 1]


def _step_by_step(step) -> Finding:
    query, key, value = drawn(3, N, 4)
    at_once = _causal(query @ key.mT) @ value                                 # (n, d)
    steps = torch.cat([step(query, key, value, t) for t in range(N)])         # (n, d)
    return near(steps, at_once, "steps and one masked pass differ by")


KEYS_AND_QUERIES = Erratum(
    name="keys and queries",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Masking the future in self-attention",
    claim="we could change the set of keys and queries to include only past words",
    correction="keys and values: a step has one query, and what it needs of the past are keys and values",
    question="Do the steps give what one masked pass gives?",
    lecture="masking",
    printed=_growing_queries,
    corrected=_growing_values,
    check=_step_by_step,
)


def _one_length(target: Tensor, source: Tensor) -> tuple[int, int]:
    return len(target), len(target)


def _two_lengths(target: Tensor, source: Tensor) -> tuple[int, int]:
    return len(target), len(source)


def _shape_of_the_table(shape) -> Finding:
    target, source, query, key = drawn(3, 4), drawn(5, 4), drawn(4, 4), drawn(4, 4)
    table = target @ query @ (source @ key).mT                                # (n_target, n_source)
    return equal(shape(target, source), tuple(table.shape), "said to be")


SQUARE_TABLE = Erratum(
    name="a square table",
    decks=(PARAMETRIC, CSE576, FOUNDATIONS),
    place="Cross-attention (details); Encoder-Decoder Attention",
    claim="ZQKᵀHᵀ ∈ R^(T×T); all three number both sequences up to one letter",
    correction="T_target × T_source",
    question="Three words look at five: is that the table's shape?",
    lecture="cross_attention",
    printed=_one_length,
    corrected=_two_lengths,
    check=_shape_of_the_table,
)


def _all_declared(slide) -> Finding:
    declared, used = slide()
    return Finding(declared == used, f"declared {', '.join(sorted(declared))}; used {', '.join(sorted(used))}")


X_FOR_H = Erratum(
    name="x for h",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Cross-attention (details); Encoder-Decoder Attention",
    claim="h_1, …, h_n output vectors from the encoder; x_i ∈ R^d",
    correction="h_i ∈ R^d",
    question="Are the vectors that get a type those that are used?",
    lecture="cross_attention",
    printed=lambda: ({"x_i", "z_i"}, {"h_i", "z_i"}),
    corrected=lambda: ({"h_i", "z_i"}, {"h_i", "z_i"}),
    check=_all_declared,
)


def _look(asking: Tensor, answering: Tensor) -> Tensor:
    return (asking @ answering.mT).softmax(dim=-1) @ answering


def _one_answer_a_target_word(cross) -> Finding:
    return equal(len(cross(drawn(3, 4), drawn(5, 4))), 3, "for 3 target and 5 source words: answers")


ENCODER_CROSS = Erratum(
    name="the encoder's cross-attention",
    decks=(PARAMETRIC,),
    place="The Transformer Encoder: Cross-attention (details)",
    claim="The Transformer Encoder: Cross-attention",
    correction="a heading alone: it is the decoder's, and the slide below it has that right",
    question="Is there one answer for each word that is written?",
    lecture="cross_attention",
    printed=lambda decoder, encoder: _look(encoder, decoder),
    corrected=lambda decoder, encoder: _look(decoder, encoder),
    check=_one_answer_a_target_word,
)


def _questions_differ(make) -> Finding:
    z, matrix = drawn(3, 4), drawn(4, 4, seed=1)
    queries = torch.stack([make(z, matrix, i) for i in range(3)])             # (3, ...)
    moved = z.clone()
    moved[0] += 1                                                             # only the first may ask anything new
    again = torch.stack([make(moved, matrix, i) for i in range(3)])
    return near(again[1:], queries[1:], "when z_1 changes, the other queries change by")


ONE_Z = Erratum(
    name="Qz for all",
    decks=(FOUNDATIONS,),
    place="Encoder-Decoder Attention",
    claim="q_i = Qz",
    correction="q_i = Q z_i: each position asks a question of its own",
    question="When z_1 changes, do the other queries stay?",
    lecture="errata_lab",
    printed=lambda z, matrix, i: z @ matrix.mT,
    corrected=lambda z, matrix, i: matrix @ z[i],
    check=_questions_differ,
    slip=True,
)


def _heads_to_outputs(combine) -> Finding:
    heads, matrix = drawn(2, 7, 16), drawn(32, 32, seed=1)                    # (h, n, d/h), (d, d)
    expected = torch.stack([torch.cat([head[i] for head in heads]) @ matrix for i in range(7)])
    return near(combine(heads, matrix), expected)


Y_ON_THE_LEFT = Erratum(
    name="Y on the wrong side",
    decks=(PARAMETRIC,),
    place="The Transformer Encoder: Multi-headed attention",
    claim="output = Y[output_1; …; output_h], with words as rows",
    correction="[output_1; …; output_h] Y",
    question="Seven words, d = 32: does each word's row go through Y?",
    lecture="many_heads",
    printed=lambda heads, matrix: matrix @ torch.cat(list(heads), dim=-1),
    corrected=lambda heads, matrix: torch.cat(list(heads), dim=-1) @ matrix,
    check=_heads_to_outputs,
)


def _shape_of_a_head(shape) -> Finding:
    n, d, h = 7, 32, 2
    x, (query, key, value) = drawn(n, d), drawn(3, d, d // h)
    output = (x @ query @ (x @ key).mT).softmax(dim=-1) @ x @ value           # (n, d/h)
    return equal(shape(n, d, h), tuple(output.shape), "said to be")


ONE_ROW = Erratum(
    name="one row for all",
    decks=(CSE576, PARAMETRIC),
    place="Multi-headed attention",
    claim="output_ℓ ∈ R^(d/h)",
    correction="R^(n×d/h): a row for each word",
    question="Seven words: is that the shape of a head's output?",
    lecture="many_heads",
    printed=lambda n, d, h: (d // h,),
    corrected=lambda n, d, h: (n, d // h),
    check=_shape_of_a_head,
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
    lecture="many_heads",
    printed=_unscaled,
    corrected=_scaled,
    check=_size_of_scores,
    kind="convention",
)


def _weighted(product) -> Finding:
    weights, values = drawn(N, N).softmax(dim=-1), drawn(N, 4, seed=1)
    return near(product(weights, values), torch.einsum("ij,jd->id", weights, values))


STAR = Erratum(
    name="a star for a matrix product",
    decks=(CSE576, PARAMETRIC),
    place="Multi-headed attention",
    claim="softmax(XQKᵀXᵀ) * XV",
    correction="@ in Python: a star multiplies number by number",
    question="Is it the matrix product?",
    lecture="getting_ready",
    printed=lambda weights, values: weights * values,
    corrected=lambda weights, values: weights @ values,
    check=_weighted,
    kind="convention",
)


def _next_to_each_other(project) -> Finding:
    x, matrix = drawn(N, 6), drawn(6, 2, seed=1)                              # (n, d_model), (d_model, d_k)
    return near(project(x, matrix), torch.stack([row @ matrix for row in x]))


QX_AND_XQ = Erratum(
    name="Qx beside XQ",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Self-attention (Key-Query-Value, or its recipe), first by word and then in matrices",
    claim="q_i = Qx_i on one slide, XQ on a later one",
    correction="with words as rows, x_i Q and XQ; the other Q is this one's transpose",
    question="Does one matrix serve both?",
    lecture="self_attention",
    printed=lambda x, matrix: torch.stack([matrix @ row for row in x]),
    corrected=lambda x, matrix: x @ matrix,
    check=_next_to_each_other,
    kind="convention",
)

D = 8


def _pairs(position: int, first: int, last: int) -> Tensor:
    """sin and cos of position / 10000^(2k/d), for k from `first` to `last`, side by side."""
    angles = [position / 10000 ** (2 * k / D) for k in range(first, last + 1)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])


def _fits_the_word(place) -> Finding:
    rows = len(place(3))
    return Finding(rows == D, f"{rows} numbers for a word of {D}")


TWICE_THE_ROWS = Erratum(
    name="twice the rows",
    decks=(FOUNDATIONS,),
    place="Position representation vectors through sinusoids (original)",
    claim="the last pair is sin, cos(i/10000^(2·d/d))",
    correction="2·(d/2)/d: there are d/2 pairs",
    question="Has p_i as many numbers as the word to which it is added?",
    lecture="order",
    printed=lambda position: _pairs(position, 1, D),
    corrected=lambda position: _pairs(position, 1, D // 2),
    check=_fits_the_word,
    slip=True,
)


def _as_the_paper(place) -> Finding:
    table = torch.stack([place(position) for position in range(20)])          # (n, d)
    return near(table, sinusoidal(torch.arange(20), D), "from the paper's table it is off by")


FROM_ONE = Erratum(
    name="pairs counted from 1",
    decks=(CSE576, FOUNDATIONS, CSE5321, PARAMETRIC),
    place="Position representation vectors through sinusoids",
    claim="the first pair is sin, cos(i/10000^(2·1/d))",
    correction="from 0, as the paper and the fifth deck do; weights trained with one do not fit the other",
    question="Is it the paper's table?",
    lecture="order",
    printed=lambda position: _pairs(position, 1, D // 2),
    corrected=lambda position: _pairs(position, 0, D // 2 - 1),
    check=_as_the_paper,
    kind="convention",
)


def _added_to_the_input(x: Tensor, p: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ((x + p) @ query) @ ((x + p) @ key).mT


def _added_behind(x: Tensor, p: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return (x @ query + p) @ (x @ key + p).mT


def _can_look_back(score) -> Finding:
    """Words that are all alike, and matrices made for the one purpose of finding the word before."""
    n, places = 12, sinusoidal(torch.arange(12), 32)
    scores = score(torch.zeros(n, 32), places, shift_matrix(-1, 32), torch.eye(32))
    found = scores.argmax(dim=-1)[1:]                                         # (n - 1,)
    right = (found == torch.arange(n - 1)).float().mean().item()
    return Finding(right == 1, f"{right:.0%} of the words find the one before them")


ADDED_BEHIND = Erratum(
    name="positions behind the projections",
    decks=(PARAMETRIC,),
    place="Fixing the first self-attention problem: sequence order",
    claim="q_i = q̃_i + p_i, k_i = k̃_i + p_i, v_i = ṽ_i + p_i",
    correction="x̃_i = x_i + p_i, so that the place goes through W_Q and W_K",
    question="Can W_Q and W_K be chosen so that each word looks at the one before?",
    lecture="order",
    printed=_added_behind,
    corrected=_added_to_the_input,
    check=_can_look_back,
    kind="convention",
)

CLIP = 2


def _absolute(i: int, j: int) -> Tensor:
    return drawn(30, D, seed=1)[j]


def _relative(i: int, j: int) -> Tensor:
    return drawn(2 * CLIP + 1, D, seed=1)[max(-CLIP, min(CLIP, j - i)) + CLIP]


def _moves_along(a) -> Finding:
    query, key = drawn(2, D)
    scores = [(query @ (key + a(i, j))).item() for i, j in ((3, 4), (13, 14), (23, 24))]
    said = ", ".join(f"{score:.2f}" for score in scores)
    return Finding(max(scores) - min(scores) < 1e-6, f"one step apart, at three places: {said}")


SHAW_ABSOLUTE = Erratum(
    name="Shaw's formula under Absolute",
    decks=(CSE576,),
    place="Common, modern position embeddings - RoPE",
    claim="Absolute: e_ij = x_i W_Q (x_j W_K + a_ij)ᵀ/√d",
    correction="Relative: a_ij depends on j − i alone (Shaw et al. 2018, equation 4)",
    question="Query and key move along together: does the score stay?",
    lecture="order",
    printed=_absolute,
    corrected=_relative,
    check=_moves_along,
    slip=True,
)


LEARNED_BY_SHAW = Erratum(
    name="learned positions credited to Shaw",
    decks=(CS11711,),
    place="Learned Positional Encoding (Shaw+ 2018)",
    claim="Learned Positional Encoding (Shaw+ 2018)",
    correction="Gehring et al. 2017, and Vaswani et al. 2017, table 3, row E; what Shaw et al. propose is relative",
    question="Has it the property that Shaw et al. are after: only the distance counts?",
    lecture="order",
    printed=_absolute,
    corrected=_relative,
    check=_moves_along,
)

ATTENTION = (
    SUM_OVER_I, I_GREATER_I, NOT_ITSELF, KEYS_AND_QUERIES, WEIGHTS_ZEROED, SQUARE_TABLE, X_FOR_H, ENCODER_CROSS, ONE_Z,
    Y_ON_THE_LEFT, ONE_ROW, CROSS_UNSCALED, STAR, QX_AND_XQ,
    TWICE_THE_ROWS, FROM_ONE, ADDED_BEHIND, SHAW_ABSOLUTE, LEARNED_BY_SHAW,
)  # fmt: skip

__all__ = ["ATTENTION"]
