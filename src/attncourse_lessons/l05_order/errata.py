"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import math
from functools import partial

import torch
from torch import Tensor

from attncourse.attention import attend, causal_mask
from attncourse.positions import shift_matrix, sinusoidal
from attncourse_lessons.slides.erratum import (
    CS11711,
    CSE576,
    CSE5321,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    drawn,
    near,
)
from attncourse_lessons.slides.model import alone_and_in_company, small_model

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
    correction="x̃_i = x_i + p_i. While q, k, v are the inputs it is the same; W_Q and W_K must see the place, too",
    question="Can W_Q and W_K be chosen so that each word looks at the one before?",
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
    printed=_absolute,
    corrected=_relative,
    check=_moves_along,
)


DOG = ["The", "dog", "chased", "another", "dog"]


def _dogs_equal(equal_with) -> Finding:
    words = {word: vector for word, vector in zip(DOG, drawn(len(DOG), 8), strict=True)}
    x = torch.stack([words[word] for word in DOG])                            # (n, d)
    wrong = []
    for mask in (None, causal_mask(len(DOG))):
        output, _ = attend(x, x, x, mask)
        apart = (output[1] - output[4]).abs().max().item()
        if equal_with(mask is not None) != (apart < 1e-5):
            where = "without a mask" if mask is None else "under a causal mask"
            wrong.append(f"{where} they differ by {apart:.2f}")
    return Finding(not wrong, "; ".join(wrong) or "right with and without a mask")


IDENTICAL = Erratum(
    name="identical output",
    decks=(CSE5321,),
    place="Positional Embeddings, Motivating Example",
    claim="the output is identical for the same token in different positions",
    correction="without a mask, as in the slide's code; under a causal mask, as Llama's, two dogs see other words",
    question="Are the two dogs equal exactly where this says so?",
    printed=lambda causal: True,
    corrected=lambda causal: not causal,
    check=_dogs_equal,
    kind="overclaim",
)


def _finds_the_dogs(places) -> Finding:
    sentences = DOG, ["<start>", *DOG]
    found = [tuple(words[i] for i in places(words) if i < len(words)) for words in sentences]
    said = " and ".join(", ".join(words) or "nothing" for words in found)
    return Finding(all(words == ("dog", "dog") for words in found), f"finds {said}")


OUTPUTS_2_AND_5 = Erratum(
    name="outputs 2 and 5",
    decks=(CSE5321,),
    place="Positional Embeddings, code",
    claim="dog1_out = output[0, 2]; dog2_out = output[0, 5]",
    correction="right behind exactly one start token, as this tokenizer has it; look the word up, and it always is",
    question="Are the dogs found with a start token and without?",
    printed=lambda words: (2, 5),
    corrected=lambda words: [i for i, word in enumerate(words) if word == "dog"],
    check=_finds_the_dogs,
    kind="overclaim",
)


POSITIONS_BY_BATCH = Erratum(
    name="positions by the batch",
    decks=(CS11711,),
    place="In code, class TransformerLM",
    claim="pos = torch.arange(x.size(0)).unsqueeze(1), where x is (batch, n)",
    correction="torch.arange(x.size(1)): axis 0 is the batch",
    question="Does a text get the same answer alone and in company?",
    printed=partial(small_model, "positions by the batch"),
    corrected=small_model,
    check=alone_and_in_company,
)

ERRATA = (
    TWICE_THE_ROWS, FROM_ONE, ADDED_BEHIND, SHAW_ABSOLUTE, LEARNED_BY_SHAW, IDENTICAL, OUTPUTS_2_AND_5,
    POSITIONS_BY_BATCH,
)  # fmt: skip
