"""prefix_gap: By how much a text's logits change when the text goes on, for every beginning of it."""

import torch

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(model, tokens):
    """The largest absolute difference over all beginnings, beside the whole text."""
    whole, n = model(tokens), tokens.shape[1]
    beginnings = [model(tokens[:, :k]) - whole[:, :k] for k in range(1, n)]
    return torch.cat([gap.flatten() for gap in beginnings]).abs().max()


def solution(model, tokens):
    whole, largest = model(tokens), 0.0                          # (batch, n, vocab_size)
    for k in range(1, tokens.shape[1]):
        gap = model(tokens[:, :k]) - whole[:, :k]                # (batch, k, vocab_size)
        largest = max(largest, gap.abs().max().item())
    return largest


exercise = Exercise(
    "prefix_gap",
    reference=reference,
    solution=solution,
    returns=("gap",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    numbers=True,
    hints=(
        "Call the model once with the whole text. Then call it with a beginning, `tokens[:, :k]`, and compare its "
        "logits with those of the same tokens in the whole text. A difference may have either sign.",
        "Which beginnings are there? The shortest has one token, the longest lacks only the last token. Compare all k "
        "tokens of a beginning, not the newest alone.",
        "The batch has several texts, and the largest difference may be in any of them.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

VOCAB_SIZE = 11


def _causal(draw):
    """What a causal model returns: each token's own logits, and a mean over those up to it."""
    own, past = draw.normal(2, VOCAB_SIZE, VOCAB_SIZE)

    def model(tokens):
        counts = torch.arange(1, tokens.shape[1] + 1)[:, None]
        return own[tokens] + past[tokens].cumsum(dim=1) / counts

    return model


def _leaky(draw, n, leak):
    """A causal model, and on top of it what `leak` adds to some of its logits."""
    right, size = _causal(draw), 1 + draw.normal(VOCAB_SIZE).abs()

    def model(tokens):
        logits = right(tokens)
        return logits + leak(tokens, n)[..., None] * size

    return model


def _at(tokens, place, text=None):
    """1 for the token at this place, in one text or in all; 0 for the others, and where the text ends before."""
    marked = torch.zeros(tokens.shape)
    marked[slice(None) if text is None else text, place : place + 1] = 1.0
    return marked


def _when_whole(sign, text=None):
    """The first token's logits change when the text has all its tokens."""
    return lambda tokens, n: sign * _at(tokens, 0, text) * (tokens.shape[1] == n)


def _first_sees_the_next(tokens, n):
    return -_at(tokens, 0) * (tokens.shape[1] > 1)


def _last_but_one_sees_the_last(tokens, n):
    return -_at(tokens, n - 2) * (tokens.shape[1] == n)


def _at_length_four(tokens, n):
    return _at(tokens, 0) * (tokens.shape[1] == 4)


def _gaps(answer, draw, *leaks):
    """What the answer says of a model with each of these leaks, for texts (batch, n)."""
    batch, n = 2 + int(draw.integers(2, 1)), 6 + int(draw.integers(3, 1))
    tokens = draw.integers(VOCAB_SIZE, batch, n)
    return torch.stack([answer(_leaky(draw, n, leak), tokens).double() for leak in leaks])


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the largest change", points=0.5, hint=1)
def the_largest_change(answer, draw):
    """of a logit, up or down, when a model changes the first token's logits as soon as the text is whole"""
    return _gaps(answer, draw, _when_whole(-1.0), _when_whole(1.0))


@aspect("every beginning", points=0.5, hint=2)
def every_beginning(answer, draw):
    """finds a leak that only the shortest beginning shows, only the longest, or only that of four tokens"""
    return _gaps(answer, draw, _first_sees_the_next, _last_but_one_sees_the_last, _at_length_four)


@aspect("every text", points=0.5, hint=3)
def every_text(answer, draw):
    """finds a leak in the first text of the batch alone, or in the last alone"""
    return _gaps(answer, draw, _when_whole(-1.0, text=0), _when_whole(1.0, text=-1))


@aspect("no leak", points=0.5, hint=1)
def no_leak(answer, draw):
    """0, up to rounding, for a causal model"""
    gap = _gaps(answer, draw, lambda tokens, n: torch.zeros(tokens.shape))
    return torch.where(gap.abs() < 1e-4, 0.0, gap)


# -------------------------------------------------------------------------------------- one slip away from the solution

LEAKS = ("the largest change", "every beginning", "every text")
BEGINNINGS, TEXTS = ("every beginning",), ("every text",)
ALL = "range(1, tokens.shape[1])"
GAP = "gap = model(tokens[:, :k]) - whole[:, :k]"

slip("one beginning", BEGINNINGS,
     {ALL: "[tokens.shape[1] // 2]"}, {ALL: "[tokens.shape[1] - 1]"}, {ALL: "[1]"}, words="""
    Only one beginning was compared. A leak may show at one length alone, such as the last step before a text is whole.
    Compare every beginning.""")
slip("the longest beginning left out", BEGINNINGS, {ALL: "range(1, tokens.shape[1] - 1)"}, words="""
    `range` ends before its second number, so the longest beginning was not compared. It lacks only the last token.""")
slip("the shortest beginning left out", BEGINNINGS, {ALL: "range(2, tokens.shape[1])"}, words="""
    The beginning of one token was not compared. Only that one shows that the first token sees the second.""")
slip("the newest token alone", BEGINNINGS, {GAP: "gap = model(tokens[:, :k])[:, -1] - whole[:, k - 1]"}, words="""
    Of each beginning only the newest token was compared. The tokens before it may change, too: compare all k.""")
slip("the first text alone", TEXTS, {GAP: "gap = (model(tokens[:, :k]) - whole[:, :k])[0]"},
     {GAP: "gap = (model(tokens[:, :k]) - whole[:, :k])[-1]"}, words="""
    Only one text of the batch was compared. The largest difference may be in any of them.""")
slip("without its size", ("the largest change", *TEXTS), {"gap.abs().max()": "gap.max()"}, words="""
    The largest difference was taken with its sign, so a logit that moves the other way is not found. Take the absolute
    value first.""")
slip("without its size", LEAKS, {GAP: "gap = whole[:, :k] - model(tokens[:, :k])", "gap.abs().max()": "gap.max()"})
slip("the mean for the largest", LEAKS, {"gap.abs().max()": "gap.abs().mean()"}, words="""
    The differences were averaged. A leak in one token then looks small beside the many logits that stay. The contract
    asks for the largest difference.""")
slip("the end of the text for its beginning", (*LEAKS, "no leak"), {GAP: "gap = model(tokens[:, :k]) - whole[:, -k:]"},
     words="""
    The logits of a beginning were compared with those of the *last* k tokens of the whole text. The same tokens
    stand at its beginning, `whole[:, :k]`.""")


@misconception("another future of the same length", fails=LEAKS)
def another_future_of_the_same_length(model, tokens):
    """The tokens after the beginning were exchanged, and the text kept its length. That finds a token that sees the
    future. It does not find logits that depend on how *long* the text is. Call the model with the beginning alone."""
    whole, largest = model(tokens), 0.0
    for k in range(1, tokens.shape[1]):
        other = tokens.clone()
        other[:, k:] = 0
        largest = max(largest, (model(other)[:, :k] - whole[:, :k]).abs().max().item())
    return largest


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a list of gaps")
def a_list_of_gaps(model, tokens):
    """Tensors, and their maximum at the end."""
    whole = model(tokens)
    gaps = [(whole[:, :k] - model(tokens[:, :k])).abs().max() for k in range(1, tokens.shape[1])]
    return torch.stack(gaps).max()


@alternative("from the longest beginning to the shortest")
def from_the_longest_to_the_shortest(model, tokens):
    """Leaves out one more token with each call."""
    whole, text, largest = model(tokens), tokens, torch.tensor(0.0)
    while text.shape[1] > 1:
        text = text[:, :-1]
        gap = torch.dist(model(text), whole[:, : text.shape[1]], p=float("inf"))
        largest = torch.maximum(largest, gap)
    return largest


@alternative("row by row")
def row_by_row(model, tokens):
    """A text at a time, token by token, with torch.max of each."""
    largest = 0.0
    whole = model(tokens)
    for k in range(1, tokens.shape[1]):
        part = model(tokens[:, :k])
        for b in range(len(tokens)):
            for i in range(k):
                largest = max(largest, float((part[b, i] - whole[b, i]).abs().amax()))
    return largest
