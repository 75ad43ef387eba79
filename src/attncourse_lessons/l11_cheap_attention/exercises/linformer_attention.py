"""linformer_attention: Attention over k mixtures of the keys, in time and memory that grow like n · k."""

import math

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives, told
from lessonkit.exercises.observe import reached, telling

from .common import READY_MADE


def solution(query, key, value, E, F, mask):
    n_key, d = key.shape[1:]
    missing = ~mask[:, :, None]                                  # (batch, n_key, 1)
    mixed_keys = E[:, :n_key] @ key.masked_fill(missing, 0.0)    # (batch, k, d)
    mixed_values = F[:, :n_key] @ value.masked_fill(missing, 0.0)
    weights = (query @ mixed_keys.mT / math.sqrt(d)).softmax(dim=-1)             # (batch, n_query, k)
    return weights @ mixed_values


exercise = Exercise(
    "linformer_attention",
    reference=efficient.linformer_attend,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Write the shapes: E is (k, n_max), the keys are (batch, n_key, d). Which product leaves k mixtures of keys?",
        "After the mixing it is plain attention over k keys in place of n: scores (batch, n_query, k), scale, softmax, "
        "average.",
        "A padded key must not get into any mixture. After the mixing it is too late to take it out. What must it be "
        "before, and must the same be done to the values?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _mixed(draw, fewer: int) -> list[Tensor]:
    """[query, key, value, E, F, mask] with `fewer` keys than n_max and nothing padded; no two sizes alike."""
    n_query, n_key, k, d, d_v = draw.sizes(5, 3, 9)
    shapes = (2, n_query, d), (2, n_key, d), (2, n_key, d_v), (k, n_key + fewer), (k, n_key + fewer)
    inputs = [draw.normal(*shape) for shape in shapes]
    return [*inputs, torch.ones(2, n_key, dtype=torch.bool)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2)
def output(answer, draw):
    """attention over k mixtures of the keys, with k mixtures of the values"""
    return answer(*_mixed(draw, 0))


@aspect("shorter than E and F", points=1)
def shorter_than_e_and_f(answer, draw):
    """a sequence of fewer keys than n_max uses the first columns"""
    return answer(*_mixed(draw, 3))


@aspect(
    "padding", points=1, explain=told("at {place} the output is {size} away from that of the sentence without padding")
)
def padding(answer, draw):
    """a padded sentence gives what it gives without its padding"""
    query, key, value, E, F, mask = _mixed(draw, 0)
    mask = draw.padding_mask(2, key.shape[1])
    alone = []
    for i, n in enumerate(mask.sum(dim=1).tolist()):
        sentence = query[i : i + 1], key[i : i + 1, :n], value[i : i + 1, :n]
        alone.append(answer(*sentence, E[:, :n], F[:, :n], mask[i : i + 1, :n]))
    return telling(answer(query, key, value, E, F, mask)) - torch.cat(alone)


@aspect("gradient", points=1, explain=arrives("query", "key", "value", "E", "F"))
def gradient(answer, draw):
    """queries, keys, values and both mixings can be learned"""
    *inputs, mask = _mixed(draw, 0)
    inputs = [x.requires_grad_() for x in inputs]
    return reached(answer(*inputs, mask), inputs, draw)


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("not scaled", fails=("output", "shorter than E and F"))
def not_scaled(query, key, value, E, F, mask):
    """The scores went into the softmax without the root of the width."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("scaled by how many keys there are", fails=("output", "shorter than E and F"))
def scaled_by_how_many_keys_there_are(query, key, value, E, F, mask):
    """The scores were divided by the root of a *number of keys*. What a dot product adds up over is the width of
    queries and keys, and mixing along the length has not changed that."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(E.shape[0])).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("E for the values too", fails=("output", "shorter than E and F", "gradient"))
def e_for_the_values_too(query, key, value, E, F, mask):
    """Keys and values were mixed by the same matrix, and F has never been used: no gradient reaches it. (The paper
    tries this sharing too, and it costs little; the contract here has two matrices.)"""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (E[:, :n] @ value)


@misconception("E and F have changed places", fails=("output", "shorter than E and F"))
def e_and_f_have_changed_places(query, key, value, E, F, mask):
    """F has mixed the keys and E the values. E belongs to the keys."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (F[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (E[:, :n] @ value)


@misconception("the weights are mixed", fails=("output", "shorter than E and F"))
def the_weights_are_mixed(query, key, value, E, F, mask):
    """The softmax was taken over all n keys, and its weights were mixed afterwards. That table of n × n weights is what
    we wanted to be rid of: mix the keys *before* they meet the queries, and the softmax has k columns."""
    n = key.shape[-2]
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ E[:, :n].T @ (F[:, :n] @ value.masked_fill(~mask[..., None], 0.0))


@misconception("the queries are mixed too", fails=("output", "shorter than E and F", "padding"))
def the_queries_are_mixed_too(query, key, value, E, F, mask):
    """The output has k rows. Every query wants an answer of its own, so queries are not mixed, only what they look
    at."""
    n, n_query = key.shape[-2], query.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    mixed = E[:, :n_query] @ query[:, : E.shape[1]]
    return (mixed @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("the last columns for a short sequence", fails=("shorter than E and F",))
def the_last_columns_for_a_short_sequence(query, key, value, E, F, mask):
    """A short sequence was mixed by the *last* columns of E and F. Column j belongs to position j, and positions are
    counted from the beginning."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, -n:] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, -n:] @ value)


@misconception("only sequences of n_max", fails=("shorter than E and F",))
def only_sequences_of_n_max(query, key, value, E, F, mask):
    """E has a column for each of n_max positions, and there are fewer keys than that: the product does not fit. The
    columns of the positions that are not there are not needed."""
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F @ value)


@misconception("ignores the mask", fails=("padding",))
def ignores_the_mask(query, key, value, E, F, mask):
    """Padded keys and values went into the mixtures, so what happens to stand in the padding decides the answer."""
    n = key.shape[-2]
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception(
    "masks the scores, as before", fails=("output", "shorter than E and F", "padding", "gradient")
)
def masks_the_scores_as_before(query, key, value, E, F, mask):
    """The mask was put on the scores, as in ordinary attention. But there are k scores for a query here, one for each
    *mixture*, and the mask has a place for each of n keys: the two do not fit. What a padded key has to say is in all
    mixtures by then, so it must be taken out earlier."""
    n = key.shape[-2]
    scores = query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("masks the keys alone", fails=("padding",))
def masks_the_keys_alone(query, key, value, E, F, mask):
    """The padded keys are out of their mixtures, but the padded values are still in theirs. There is no weight left
    that could keep them out: a mixture has one weight for all that is in it."""
    n = key.shape[-2]
    key = key.masked_fill(~mask[..., None], 0.0)
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("−∞ in the keys", fails=("padding",))
def in_the_keys(query, key, value, E, F, mask):
    """Setting −∞, or something very negative, is for *scores*, just before a softmax. In a key it gets into every
    mixture and drowns the others there (and ∞ − ∞ is NaN). A key that should not count in a *sum* has to be something
    else."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], -torch.inf) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@variant("−∞ in the keys", fails=("padding",))
def in_the_keys_2(query, key, value, E, F, mask):
    """A large number in place of −∞, and the values right."""
    n = key.shape[-2]
    key, value = key.masked_fill(~mask[..., None], -1e9), value.masked_fill(~mask[..., None], 0.0)
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@misconception("normalises over the queries", fails=("output", "shorter than E and F"))
def normalises_over_the_queries(query, key, value, E, F, mask):
    """The columns sum to one in place of the rows: each query shares out its attention over the k mixtures."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-2) @ (F[:, :n] @ value)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(query, key, value, E, F, mask):
    """Names the axes, and gives the mask to the mixing matrices."""
    E_here, F_here = (x[:, : key.shape[1]] * mask[:, None] for x in (E, F))
    keys, values = torch.einsum("bkn,bnd->bkd", E_here, key), torch.einsum("bkn,bnd->bkd", F_here, value)
    scores = torch.einsum("bqd,bkd->bqk", query, keys) * query.shape[-1] ** -0.5
    return torch.einsum("bqk,bkd->bqd", scores.softmax(dim=2), values)


@alternative("sentence by sentence")
def sentence_by_sentence(query, key, value, E, F, mask):
    """Picks the real keys out first."""
    outputs = []
    for q, k, v, real in zip(query, key, value, mask, strict=True):
        columns = real.nonzero().squeeze(-1)
        mixed_keys, mixed_values = E[:, columns] @ k[columns], F[:, columns] @ v[columns]
        outputs.append(torch.softmax(q @ mixed_keys.T / math.sqrt(k.shape[-1]), dim=-1) @ mixed_values)
    return torch.stack(outputs)


@alternative("float64, not contiguous")
def float64_not_contiguous(query, key, value, E, F, mask):
    """Fills the sequence up to n_max with zeros instead of cutting E and F."""
    batch, n, d = key.shape
    there = mask.double()[..., None]
    keys = torch.cat([key * there, torch.zeros(batch, E.shape[1] - n, d).double()], dim=1)
    values = torch.cat([value * there, torch.zeros(batch, E.shape[1] - n, value.shape[-1]).double()], dim=1)
    weights = (query.double() @ (E.double() @ keys).mT / d**0.5).softmax(dim=-1)
    return (weights @ (F.double() @ values)).mT.contiguous().mT
