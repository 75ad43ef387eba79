"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import torch

from attncourse.counting import layer_cost
from attncourse_lessons.slides.erratum import (
    CS11711,
    CSE576,
    CSE5321,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    N,
    drawn,
    near,
)


def _average(weighted_sum) -> Finding:
    """Six values that are all alike: whatever the weights are, their average is that value."""
    weights = drawn(N, N).softmax(dim=-1)                                     # (n, n)
    same = drawn(1, 4, seed=1).expand(N, 4)                                   # (n, d)
    return near(weighted_sum(weights, same), same, "the average of equal values is off by")


SUM_OVER_I = Erratum(
    name="sum over the query",
    decks=(CSE576,),
    place="Self-Attention: keys, queries, values from the same sequence",
    claim="o_i = Σ_i α_ij v_i",
    correction="o_i = Σ_j α_ij v_j: the sum runs over the keys",
    question="Values that are all alike: does their average come back?",
    printed=lambda weights, values: weights.mT @ values,                      # summed over i: what is left names j
    corrected=lambda weights, values: weights @ values,
    check=_average,
    slip=True,
)


def _next_to_each_other(project) -> Finding:
    x, matrix = drawn(N, 6), drawn(6, 2, seed=1)                              # (n, d_model), (d_model, d_k)
    return near(project(x, matrix), torch.stack([row @ matrix for row in x]))


QX_AND_XQ = Erratum(
    name="Qx beside XQ",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Self-attention (Key-Query-Value, or its recipe), first by word and then in matrices",
    claim="q_i = Qx_i on one slide, XQ on a later one",
    correction="with tokens as rows, x_i Q and XQ; the other Q is this one's transpose",
    question="Does one matrix serve both?",
    printed=lambda x, matrix: torch.stack([matrix @ row for row in x]),
    corrected=lambda x, matrix: x @ matrix,
    check=_next_to_each_other,
    kind="convention",
    by="shapes",
)


def _cost_of_a_layer(cost) -> Finding:
    n, d = 30, 1000
    counted = layer_cost("self-attention", n, d).multiply_adds
    said = cost(n, d)
    return Finding(abs(said / counted - 1) < 0.01, f"30 tokens, d = 1000: said {said:,}, counted {counted:,}")


N_SQUARED = Erratum(
    name="O(n²d) alone",
    decks=(CSE576, FOUNDATIONS, CSE5321, CS11711),
    place="Quadratic computation …; Computational Complexity per layer; RNNs vs. Transformers",
    claim="its total number of operations grows as O(n²d)",
    correction="O(nd² + n²d): the projections rule while n is below d (the paper's table 1 leaves them out, too)",
    question="Thirty tokens, d = 1000, as one slide proposes: is it what a layer computes?",
    printed=lambda n, d: 2 * n * n * d,
    corrected=lambda n, d: 3 * n * d * d + 2 * n * n * d,
    check=_cost_of_a_layer,
    kind="overclaim",
    by="trusted",
)


PAIRS = {"a simple recurrence": 1, "an LSTM": 4}  # of matrices: tanh(x W + h U) has one


def _cheaper_where_said(compared) -> Finding:
    """At lengths well below d, with all projections: what a Transformer computes, as a share of what recurrences do."""
    parts, recurrences = compared()
    n, d = 50, 512
    attention = layer_cost("self-attention", n, d).multiply_adds + n * d * d  # and W_O
    costs = {"attention": attention, "a whole layer": attention + 8 * n * d * d}  # and a network of width 4d
    recurrent = layer_cost("recurrent", n, d).multiply_adds
    shares = {name: costs[parts] / (PAIRS[name] * recurrent) for name in recurrences}
    said = ", ".join(f"{share:.2f} times {name}" for name, share in shares.items())
    return Finding(all(share < 1 for share in shares.values()), f"{n} tokens, d = {d}: {parts} costs {said}")


SHORT_IS_CHEAPER = Erratum(
    name="cheaper while n is small",
    decks=(FOUNDATIONS,),
    place="Computational Complexity per layer",
    claim="n << d: lower for a Transformer than for the recurrent models we've learned about so far",
    correction="self-attention costs less than an LSTM, without the feed-forward network of its layer",
    question="Well below d, does it cost less than those recurrences, its projections counted?",
    printed=lambda: ("a whole layer", ("a simple recurrence", "an LSTM")),    # the two of that deck's recap
    corrected=lambda: ("attention", ("an LSTM",)),
    check=_cheaper_where_said,
    by="trusted",
    kind="overclaim",
)

ERRATA = (SUM_OVER_I, QX_AND_XQ, N_SQUARED, SHORT_IS_CHEAPER)
