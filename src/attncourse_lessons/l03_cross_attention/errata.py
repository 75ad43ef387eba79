"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

from torch import Tensor

from attncourse_lessons.slides.erratum import (
    CSE576,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    causal,
    drawn,
    equal,
    places,
    rows_share_one,
)


def _zeroed(scores: Tensor) -> Tensor:
    i, j = places(len(scores))
    return scores.softmax(dim=-1) * (j <= i)


WEIGHTS_ZEROED = Erratum(
    name="weights set to 0",
    decks=(CSE576, PARAMETRIC),
    place="Barriers and solutions for Self-Attention as a building block",
    claim="Mask out the future by artificially setting attention weights to 0!",
    correction="as a result, yes: both decks set *scores* to −∞ a slide earlier. As a recipe after the softmax, no",
    question="Does each row sum to one?",
    printed=causal,
    misread=_zeroed,
    corrected=causal,
    check=rows_share_one,
    kind="no error",
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
    claim="ZQKᵀHᵀ ∈ R^(T×T); all three use one letter, T, for both lengths",
    correction="T_target × T_source",
    question="Three target tokens attend to five source tokens: is that the shape of the scores?",
    printed=_one_length,
    corrected=_two_lengths,
    check=_shape_of_the_table,
    by="shapes",
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
    printed=lambda: ({"x_i", "z_i"}, {"h_i", "z_i"}),
    corrected=lambda: ({"h_i", "z_i"}, {"h_i", "z_i"}),
    check=_all_declared,
    by="shapes",
)


def _look(asking: Tensor, answering: Tensor) -> Tensor:
    return (asking @ answering.mT).softmax(dim=-1) @ answering


def _one_answer_a_target_word(cross) -> Finding:
    return equal(len(cross(drawn(3, 4), drawn(5, 4))), 3, "for 3 target and 5 source tokens: outputs")


ENCODER_CROSS = Erratum(
    name="the encoder's cross-attention",
    decks=(PARAMETRIC,),
    place="The Transformer Encoder: Cross-attention (details)",
    claim="The Transformer Encoder: Cross-attention",
    correction="a heading alone: it is the decoder's, and the slide below it has that right",
    question="Is there one output for each target token?",
    printed=lambda decoder, encoder: _look(encoder, decoder),
    corrected=lambda decoder, encoder: _look(decoder, encoder),
    check=_one_answer_a_target_word,
    by="shapes",
)

ERRATA = (WEIGHTS_ZEROED, SQUARE_TABLE, X_FOR_H, ENCODER_CROSS)
