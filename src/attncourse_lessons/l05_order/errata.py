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
from attncourse_lessons.slides.model import alone_and_in_a_batch, small_model

D = 8


def _pairs(position: int, first: int, last: int) -> Tensor:
    """sin and cos of position / 10000^(2k/d), for k from `first` to `last`, side by side."""
    angles = [position / 10000 ** (2 * k / D) for k in range(first, last + 1)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])


def _fits_the_embedding(place) -> Finding:
    rows = len(place(3))
    return Finding(rows == D, f"{rows} numbers for an embedding of {D}")


TWICE_THE_ROWS = Erratum(
    name="twice the rows",
    decks=(FOUNDATIONS,),
    place="Position representation vectors through sinusoids (original)",
    claim="the last pair is sin, cos(i/10000^(2·d/d))",
    correction="2·(d/2)/d: there are d/2 pairs",
    question="Has p_i as many numbers as the embedding to which it is added?",
    printed=lambda position: _pairs(position, 1, D),
    corrected=lambda position: _pairs(position, 1, D // 2),
    check=_fits_the_embedding,
    by="shapes",
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
    by="trusted",
)


def _added_to_the_input(x: Tensor, p: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Queries, and the matrix that made them of x."""
    return (x + p) @ matrix, matrix


def _added_to_what_is_the_input(x: Tensor, p: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    return x + p, torch.eye(len(matrix))                                      # nothing has been projected yet


def _added_after(x: Tensor, p: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    return x @ matrix + p, matrix


def _sees_the_position(make) -> Finding:
    """The matrix is made for the one purpose of turning a position into the one before it."""
    x, p = drawn(12, 32), sinusoidal(torch.arange(12), 32)
    queries, matrix = make(x, p, shift_matrix(-1, 32))
    return near(queries, (x + p) @ matrix, "from queries of x + p they are off by")


ADDED_BEHIND = Erratum(
    name="positions after the projections",
    decks=(PARAMETRIC,),
    place="Fixing the first self-attention problem: sequence order",
    claim="q_i = q̃_i + p_i, k_i = k̃_i + p_i, v_i = ṽ_i + p_i",
    correction="on that slide q, k, v are the inputs, and it is x_i + p_i. Added after W_Q and W_K it is another thing",
    question="Is a query what W_Q makes of x_i + p_i?",
    printed=_added_to_what_is_the_input,
    misread=_added_after,
    corrected=_added_to_the_input,
    check=_sees_the_position,
    by="trusted",
    kind="no error",
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
    by="trusted",
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
    by="trusted",
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
    correction="without a mask, as in the slide's code; under a causal mask, as Llama's, they have different pasts",
    question="Are the two dogs equal exactly where this says so?",
    printed=lambda causal: True,
    corrected=lambda causal: not causal,
    check=_dogs_equal,
    kind="overclaim",
)


def _finds_the_dogs(read) -> Finding:
    words, places = read()
    found = [words[i] for i in places if i < len(words)]
    return Finding(found == ["dog", "dog"], f"finds {', '.join(found) or 'nothing'}")


OUTPUTS_2_AND_5 = Erratum(
    name="outputs 2 and 5",
    decks=(CSE5321,),
    place="Positional Embeddings, code",
    claim="dog1_out = output[0, 2]; dog2_out = output[0, 5]",
    correction="right for that tokenizer, which begins with one token; search for the token, and any tokenizer will do",
    question="Are the two dogs found?",
    printed=lambda: (["<start>", *DOG], (2, 5)),
    misread=lambda: (DOG, (2, 5)),                                            # another tokenizer
    corrected=lambda: (DOG, [i for i, word in enumerate(DOG) if word == "dog"]),
    check=_finds_the_dogs,
    kind="no error",
)


POSITIONS_BY_BATCH = Erratum(
    name="positions by the batch",
    decks=(CS11711,),
    place="In code, class TransformerLM",
    claim="pos = torch.arange(x.size(0)).unsqueeze(1), where x is (batch, n)",
    correction="torch.arange(x.size(1)), without unsqueeze. The line fits (n, batch), and this page's inputs are not",
    question="Does a text get the same answer alone and in a batch?",
    printed=partial(small_model, "positions by the batch"),
    corrected=small_model,
    check=alone_and_in_a_batch,
)


# Large open language models and the one that began it, with the year and the kind of their positions: the lecture's
# table has the reports.
SYSTEMS = (
    ("Transformer", 2017, "sinusoids"), ("GPT", 2018, "learned"), ("BERT", 2018, "learned"), ("GPT-2", 2019, "learned"),
    ("T5", 2019, "relative"), ("GPT-3", 2020, "learned"), ("BLOOM", 2022, "relative"), ("PaLM", 2022, "rotary"),
    ("Llama", 2023, "rotary"), ("Llama 2", 2023, "rotary"), ("Mistral 7B", 2023, "rotary"), ("Qwen2", 2024, "rotary"),
    ("Llama 3", 2024, "rotary"), ("Gemma 2", 2024, "rotary"),
)  # fmt: skip


def _most_use(kind) -> Finding:
    found = []
    for first, last in ((2018, 2020), (2023, 2024)):
        kinds = [used for _, year, used in SYSTEMS if first <= year <= last]
        found.append((kinds.count(kind(last)), len(kinds)))
    said = "; ".join(f"{many} of {n} {when}" for (many, n), when in zip(found, ("to 2020", "since 2023"), strict=True))
    return Finding(all(2 * many > n for many, n in found), f"of the systems that we name, {said}")


MOST_SYSTEMS = Erratum(
    name="most systems use this",
    decks=(CSE576, CSE5321, PARAMETRIC),
    place="Learned absolute position representations",
    claim="Most systems use this!",
    correction="so it was before RoPE; two of these decks come to rotary embeddings, modern and common, later",
    question="Is it the positional encoding of most systems, then and since 2023?",
    printed=lambda year: "learned",
    corrected=lambda year: "learned" if year <= 2020 else "rotary",
    check=_most_use,
    kind="overclaim",
    by="trusted",
)

ERRATA = (
    TWICE_THE_ROWS, FROM_ONE, ADDED_BEHIND, SHAW_ABSOLUTE, LEARNED_BY_SHAW, IDENTICAL, OUTPUTS_2_AND_5,
    POSITIONS_BY_BATCH, MOST_SYSTEMS,
)  # fmt: skip
