"""grouped_query_attention: Scaled attention in which neighbouring query heads share keys and values."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def reference(query, key, value):
    """Groups of neighbouring query heads share one head of keys and values. Ainslie et al. 2023, section 2.2."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return attention.attend(query, key, value)[0]


def solution(query, key, value):
    shared = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(shared, dim=1)             # (batch, n_heads, n_key, d_head)
    value = value.repeat_interleave(shared, dim=1)         # (batch, n_heads, n_key, d_head)
    scores = query @ key.mT / math.sqrt(query.shape[-1])   # (batch, n_heads, n_query, n_key)
    return scores.softmax(dim=-1) @ value


exercise = Exercise(
    "grouped_query_attention",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "With 6 query heads and 2 of keys and values, heads 0, 1, 2 share the first and heads 3, 4, 5 the second. How "
        "many query heads share one? Write down, for each query head, which key head it uses.",
        "Bring keys and values to n_heads heads and you have plain multi-head attention. `repeat` gives 0 1 0 1 0 1, "
        "`repeat_interleave` gives 0 0 0 1 1 1.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _grouped(draw, n_heads, n_kv_heads):
    """[query, key, value], no two sizes alike but the heads."""
    batch, n_query, n_key, d_head = [size for size in draw.sizes(6, 2, 10) if size not in (n_heads, n_kv_heads)][:4]
    query = 1.2 * draw.normal(batch, n_heads, n_query, d_head)
    return [query, *(1.2 * draw.normal(batch, n_kv_heads, n_key, d_head) for _ in range(2))]


def _pointing(draw, n_heads, n_kv_heads):
    """[query, key, value] in which each query finds one key alone, whatever the scores are divided by."""
    batch, n_query, n_key = draw.sizes(3, 3, 9)
    places = draw.uniform(batch, n_kv_heads, n_key).argsort(dim=-1)
    goals = draw.integers(n_key, batch, n_heads, n_query)
    query, key = (14 * torch.eye(n_key + 1)[each] for each in (goals, places))
    return [query, key, draw.normal(batch, n_kv_heads, n_key, n_key + 1)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("groups", points=2, hint=1)
def groups(answer, draw):
    """neighbouring query heads share keys and values"""
    return answer(*_pointing(draw, *((6, 2), (6, 3), (8, 2), (8, 4))[draw.integers(4, 1)]))


@aspect("one for all", points=1, hint=2)
def one_for_all(answer, draw):
    """a single head of keys and values serves everybody: multi-query attention"""
    return answer(*_pointing(draw, 4, 1))


@aspect("one for each", points=1, hint=2)
def one_for_each(answer, draw):
    """as many as there are query heads: plain multi-head attention"""
    return answer(*_grouped(draw, 3, 3))


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("query", "key", "value"))
def gradient(answer, draw):
    """queries, keys and values can all be learned"""
    inputs = [x.requires_grad_() for x in _grouped(draw, 6, 2)]
    return gradient_reaches(answer(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

NOT_GROUPED = ("groups", "one for all")
ALL_GROUPS = ("groups", "one for all", "one for each")
KEYS, VALUES = "key.repeat_interleave(shared, dim=1)", "value.repeat_interleave(shared, dim=1)"
QUERY, SCALE = "scores = query", " / math.sqrt(query.shape[-1])"
OUTPUT = "return scores.softmax(dim=-1) @ value"

slip("repeat for repeat_interleave", ("groups",),
    {KEYS: "key.repeat(1, shared, 1, 1)", VALUES: "value.repeat(1, shared, 1, 1)"},
    words="""
    The key heads were dealt out like cards, 0 1 0 1 0 1: query heads 0 and 1 got different ones. Groups are
    *neighbouring* query heads, 0 0 0 1 1 1. Nothing crashes either way; only a checkpoint tells them apart.
    (`torch.repeat_interleave` is numpy's `repeat`; torch's `repeat` is numpy's `tile`.)""")
slip("keys grouped, values dealt out", ("groups",), {VALUES: "value.repeat(1, shared, 1, 1)"}, words="""
    A query head was compared with the keys of one group and then averaged the values of another. Keys and values belong
    together: whatever is done to the one must be done to the other, in the same way.""")
slip("6 heads against 2", ("groups", "gradient"),
    {KEYS: "key", VALUES: "value"},
    {KEYS: "key.repeat_interleave(shared, dim=2)", VALUES: "value.repeat_interleave(shared, dim=2)"},  # along n_key
    words="""
    When the product came, there were still more heads of queries than of keys. Broadcasting stretches only an axis of
    length 1: it serves one head of keys for all, and knows nothing of groups. Repeat keys and values along the heads'
    axis, the second (neither the batch's nor the tokens'), or give the query an axis for its groups.""")
slip("queries averaged in their group", NOT_GROUPED,
    {KEYS: "key", VALUES: "value", QUERY: f"{QUERY}.unflatten(1, (-1, shared)).mean(dim=2)"},
    words="""
    The queries of a group were averaged until there were only as many as there are keys. It is keys and values that are
    shared; every query head keeps its own question, and its own output.""")
slip("queries averaged in their group", NOT_GROUPED,
    {KEYS: "key", VALUES: "value", QUERY: f"{QUERY}.unflatten(1, (-1, shared)).mean(dim=2)",
     OUTPUT: "return (scores.softmax(dim=-1) @ value).repeat_interleave(shared, dim=1)"})
slip("a mask that nobody asked for", ALL_GROUPS,
    {OUTPUT: "past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()\n"
             "return scores.masked_fill(~past, -torch.inf).softmax(dim=-1) @ value"}, words="""
    A causal mask was applied. The contract has none: every query may see every key.""")
slip("surplus queries dropped", NOT_GROUPED,
    {KEYS: "key", VALUES: "value", QUERY: f"{QUERY}[:, : key.shape[1]]"},
    words="""
    Only the first heads' questions were asked, as many as there are keys. All query heads ask; several of them ask the
    same keys.""")
slip("group outputs averaged", NOT_GROUPED,
    {OUTPUT: "return (scores.softmax(dim=-1) @ value).unflatten(1, (-1, shared)).mean(dim=2)"},
    words="""
    The heads of a group were averaged at the end, so there is one output for each group. What is shared is keys and
    values; each query head found something of its own, and W_O wants all of it.""")
slip("one softmax for a group", NOT_GROUPED,
    {OUTPUT: "grouped = scores.unflatten(1, (-1, shared)).transpose(2, 3)\n"
             "weights = grouped.flatten(3).softmax(dim=-1).view_as(grouped).transpose(2, 3).flatten(1, 2)\n"
             "return weights @ value"}, words="""
    The heads of a group went through one softmax, so that their weights *together* sum to one. They share keys and
    values, and nothing else. Over what must the weights of one query in one head sum to one?""")
slip("the heads come back in another order", ("groups",),
    {OUTPUT: "return (scores.softmax(dim=-1) @ value).unflatten(1, (-1, shared)).transpose(1, 2).flatten(1, 2)"},
    words="""
    Each head's output is right, and they stand in another order: first the first head of every group, then the second
    of every group. W_O expects them as the query heads came. With 6 query heads in 2 groups, which head stands second
    in your output?""")
slip("the first keys for all", ("groups", "one for each"), {KEYS: "key[:, :1]", VALUES: "value[:, :1]"}, words="""
    Every query head used the first head of keys and values, and the others were never used. Head i belongs to
    group i // (n_heads / n_kv_heads).""")
slip("divided by the number of key heads", (*ALL_GROUPS, "gradient"),
    {"shared = query": "group = [head // key.shape[1] for head in range(query.shape[1])]\nshared = query",
     KEYS: "key[:, group]", VALUES: "value[:, group]"},
    words="""
    Query head i was given key head i // n_kv_heads. With 6 query heads and 2 of keys that is 0 0 1 1 2 2, and there is
    no key head 2. How many query heads share one head of keys? That is the number to divide by.""")
slip("not scaled", ("one for each",), {SCALE: ""}, words="""
    The scores were not divided by the root of the head's width.""")
slip("root of the wrong size", ("one for each",),
    {SCALE: " / math.sqrt(query.shape[1] * query.shape[-1])"},  # all heads' width
    {SCALE: " / math.sqrt(key.shape[2])"},  # the number of keys
    words="""
    The scores were divided by a root, but not that of the head's width. Sharing keys changes nothing about the dot
    product: it still sums over one head's columns, the last axis.""")
slip("cut off from the gradient", ("gradient",),
    {"= key.": "= key.detach().", "= value.": "= value.detach()."},
    {"= key.": "= key.detach()."},
    {"= value.": "= value.detach()."},
    {QUERY: f"{QUERY}.detach()"},
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `torch.tensor(...)` forget
    where numbers came from. (A cache holds numbers without gradients; in training there is no cache.)""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("6 heads against 2", fails=("groups", "one for all", "gradient"))
def repeated_along_the_batch(query, key, value):
    """Repeated along the batch."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=0) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("an axis for the groups")
def an_axis_for_the_groups(query, key, value):
    """Copies nothing: five axes, and broadcasting within the group."""
    query = query.unflatten(1, (key.shape[1], -1))
    scores = query @ key[:, :, None].mT / math.sqrt(query.shape[-1])
    return (scores.softmax(dim=-1) @ value[:, :, None]).flatten(1, 2)


@alternative("a loop over the query heads")
def a_loop_over_the_query_heads(query, key, value):
    """Says for each head which keys it uses."""
    shared = query.shape[1] // key.shape[1]
    outputs = []
    for head in range(query.shape[1]):
        group = head // shared
        scores = torch.bmm(query[:, head], key[:, group].mT) / query.shape[-1] ** 0.5
        outputs.append(torch.bmm(scores.softmax(dim=-1), value[:, group]))
    return torch.stack(outputs, dim=1)


@alternative("by index, in float64")
def by_index_in_float64(query, key, value):
    """Gathers the heads, not contiguous."""
    group = torch.arange(query.shape[1]) // (query.shape[1] // key.shape[1])
    scores = torch.einsum("bhqd,bhkd->bhkq", query.double(), key[:, group].double()) / math.sqrt(query.shape[-1])
    return torch.einsum("bhkq,bhkd->bhqd", scores.softmax(dim=2), value[:, group].double())


@alternative("expand, then reshape")
def expand_then_reshape(query, key, value):
    """As Llama's code does."""
    batch, n_kv_heads, n, d_head = key.shape
    shared = query.shape[1] // n_kv_heads
    key = key[:, :, None].expand(batch, n_kv_heads, shared, n, d_head).reshape(batch, -1, n, d_head)
    value = value[:, :, None].expand(batch, n_kv_heads, shared, n, d_head).reshape(batch, -1, n, d_head)
    return (query @ key.mT / math.sqrt(d_head)).softmax(dim=-1) @ value
