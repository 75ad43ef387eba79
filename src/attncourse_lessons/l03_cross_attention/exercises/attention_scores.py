"""attention_scores: How well each target position matches each source position: plain dot products."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(decoder_states, encoder_states):
    return decoder_states @ encoder_states.mT


exercise = Exercise(
    "attention_scores",
    reference=attention.dot_score,
    solution=solution,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=5,
    hints=(
        "Write the shapes of the two inputs under each other, then the shape of the result. The axis that has gone was "
        "summed over: each score is a dot product. Batched, that is one matrix product.",
        "Matrix products pair the last axis of the left factor with the last but one of the right: transpose one "
        "input. `.mT` swaps the last two axes and leaves the batch alone.",
        "Every axis stays, also one of length one (no `squeeze`), and every score stays a tensor: `.item()` and "
        "`.detach()` cut it off from what is to be learned.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("scores", points=2, hint=1)
def scores(answer, draw):
    """one dot product for every pair of a target and a source position"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_target, d), draw.normal(batch, n_source, d))


@aspect("one decoder state", points=1, hint=3)
def one_decoder_state(answer, draw):
    """works while translating, when there is one decoder state at a time"""
    n_source, d = draw.sizes(2, 2, 9)
    return answer(draw.normal(1, 1, d), draw.normal(1, n_source, d))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("decoder_states", "encoder_states"))
def gradient(answer, draw):
    """the score can be learned from: its gradient reaches both networks"""
    batch, d, *lengths = draw.sizes(4, 2, 9)
    n_target, n_source = sorted(lengths)
    states = [draw.normal(batch, n, d).requires_grad_() for n in (n_target, n_source)]
    return way_back(answer(*states), attention.dot_score(*states), states, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("scores", "one decoder state")
SCORES = "decoder_states @ encoder_states.mT"

slip("keys from the decoder", (*ALL, "gradient"), {"encoder_states": "decoder_states"}, words="""
    Each decoder state was scored against the decoder's own states. In cross-attention the decoder only asks; the states
    that are asked, the keys, are the encoder's. (Scoring a sequence against itself is self-attention, lecture
    @self_attention.)""")
slip("a row for each source word", ALL, {SCORES: "encoder_states @ decoder_states.mT"}, words="""
    Rows and columns are swapped. Row t belongs to target position t, because each target position will distribute its
    attention over the source: targets down the rows, source positions along them.""")
slip("scaled by √d", ALL, {SCORES: f"{SCORES} / encoder_states.shape[-1] ** 0.5"}, words="""
    Dividing by √d is a good idea, and lecture @lookup shows why, but it makes a different score: the scaled dot
    product. Here the plain dot product is asked for, as in Luong et al. (2015).""")
slip("cut off from the gradient", ("gradient",),
     {"encoder_states": "encoder_states.detach()"},
     {"decoder_states": "decoder_states.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.item()`, `.detach()`, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations.""")
slip("reshaped for transposed", ALL, {".mT": ".reshape(len(encoder_states), encoder_states.shape[-1], -1)"}, words="""
    `reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several states. The shape fits and the numbers do not. Swap the two axes instead: which tensor
    method does that?""")
slip("`.T` on three axes", (*ALL, "gradient"), {".mT": ".T"}, words="""
    `.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a batch
    only the last two axes change places: `.mT`, or `transpose(-2, -1)`.""")
slip("by the angle alone", ALL,
     {SCORES: "torch.cosine_similarity(decoder_states[:, :, None], encoder_states[:, None], dim=-1)"},
     {SCORES: "torch.nn.functional.normalize(decoder_states, dim=-1) "
              "@ torch.nn.functional.normalize(encoder_states, dim=-1).mT"},
     {"decoder_states @": "torch.nn.functional.normalize(decoder_states, dim=-1) @"},  # one side alone
     {"encoder_states.mT": "torch.nn.functional.normalize(encoder_states, dim=-1).mT"},
     words="""
    States were brought to length one first, so that only their direction counts (of both, that is cosine similarity).
    It makes a reasonable score, but the dot product is asked for: leave the states as they come.""")
slip("softmax already applied", ALL, {SCORES: f"({SCORES}).softmax(dim=-1)"}, words="""
    These are weights: each row sums to one. Scores are the bare dot products, of any size and sign. Softmax is the next
    exercise, where it must respect the mask.""")
slip("squeezed axes", ("one decoder state",), {SCORES: f"({SCORES}).squeeze()"}, words="""
    `squeeze()` removes every axis of length one, even the batch's and the targets' when they happen to have length one.
    Keep the axes, or name the one that you mean.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("as many source as target words", fails=ALL)
def as_many_source_as_target_words(decoder_states, encoder_states):
    """One length was used for both sentences. A translation is rarely as long as its source: the table of scores has
    n_target rows and n_source columns, and slides that print T × T for it are mistaken."""
    batch, n, _ = decoder_states.shape
    scores = decoder_states.new_zeros(batch, n, n)
    for t in range(n):
        for i in range(n):
            scores[:, t, i] = (decoder_states[:, t] * encoder_states[:, i]).sum(dim=-1)
    return scores


@variant("cut off from the gradient", fails=("gradient",))
def number_by_number(decoder_states, encoder_states):
    """Each score taken out of its tensor by `.item()`."""
    batch, n_target, _ = decoder_states.shape
    scores = torch.zeros(batch, n_target, encoder_states.shape[1])
    for b in range(batch):
        for t in range(n_target):
            for i in range(encoder_states.shape[1]):
                scores[b, t, i] = (decoder_states[b, t] @ encoder_states[b, i]).item()
    return scores


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(decoder_states, encoder_states):
    """Names the axes."""
    return torch.einsum("btd,bid->bti", decoder_states, encoder_states)


@alternative("products, then a sum")
def products_then_a_sum(decoder_states, encoder_states):
    """Broadcasts to four axes and sums the last."""
    return (decoder_states[:, :, None] * encoder_states[:, None]).sum(dim=-1)


@alternative("a loop over target positions")
def a_loop_over_target_positions(decoder_states, encoder_states):
    """One row of the table at a time."""
    rows = [torch.bmm(encoder_states, decoder_states[:, t, :, None])[..., 0] for t in range(decoder_states.shape[1])]
    return torch.stack(rows, dim=1)


@alternative("float64, not contiguous")
def float64_not_contiguous(decoder_states, encoder_states):
    """Computes in double precision and returns a transposed view."""
    return (encoder_states.double() @ decoder_states.double().mT).mT
