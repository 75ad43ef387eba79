"""attention_output: The average of the encoder states, weighted anew for each target position."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(weights, encoder_states):
    return weights @ encoder_states


exercise = Exercise(
    "attention_output",
    reference=lambda weights, encoder_states: weights @ encoder_states,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=4,
    hints=(
        "One output for each target position, as wide as an encoder state. Which axis has been summed over?",
        "Each output is the sum over i of weight[t, i] · encoder_state[i]: a row of the first input times the second, "
        "as matrices. Use the weights as they are; nothing is normalised or divided again.",
        "Every axis stays, also one of length one (no `squeeze`), and both inputs stay connected: an argmax or a "
        "`.detach()` lets no gradient through.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=1, hint=1)
def output(answer, draw):
    """a weighted average of the encoder states, one for each target position"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_target, n_source).softmax(dim=-1), draw.normal(batch, n_source, d))


@aspect("one weight of one", points=1, hint=2)
def one_weight_of_one(answer, draw):
    """all the weight on one state gives back that very state, and no weight at all gives zeros"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    weights = nn.functional.one_hot(draw.integers(n_source, batch, n_target), n_source).float()
    weights[draw.integers(batch, 1), draw.integers(n_target, 1)] = 0  # as for a sentence of nothing but padding
    return answer(weights, draw.normal(batch, n_source, d))


@aspect("one decoder state", points=1, hint=3)
def one_decoder_state(answer, draw):
    """works while translating, when there is one decoder state at a time"""
    n_source, d = draw.sizes(2, 2, 9)
    return answer(draw.normal(1, 1, n_source).softmax(dim=-1), draw.normal(1, n_source, d))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("weights", "encoder_states"))
def gradient(answer, draw):
    """the weights can be learned: the gradient reaches them and the states"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    weights = draw.normal(batch, n_target, n_source).softmax(dim=-1).requires_grad_()
    states = draw.normal(batch, n_source, d).requires_grad_()
    return way_back(answer(weights, states), weights @ states, [weights, states], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("output", "one weight of one", "one decoder state")
AVERAGE = "weights @ encoder_states"

slip("divided once more", ALL, {AVERAGE: f"{AVERAGE} / encoder_states.shape[1]"}, words="""
    The weights already sum to one, so their weighted sum is an average. Dividing by the number of source tokens (or
    taking `mean` where a sum is meant) shrinks it, and the longer the sentence, the more.""")
slip("softmax once more", ALL, {"weights": "weights.softmax(dim=-1)"}, words="""
    The weights went through softmax again. They already sum to one and lie between 0 and 1; softmax takes them for
    scores so close together that it makes them nearly equal. Use them as they are.""")
slip("normalised again", ("one weight of one", "gradient"),
     {"weights @": "weights / weights.sum(dim=-1, keepdim=True) @"}, words="""
    Each row of the weights was divided by its sum once more. Where it sums to one already that changes nothing but the
    gradient; a row of zeros, which exercise 2 makes of a sentence of padding, becomes 0/0. Use the weights as they
    are.""")
slip("squeezed axes", ("one decoder state",), {AVERAGE: f"({AVERAGE}).squeeze()"}, words="""
    `squeeze()` removes every axis of length one, even the batch's and the targets' when they happen to have length one.
    Keep the axes, or name the one that you mean.""")
slip("the first sentence's states for all", ("output", "one weight of one"),
     {"encoder_states": "encoder_states[0]"}, words="""
    Every sentence of the batch was given the states of the first one. Which sentence's encoder has read what this
    decoder translates? The batch axis stays: each b has weights and states of its own.""")
slip("cut off from the gradient", ("gradient",),
     {AVERAGE: f"({AVERAGE}).detach()"},
     {"weights": "weights.detach()"},
     {"encoder_states": "encoder_states.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. The weights must learn where to look, and the states what to offer.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("sums over the targets", fails=ALL)
def sums_over_the_targets(weights, encoder_states):
    """There is one result for each source position, so the target positions were added up. The answer belongs to
    the query: keep the target axis and sum over the source."""
    return torch.einsum("bti,bid->bid", weights, encoder_states)


@misconception("plain mean", fails=(*ALL, "gradient"))
def plain_mean(weights, encoder_states):
    """Every state counted the same, so every target position received the same summary. That is mean pooling. The
    weights are what makes it attention: use them."""
    return encoder_states.mean(dim=1, keepdim=True).expand(-1, weights.shape[1], -1)


@misconception("best match only", fails=(*ALL, "gradient"))
def best_match_only(weights, encoder_states):
    """This fetches the one state with the largest weight. It is a hard lookup: argmax has no gradient, so nothing could
    learn where to look. Average all states, each by its weight."""
    best = weights.argmax(dim=-1, keepdim=True).expand(-1, -1, encoder_states.shape[-1])
    return encoder_states.gather(1, best)


@misconception("not added up", fails=ALL)
def not_added_up(weights, encoder_states):
    """Each state was scaled by its weight, and then all of them were handed on. The point is a summary of fixed size:
    add them up over the source positions."""
    return weights[..., None] * encoder_states[:, None]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(weights, encoder_states):
    """Names the axes."""
    return torch.einsum("bti,bid->btd", weights, encoder_states)


@alternative("a running sum over the source")
def a_running_sum_over_the_source(weights, encoder_states):
    """Adds one source position at a time, without changing anything in place."""
    total = torch.zeros(())
    for i in range(encoder_states.shape[1]):
        total = total + weights[:, :, i, None] * encoder_states[:, i, None]
    return total


@alternative("float64, not contiguous")
def float64_not_contiguous(weights, encoder_states):
    """Computes the transposed product in double precision and returns a view."""
    return (encoder_states.double().mT @ weights.double().mT).mT
