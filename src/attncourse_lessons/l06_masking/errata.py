"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import torch
from torch import Tensor

from attncourse_lessons.slides.erratum import (
    CSE576,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    N,
    causal,
    drawn,
    masked,
    near,
    places,
    rows_share_one,
)


def _no_future(weigh) -> Finding:
    weights = weigh(drawn(N, N))                                              # (n, n)
    ahead = weights.triu(1).sum(dim=-1).max().item()
    return Finding(ahead == 0, f"at most {ahead:.2f} of a token's weight lies in its future")


def _nothing_masked(scores: Tensor) -> Tensor:
    i, j = places(len(scores))
    return masked(scores, (i > i) | (j > len(scores)))


I_GREATER_I = Erratum(
    name="i > i",
    decks=(CSE576,),
    place="Masking the future in self-attention",
    claim="e_ij = q_i·k_j where j ≤ i, −∞ where i > i",
    correction="−∞ where j > i",
    question="Does any weight lie in the future?",
    printed=_nothing_masked,
    corrected=causal,
    check=_no_future,
    slip=True,
)


def _strict(scores: Tensor) -> Tensor:
    i, j = places(len(scores))
    return masked(scores, j >= i)


NOT_ITSELF = Erratum(
    name="not even itself",
    decks=(PARAMETRIC,),
    place="Masking the future in self-attention, formula and table",
    claim="e_ij = q_i·k_j where j < i, −∞ where j ≥ i",
    correction="q_i·k_j where j ≤ i, −∞ where j > i (j < i fits only if row i is the token being predicted)",
    question="Does each row sum to one?",
    printed=_strict,
    corrected=causal,
    check=rows_share_one,
)


def _all_of_the_prefix(query: Tensor, key: Tensor, value: Tensor, t: int) -> Tensor:
    """Attention over the words up to t, all of it anew, and the newest word's row of the result."""
    weights = (query[: t + 1] @ key[: t + 1].mT).softmax(dim=-1)              # (t + 1, t + 1)
    return (weights @ value[: t + 1])[-1:]


def _growing_queries(query: Tensor, key: Tensor, value: Tensor, t: int) -> Tensor:
    """Kept until step t: the keys and the queries. Of the values there is that of the newest word."""
    return (query[: t + 1] @ key[: t + 1].mT).softmax(dim=-1) @ value[t : t + 1]


def _growing_values(query: Tensor, key: Tensor, value: Tensor, t: int) -> Tensor:
    return (query[t : t + 1] @ key[: t + 1].mT).softmax(dim=-1) @ value[: t + 1]


def _step_by_step(step) -> Finding:
    query, key, value = drawn(3, N, 4)
    at_once = causal(query @ key.mT) @ value                                 # (n, d)
    steps = torch.cat([step(query, key, value, t) for t in range(N)])         # (n, d)
    return near(steps, at_once, "steps and one masked pass differ by")


KEYS_AND_QUERIES = Erratum(
    name="keys and queries",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Masking the future in self-attention",
    claim="we could change the set of keys and queries to include only past words",
    correction="right, and wasteful, as the slide says: attend over the prefix. A cache keeps keys and values alone",
    question="Do the steps give what one masked pass gives?",
    printed=_all_of_the_prefix,
    misread=_growing_queries,
    corrected=_growing_values,
    check=_step_by_step,
    by="trusted",
    kind="no error",
)


def _two_heads(layer) -> Finding:
    weights, x, matrices = drawn(2, N, N).softmax(dim=-1), drawn(N, 4, seed=1), drawn(2, 4, 4, seed=2)
    both = sum(A @ x @ W for A, W in zip(weights, matrices, strict=True))     # (n, d)
    return near(layer(weights, x, matrices), both, "from what two heads give it is off by")


RE_AVERAGES = Erratum(
    name="nothing but averages",
    decks=(CSE576, FOUNDATIONS, PARAMETRIC),
    place="Adding nonlinearities in self-attention; Barriers and solutions",
    claim="stacking more self-attention layers just re-averages value vectors; it's all just weighted averages",
    correction="with one head. Two can subtract, and the weights are no linear function of x in any case",
    question="Two heads: is it one average of the values?",
    printed=lambda weights, x, matrices: weights.mean(dim=0) @ x @ matrices.sum(dim=0),
    corrected=lambda weights, x, matrices: (weights @ x @ matrices).sum(dim=0),
    check=_two_heads,
    kind="overclaim",
)


ERRATA = (I_GREATER_I, NOT_ITSELF, KEYS_AND_QUERIES, RE_AVERAGES)
