"""repair_positions: Each token's vector plus the vector of its place in the text, counted from 0."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE, reached_where_heard


def reference(tokens, words, places):
    """Axis 1 of the tokens is the length."""
    return words[tokens] + places[: tokens.shape[1]]


def solution(tokens, words, places):
    n = tokens.shape[1]
    return words[tokens] + places[torch.arange(n)]               # (batch, n, d) + (n, d)


exercise = Exercise(
    "repair_positions",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Write the shape of everything beside it: tokens, `pos`, `places[pos]`, and what is added to what. Which axis "
        "of the tokens has a length that a position can count?",
        "The positions of one text are 0, 1, …, n − 1, and those of every text are the same. A tensor (n, d) is added "
        "to one of (batch, n, d) as it stands, and rows looked up in a table pass the gradient on to it.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _texts(draw, batch=None):
    """Tokens (batch, n), a table of words, and a table of places, two more than the text has."""
    drawn, n, d = draw.sizes(3, 3, 7)
    vocab_size = 11
    return draw.integers(vocab_size, batch or drawn, n), draw.normal(vocab_size, d), draw.normal(n + 2, d)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("sum", points=1, hint=1)
def observe_sum(answer, draw):
    """each token's vector and its position's"""
    return answer(*_texts(draw))


@aspect("company", points=0.5, hint=2, explain=explain_worst("it moves by {size} at {place}"))
def company(answer, draw):
    """a text gets the same vectors alone and as the last of its batch"""
    tokens, words, places = _texts(draw, batch=2)
    return require_variation(answer(tokens, words, places))[-1] - answer(tokens[-1:], words, places)[0]


@aspect("large batch", points=0.5, hint=1)
def large_batch(answer, draw):
    """more texts than the table has positions"""
    return answer(*_texts(draw, batch=12))


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("words", "places"))
def gradient(answer, draw):
    """words and places can both be learned"""
    n, d = draw.sizes(2, 3, 7)
    inputs = [draw.integers(11, n, n), draw.normal(11, d), draw.normal(n + 2, d)]      # as many texts as words
    return reached_where_heard(answer, inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_SUMS = ("sum", "company", "large batch")
SUMS = ("sum", "large batch")
POSITIONS, ADDED = "torch.arange(n)", "places[torch.arange(n)]"

slip("counts the texts", ALL_SUMS,
     {POSITIONS: "torch.arange(len(tokens)).unsqueeze(1)"},
     {POSITIONS: "torch.arange(len(tokens)).unsqueeze(1) % len(places)"},  # only the crash is avoided
     words="""
    The positions are counted along axis 0, and axis 0 is the batch. All words of a text get the same vector; which one
    depends on how many texts stand above it; and a batch that is larger than the table raises an error.""")

slip("one position for all", SUMS,
     {POSITIONS: "0"},
     {POSITIONS: "n - 1"},  # the last
     {ADDED: "places.mean(dim=0)"},
     words="""
    All words got the vector of one position. It does not depend on the batch any more, and says nothing about the place
    either: shuffle the words, and the same vectors come in a different order.""")

slip("the whole table", (*ALL_SUMS, "gradient"), {ADDED: "places"}, words="""
    The whole table was added, with a row for each place that a text may have. It fits only the longest text: a text of
    n words needs the first n rows.""")

slip("counts from 1", SUMS, {POSITIONS: f"{POSITIONS} + 1"}, words="""
    The first word got the vector of place 1, and that of place 0 is never used. Here positions are counted from 0.""")
slip("places looked up by token", SUMS,
     {POSITIONS: "tokens % len(places)"},
     {POSITIONS: "tokens.clamp(max=len(places) - 1)"},
     words="""
    A place's vector was looked up by the *token*: the same word gets the same "place" wherever it stands. What is
    looked up is the position, which is the same for all texts of a batch.""")
slip("positions left out", SUMS, {f" + {ADDED}": ""}, words="""
    There are no positions in what came back: it is the words' vectors alone.""")

slip("counts from the end", SUMS, {POSITIONS: f"{POSITIONS}.flip(0)"}, words="""
    The first word got the last position's vector. Position 0 is where a text begins.""")

slip("an axis too many", ALL_SUMS, {POSITIONS: f"{POSITIONS}.unsqueeze(1)"}, words="""
    The length is counted now, and then `unsqueeze(1)` makes the positions (n, 1). What is looked up is (n, 1, d), and
    its first axis meets the batch. Without that axis (n, d) fits (batch, n, d).""")


slip("cut off from the gradient", ("gradient",),
     {"words[tokens]": "words[tokens].detach()"},
     {ADDED: f"{ADDED}.detach()"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. A repaired line stands in a model that is to be trained.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("indices for every text")
def indices_for_every_text(tokens, words, places):
    """The positions are spelled out, (batch, n)."""
    batch, n = tokens.shape
    pos = torch.arange(n).unsqueeze(0).expand(batch, n)
    return torch.nn.functional.embedding(tokens, words) + torch.nn.functional.embedding(pos, places)


@alternative("word by word, in float64")
def word_by_word_in_float64(tokens, words, places):
    """A loop."""
    rows = [[words[t].double() + places[i].double() for i, t in enumerate(text.tolist())] for text in tokens]
    return torch.stack([torch.stack(row) for row in rows])


@alternative("one-hot products")
def one_hot_products(tokens, words, places):
    """Products with rows of zeros and a one."""
    one_hot = (tokens[..., None] == torch.arange(len(words))).to(words.dtype)
    return torch.einsum("bnv,vd->bnd", one_hot, words) + places.narrow(0, 0, tokens.shape[1])[None]
