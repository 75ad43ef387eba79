"""interchange: What a layer's heads put out if one key, or one value, comes from another run."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def reference(query, key, value, other_key, other_value, head, place):
    """Activation patching of one head's key, or value, at one place of each sentence. Zhang and Nanda 2024."""
    here = torch.zeros(key.shape[:3], dtype=torch.bool)                   # (batch, n_heads, n)
    here[torch.arange(len(key)), head, place] = True
    with_key = attention.attend(query, torch.where(here[..., None], other_key, key), value)[0]
    with_value = attention.attend(query, key, torch.where(here[..., None], other_value, value))[0]
    return with_key, with_value


def solution(query, key, value, other_key, other_value, head, place):
    def attend(key, value):
        scores = query @ key.mT / math.sqrt(query.shape[-1])       # (batch, n_heads, n, n)
        return scores.softmax(dim=-1) @ value

    sentence = torch.arange(len(place))                            # (batch,)
    new_key, new_value = key.clone(), value.clone()
    new_key[sentence, head, place] = other_key[sentence, head, place]
    new_value[sentence, head, place] = other_value[sentence, head, place]
    return attend(new_key, value), attend(key, new_value)


exercise = Exercise(
    "interchange",
    reference=reference,
    solution=solution,
    returns=("with_key", "with_value"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Two runs of plain attention, and each has one changed tensor: the first a new key beside the old values, the "
        "second the old keys beside a new value. `clone()` first, so that the tensors that came in stay as they are.",
        "`x[sentence, head, place]` with two index tensors of shape (batch,) picks one vector of each sentence. "
        "`x[:, head, place]` would pick all the places in every sentence.",
        "Stay with tensor operations: the gradient must reach both runs.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _runs(draw, same_place=True):
    """[query, key, value, other_key, other_value, head, place]: a head that is not the first, and places."""
    batch, n_heads, n, d_head = draw.sizes(4, 3, 7)
    tensors = [1.5 * draw.normal(batch, n_heads, n, d_head) for _ in range(5)]
    head = 1 + int(draw.integers(n_heads - 1, 1))
    place = 1 + draw.integers(n - 1, 1).expand(batch) if same_place else torch.arange(batch) % n
    return [*tensors, head, place.clone()]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the key", points=1, hint=1)
def the_key(answer, draw):
    """the head attends with the other run's key at this place"""
    inputs = _runs(draw)
    return answer(*inputs)[0][:, inputs[5]]


@aspect("the value", points=1, hint=1)
def the_value(answer, draw):
    """the head averages with the other run's value at this place"""
    inputs = _runs(draw)
    return answer(*inputs)[1][:, inputs[5]]


@aspect("other heads", points=1, hint=2)
def other_heads(answer, draw):
    """all other heads put out what they put out anyway"""
    inputs = _runs(draw)
    rest = [head for head in range(inputs[0].shape[1]) if head != inputs[5]]
    return torch.stack([output[:, rest] for output in answer(*inputs)])


@aspect("each its place", points=1, hint=2)
def each_its_place(answer, draw):
    """each sentence has a place of its own"""
    return torch.stack(list(answer(*_runs(draw, same_place=False))))


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient(
    "query", "key", "value", "other_key", "other_value"))  # fmt: skip
def gradient(answer, draw):
    """the gradient reaches both runs"""
    *tensors, head, place = _runs(draw)
    inputs = [tensor.requires_grad_() for tensor in tensors]
    return gradient_reaches(torch.stack(list(answer(*inputs, head, place))), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

BOTH, HEADS = ("the key", "the value", "each its place"), ("the key", "the value", "other heads", "each its place")
PUT_KEY = "new_key[sentence, head, place] = other_key[sentence, head, place]"
PUT_VALUE = "new_value[sentence, head, place] = other_value[sentence, head, place]"
RETURN = "return attend(new_key, value), attend(key, new_value)"

slip("every place in every sentence", ("each its place",),
     {PUT_KEY: "new_key[:, head, place] = other_key[:, head, place]",
      PUT_VALUE: "new_value[:, head, place] = other_value[:, head, place]"}, words="""
    `x[:, head, place]` takes *all* the places from every sentence, so a sentence was also exchanged where only another
    one should be. Two index tensors of the same length go together, number by number: a sentence with its place.""")
slip("all heads exchanged", ("other heads", "each its place"),
     {PUT_KEY: "new_key[sentence, :, place] = other_key[sentence, :, place]",
      PUT_VALUE: "new_value[sentence, :, place] = other_value[sentence, :, place]"}, words="""
    The vectors of all heads were exchanged. The question is what *one* head reads there; the others must put out what
    they put out anyway.""")
slip("all places exchanged", BOTH,
     {PUT_KEY: "new_key[:, head] = other_key[:, head]", PUT_VALUE: "new_value[:, head] = other_value[:, head]"},
     words="""
    The head got the keys (and the values) of all places from the other run. What it then puts out is nearly that run's;
    it says nothing about this one place.""")
slip("key and value together", BOTH, {RETURN: "return (attend(new_key, new_value),) * 2"}, words="""
    The key and the value were exchanged at once. Then nobody can tell which of the two carried the difference: it takes
    two runs with one exchange each.""")
slip("the two runs swapped", BOTH, {RETURN: "return attend(key, new_value), attend(new_key, value)"}, words="""
    The two results stand in the wrong order: first the run with the other *key*, then that with the other value.""")
slip("the wrong direction", HEADS,
     {"key.clone(), value.clone()": "other_key.clone(), other_value.clone()",
      PUT_KEY: PUT_KEY.replace("= other_key", "= key"), PUT_VALUE: PUT_VALUE.replace("= other_value", "= value"),
      RETURN: "return attend(new_key, other_value), attend(other_key, new_value)"}, words="""
    This is the *other* run, with one vector of this one. Asked for is this run with one vector of the other.""")
slip("zero for the other vector", (*BOTH, "gradient"),
     {PUT_KEY: "new_key[sentence, head, place] = 0.0", PUT_VALUE: "new_value[sentence, head, place] = 0.0"}, words="""
    The vector was set to zero: an ablation. An interchange puts the other run's vector in its place, so the layer sees
    one that it might have seen anyway.""")
slip("half of each", BOTH,
     {PUT_KEY: PUT_KEY.replace("= ", "+= "), PUT_VALUE: PUT_VALUE.replace("= ", "+= ")}, words="""
    The other vector was added to the old one. It takes its place.""")
slip("not scaled", HEADS, {" / math.sqrt(query.shape[-1])": ""}, words="""
    The scores were not divided by the root of the head's width.""")
slip("cut off from the gradient", ("gradient",),
     {"= other_key[": "= other_key.detach()[", "= other_value[": "= other_value.detach()["}, words="""
    The numbers are right, but the gradient does not reach the other run: `.detach()`, `.data`, numpy and
    `torch.tensor(...)` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the output exchanged", fails=BOTH)
def the_output_exchanged(query, key, value, other_key, other_value, head, place):
    """The head's *output* at this place was exchanged. But a key and a value are read by all queries: after the
    interchange the head's output may differ everywhere, and at this place it need not be the other run's."""
    scale = math.sqrt(query.shape[-1])
    output = (query @ key.mT / scale).softmax(dim=-1) @ value
    results = []
    for other in ((query @ other_key.mT / scale).softmax(dim=-1) @ value,
                  (query @ key.mT / scale).softmax(dim=-1) @ other_value):  # fmt: skip
        sentence, result = torch.arange(len(place)), output.clone()
        result[sentence, head, place] = other[sentence, head, place]
        results.append(result)
    return tuple(results)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("torch.where with a mask")
def where_with_a_mask(query, key, value, other_key, other_value, head, place):
    """Says for every vector whether it is exchanged."""
    n_heads, n = key.shape[1:3]
    of_head = (torch.arange(n_heads) == head)[None, :, None, None]
    at_place = (torch.arange(n) == place[:, None])[:, None, :, None]
    new_key = torch.where(of_head & at_place, other_key, key)
    new_value = torch.where(of_head & at_place, other_value, value)
    scale = query.shape[-1] ** -0.5
    weights, new_weights = ((query @ x.mT * scale).softmax(dim=-1) for x in (key, new_key))
    return new_weights @ value, weights @ new_value


@alternative("sentence by sentence")
def sentence_by_sentence(query, key, value, other_key, other_value, head, place):
    """A loop, with slices that are joined."""
    def put(x, other):
        sentences = []
        for i, p in enumerate(place.tolist()):
            row = torch.cat([x[i, head, :p], other[i, head, p : p + 1], x[i, head, p + 1 :]])
            sentences.append(torch.cat([x[i, :head], row[None], x[i, head + 1 :]]))
        return torch.stack(sentences)

    def attend(key, value):
        return torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1]), dim=-1) @ value

    return attend(put(key, other_key), value), attend(key, put(value, other_value))


@alternative("the difference, in float64")
def the_difference_in_float64(query, key, value, other_key, other_value, head, place):
    """Adds what the exchange changes: a column of scores, and one row of values times its weights."""
    query, key, value, other_key, other_value = (x.double() for x in (query, key, value, other_key, other_value))
    here = torch.zeros(key.shape[:3], dtype=torch.double).index_put(
        (torch.arange(len(place)), torch.full_like(place, head), place), torch.ones(len(place), dtype=torch.double)
    )[..., None]                                                          # (batch, n_heads, n, 1)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key)
    more = torch.einsum("bhqd,bhkd->bhqk", query, here * (other_key - key))
    scale = math.sqrt(query.shape[-1])
    weights = (scores / scale).softmax(dim=-1)
    return ((scores + more) / scale).softmax(dim=-1) @ value, weights @ value + weights @ (here * (other_value - value))
