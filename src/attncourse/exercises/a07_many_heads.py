"""Assignment 07: many heads, fewer keys than queries, and how many numbers all that is.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import attention, sizes
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, row_sums, told
from attncourse.exercises.observe import reached, telling
from attncourse.transformer import LanguageModel, TransformerConfig

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
)


# ---------------------------------------------------------------------------------------------------- scaled_attention


def _scaled_attention(query, key, value):
    """softmax(q · k / √d_k) averages v. Vaswani et al. 2017, equation 1."""
    return attention.attend(query, key, value)


scaled_attention = Exercise(
    "scaled_attention",
    reference=_scaled_attention,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Four steps: scores, scale, softmax, average. Which of the three inputs' widths did the dot products sum "
        "over? The scale is the root of that width.",
        "There may be two axes in front of the words, or one, or none: count axes from the end. `.mT` swaps the last "
        "two, and the softmax runs over the last.",
    ),
)


def _asked(draw, *in_front):
    """[query, key, value] with these axes in front, no two sizes alike."""
    n_query, n_key, d_k, d_v = [size for size in draw.sizes(4 + len(in_front), 3, 10) if size not in in_front][:4]
    return [1.2 * draw.normal(*in_front, n, d) for n, d in ((n_query, d_k), (n_key, d_k), (n_key, d_v))]


@scaled_attention.aspect("weights", points=2, explain=row_sums)
def _(answer, draw):
    """softmax of the scaled scores: each query shares out exactly one over the keys"""
    return answer(*_asked(draw, 2))[1]


@scaled_attention.aspect(
    "output", points=1, explain=told("the output differs from your `weights` times `value` by {size}, at {place}")
)
def _(answer, draw):
    """the values, averaged by these weights"""
    query, key, value = _asked(draw, 2)
    output, weights = answer(query, key, value)
    return telling(output) - weights.to(value.dtype) @ value


@scaled_attention.aspect(
    "axes in front", points=1, explain=told("a head by itself gets an output that differs by {size} at {place}")
)
def _(answer, draw):
    """heads, sentences, or neither: what stands in front of the words is left alone"""
    inputs = _asked(draw, 2, 3)
    output, _ = answer(*inputs)                                           # (2, 3, n_query, d_v)
    alone = [[answer(*(x[b, h] for x in inputs))[0] for h in range(3)] for b in range(2)]
    return telling(output) - torch.stack([torch.stack(row) for row in alone])


@scaled_attention.aspect("gradient", points=1, explain=arrives("query", "key", "value"))
def _(answer, draw):
    """queries, keys and values can all be learned"""
    inputs = [x.requires_grad_() for x in _asked(draw, 2)]
    return reached(answer(*inputs)[0], inputs, draw)


@scaled_attention.misconception("not scaled", fails=("weights",))
def _(query, key, value):
    """The plain dot products went into the softmax. Their variance grows with the width of the vectors, and softmax
    over large scores is a hard choice whose gradient is next to nothing. What do you divide by?"""
    weights = (query @ key.mT).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("no root", fails=("weights",))
def _(query, key, value):
    """The scores were divided by the width itself. It is the *variance* that is d_k; the scores' size is its root.
    Divided by d_k they shrink towards 0 as heads get wider, and every softmax approaches the plain mean."""
    weights = (query @ key.mT / key.shape[-1]).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("root of the wrong size", fails=("weights",))
def _(query, key, value):
    """The scores were divided by a root, but not that of d_k. A dot product adds up over the last axis of queries and
    keys, and how many terms it adds up is what its size depends on: not the values' width, not the number of words."""
    weights = (query @ key.mT / math.sqrt(value.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.variant("root of the wrong size", fails=("weights",))
def _(query, key, value):
    """The number of keys."""
    weights = (query @ key.mT / math.sqrt(key.shape[-2])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.variant("root of the wrong size", fails=("weights",))
def _(query, key, value):
    """The number of queries."""
    weights = (query @ key.mT / math.sqrt(query.shape[-2])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("by each key's length", fails=("weights",))
def _(query, key, value):
    """Each score was divided by a number of its own, made from the length of its key vector. That changes who wins, not
    only how sharply. (A deck writes √|k|, which invites that reading.) What is meant is how *many* numbers there are in
    a key, and that is the same for all keys."""
    weights = (query @ key.mT / key.norm(dim=-1).sqrt().unsqueeze(-2)).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.variant("by each key's length", fails=("weights",))
def _(query, key, value):
    """Without the root."""
    weights = (query @ key.mT / key.norm(dim=-1).unsqueeze(-2)).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("multiplied in place of divided", fails=("weights",))
def _(query, key, value):
    """The scores were multiplied by √d_k, which makes large ones larger still. The aim is the opposite: scores of size
    about 1, whatever the width."""
    weights = (query @ key.mT * math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("scaled after the softmax", fails=("weights",))
def _(query, key, value):
    """The weights were divided by √d_k, so a row no longer sums to one. The scale belongs to the scores: it decides how
    sharply the softmax chooses, and the softmax then makes shares of them."""
    weights = (query @ key.mT).softmax(dim=-1) / math.sqrt(key.shape[-1])
    return weights @ value, weights


@scaled_attention.misconception("softmax over the queries", fails=("weights",))
def _(query, key, value):
    """The columns sum to one, as if each key shared itself out among those who ask. It is the query that has one unit
    to give: normalise along its row."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-2)
    return weights @ value, weights


@scaled_attention.misconception("axes counted from the front", fails=("axes in front",))
def _(query, key, value):
    """With one axis in front of the words it works. `dim=2`, or `transpose(1, 2)`, means a different axis as soon as
    there is one more in front, the heads', or one fewer. Counted from the end, the words are always the last axis but
    one, and the width the last."""
    weights = (query @ key.transpose(1, 2) / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.variant("axes counted from the front", fails=("axes in front",))
def _(query, key, value):
    """In the softmax."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=2)
    return weights @ value, weights


@scaled_attention.variant("axes counted from the front", fails=("axes in front",))
def _(query, key, value):
    """With bmm."""
    weights = (torch.bmm(query, key.mT) / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return torch.bmm(weights, value), weights


@scaled_attention.variant("axes counted from the front", fails=("weights", "output", "axes in front", "gradient"))
def _(query, key, value):
    """With .T, which turns all axes round."""
    weights = (query @ key.T / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.variant("root of the wrong size", "axes counted from the front", fails=("weights", "axes in front"))
def _(query, key, value):
    """The size of axis 1, whatever that is."""
    weights = (query @ key.mT / math.sqrt(query.shape[1])).softmax(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("softmax over the first axis", fails=("weights", "axes in front"))
def _(query, key, value):
    """The softmax ran over the first axis, the sentences, so what one of them gets depends on which others came along.
    (Without a `dim`, `softmax` guesses one, and of three axes it takes the first.) A query's row is the last axis."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=0)
    return weights @ value, weights


@scaled_attention.variant("softmax over the first axis", fails=("weights", "axes in front"))
def _(query, key, value):
    """Guessed by torch."""
    weights = nn.functional.softmax(query @ key.mT / math.sqrt(key.shape[-1]))
    return weights @ value, weights


@scaled_attention.misconception("sum without its axis", fails=("weights", "output", "axes in front", "gradient"))
def _(query, key, value):
    """The exponentials were divided by a sum that had lost its last axis. Axes are matched from the end, so each row's
    sum was matched with something other than its row. `keepdim=True` leaves an axis of length 1 where the keys were."""
    exponentials = (query @ key.mT / math.sqrt(key.shape[-1])).exp()
    weights = exponentials / exponentials.sum(dim=-1)
    return weights @ value, weights


@scaled_attention.misconception("keys averaged", fails=("output", "axes in front", "gradient"))
def _(query, key, value):
    """The weights averaged the keys, and the values were not used. A key is what one is found by; the value is what one
    hands over."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights @ key, weights


@scaled_attention.misconception("scores for weights", fails=("weights", "output"))
def _(query, key, value):
    """What came back as weights are the scores, from before the softmax: they do not sum to one. Return what the values
    were averaged with."""
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    return scores.softmax(dim=-1) @ value, scores


@scaled_attention.misconception("weights first", fails=("weights", "output", "axes in front", "gradient"))
def _(query, key, value):
    """The two results came back in the wrong order. The contract is output, then weights."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights, weights @ value


@scaled_attention.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key, value):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. Stay with tensor operations."""
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1).detach()
    return weights @ value, weights


@scaled_attention.alternative("the query scaled beforehand")
def _(query, key, value):
    """A smaller tensor to divide."""
    weights = torch.softmax((query / key.shape[-1] ** 0.5) @ key.transpose(-2, -1), dim=-1)
    return torch.matmul(weights, value), weights


@scaled_attention.alternative("einsum")
def _(query, key, value):
    """Names the axes."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    weights = scores.softmax(-1)
    return torch.einsum("...qk,...kd->...qd", weights, value), weights


@scaled_attention.alternative("a loop over the queries")
def _(query, key, value):
    """One query at a time, exponentials by hand."""
    rows = []
    for i in range(query.shape[-2]):
        scores = (query[..., i, None, :] * key).sum(dim=-1) / math.sqrt(key.shape[-1])
        exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        rows.append(exponentials / exponentials.sum(dim=-1, keepdim=True))
    weights = torch.stack(rows, dim=-2)
    return weights @ value, weights


@scaled_attention.alternative("float64, not contiguous")
def _(query, key, value):
    """Computes the transposed table in double precision and returns views."""
    weights = (key.double() @ query.double().mT / math.sqrt(key.shape[-1])).softmax(dim=-2).mT
    return (value.double().mT @ weights.mT).mT.float(), weights.float()


# --------------------------------------------------------------------------------------------------------- split_heads


def _split_heads(x, n_heads):
    """(batch, n, n_heads · d_head) -> (batch, n_heads, n, d_head)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


split_heads = Exercise(
    "split_heads",
    reference=_split_heads,
    returns=("heads",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Write down d_head first. Then two moves: cut the last axis in two, and after that exchange two axes.",
        "`x.view(batch, n, n_heads, d_head)` cuts each word's vector into pieces, in order. Which two axes must change "
        "places, so that the heads come before the words?",
    ),
)


def _wide(draw, n=None):
    """(x, n_heads) for n words, no two sizes alike."""
    batch, words, n_heads, d_head = draw.sizes(4, 2, 6)
    return draw.normal(batch, n or words, n_heads * d_head), n_heads


@split_heads.aspect("heads", points=2)
def _(answer, draw):
    """head 0 has the first d_head columns of every word, head 1 the next"""
    return answer(*_wide(draw))


@split_heads.aspect("one word", points=1)
def _(answer, draw):
    """works while translating, when there is one word at a time"""
    return answer(*_wide(draw, n=1))


@split_heads.aspect("gradient", points=1, explain=arrives("x"))
def _(answer, draw):
    """the gradient finds its way back"""
    x, n_heads = _wide(draw)
    return reached(answer(x.requires_grad_(), n_heads), [x], draw)


@split_heads.misconception("view without transpose", fails=("heads",))
def _(x, n_heads):
    """The shape is right and the numbers are not. `view` and `reshape` never move a number: they read them in the order
    in which they lie, word after word, and only break the rows in different places. So head 0 got all columns of the
    first words, and no head saw the whole sentence. Cut the *last* axis in two, and then exchange axes."""
    batch, n, d_model = x.shape
    return x.reshape(batch, n_heads, n, d_model // n_heads)


@split_heads.misconception("every h-th column", fails=("heads", "one word"))
def _(x, n_heads):
    """Head 0 got columns 0, h, 2h, … A network trained from scratch would not mind, but a checkpoint would: the
    contract gives each head a block of neighbouring columns, as published models do. Which of the two new axes comes
    first when the last one is cut?"""
    batch, n, d_model = x.shape
    return x.view(batch, n, d_model // n_heads, n_heads).permute(0, 3, 1, 2)


@split_heads.misconception("heads after the words", fails=("heads", "one word"))
def _(x, n_heads):
    """The last axis was cut, and nothing more was done: (batch, n, n_heads, d_head). A matrix product works on the last
    two axes, so it would compare a word's heads with each other. The words must be the last axis but one."""
    batch, n, d_model = x.shape
    return x.view(batch, n, n_heads, d_model // n_heads)


@split_heads.misconception("n_heads for the width", fails=("heads", "one word"))
def _(x, n_heads):
    """The pieces are n_heads wide, and there are d_head of them: the two numbers have been swapped. `n_heads` says how
    many heads there are; how wide each is follows from it."""
    batch, n, d_model = x.shape
    return x.view(batch, n, d_model // n_heads, n_heads).transpose(1, 2)


@split_heads.misconception("heads before the batch", fails=("heads", "one word"))
def _(x, n_heads):
    """The heads are right, and they stand in front of the batch. The contract is (batch, n_heads, n, d_head)."""
    return torch.stack(x.chunk(n_heads, dim=-1))


@split_heads.misconception("cut off from the gradient", fails=("gradient",))
def _(x, n_heads):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.tensor(...)`
    forget where numbers came from."""
    batch, n, d_model = x.shape
    return x.detach().view(batch, n, n_heads, d_model // n_heads).transpose(1, 2)


@split_heads.alternative("view and transpose")
def _(x, n_heads):
    """The usual two lines."""
    batch, n, d_model = x.shape
    return x.view(batch, n, n_heads, d_model // n_heads).transpose(1, 2)


@split_heads.alternative("slices, stacked")
def _(x, n_heads):
    """A loop over the heads."""
    d_head = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(n_heads)], dim=1)


@split_heads.alternative("chunks, in float64 and contiguous")
def _(x, n_heads):
    """Copies."""
    return torch.stack(x.double().chunk(n_heads, dim=-1), dim=1).contiguous()


@split_heads.alternative("words last, then a view")
def _(x, n_heads):
    """Here a view may stand at the head of the line: the columns come first."""
    return x.mT.unflatten(1, (n_heads, -1)).mT


# --------------------------------------------------------------------------------------------------------- merge_heads


def _merge_heads(heads):
    """(batch, n_heads, n, d_head) -> (batch, n, n_heads · d_head)."""
    return heads.transpose(1, 2).flatten(2)


merge_heads = Exercise(
    "merge_heads",
    reference=_merge_heads,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "It is `split_heads` backwards: the same two moves, the last one first.",
        "After the transpose the numbers lie in memory in a different order from the one in which they are now to be "
        "read. `view` refuses then; `reshape` and `flatten` make a copy.",
    ),
)


def _heads(draw, n=None):
    batch, n_heads, words, d_head = draw.sizes(4, 2, 6)
    return draw.normal(batch, n_heads, n or words, d_head)


@merge_heads.aspect("side by side", points=2)
def _(answer, draw):
    """each word gets its heads' outputs, head 0's first"""
    return answer(_heads(draw))


@merge_heads.aspect("one word", points=1)
def _(answer, draw):
    """works while translating, when there is one word at a time"""
    return answer(_heads(draw, n=1))


@merge_heads.aspect("gradient", points=1, explain=arrives("heads"))
def _(answer, draw):
    """the gradient finds its way back"""
    heads = _heads(draw).requires_grad_()
    return reached(answer(heads), [heads], draw)


@merge_heads.misconception("view without transpose", fails=("side by side",))
def _(heads):
    """The shape is right and the numbers are not. `reshape` reads them in the order in which they lie, head after head,
    so the first row holds several words of head 0 and nothing of the other heads. First bring a word's pieces
    together: which two axes must change places?"""
    batch, n_heads, n, d_head = heads.shape
    return heads.reshape(batch, n, n_heads * d_head)


@merge_heads.misconception("heads interleaved", fails=("side by side", "one word"))
def _(heads):
    """The pieces were shuffled into each other: the first number of every head, then the second of every head. The
    contract is concatenation, all of head 0 and then all of head 1: W_O expects them so. Which axis must be the last
    before you flatten?"""
    return heads.permute(0, 2, 3, 1).flatten(2)


@merge_heads.misconception("heads added up", fails=("side by side", "one word"))
def _(heads):
    """The heads were added (or averaged), so that nobody can tell what each of them found. They are put side by side;
    it is W_O, in the next exercise, that mixes them, with weights that are learned."""
    return heads.sum(dim=1)


@merge_heads.variant("heads added up", fails=("side by side", "one word"))
def _(heads):
    """Averaged."""
    return heads.mean(dim=1)


@merge_heads.misconception("heads for words", fails=("side by side", "one word"))
def _(heads):
    """The heads were put one below the other, n_heads · n rows of width d_head. A word has one row: what its heads
    found stands *in* that row, side by side."""
    return heads.flatten(1, 2)


@merge_heads.misconception("not flattened", fails=("side by side", "one word"))
def _(heads):
    """The axes are exchanged, but the last two are still separate: (batch, n, n_heads, d_head). Make one of them."""
    return heads.transpose(1, 2)


@merge_heads.misconception("view of a transposed tensor", fails=("side by side", "gradient"))
def _(heads):
    """You are nearly there. After `transpose` the numbers still lie in memory in the old order, and `view`, which never
    copies, cannot read them in the new one. Ask for a copy: `.contiguous()` before the `view`, or `reshape`."""
    batch, n_heads, n, d_head = heads.shape
    return heads.transpose(1, 2).view(batch, n, n_heads * d_head)


@merge_heads.misconception("cut off from the gradient", fails=("gradient",))
def _(heads):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.tensor(...)`
    forget where numbers came from."""
    return heads.detach().transpose(1, 2).flatten(2)


@merge_heads.alternative("contiguous, then a view")
def _(heads):
    """The usual line."""
    batch, n_heads, n, d_head = heads.shape
    return heads.transpose(1, 2).contiguous().view(batch, n, n_heads * d_head)


@merge_heads.alternative("concatenated")
def _(heads):
    """A loop over the heads, as the equation has it."""
    return torch.cat([heads[:, h] for h in range(heads.shape[1])], dim=-1)


@merge_heads.alternative("einsum in float64")
def _(heads):
    """Exchanges the axes by name."""
    return torch.einsum("bhnd->bnhd", heads.double()).reshape(heads.shape[0], heads.shape[2], -1)


# -------------------------------------------------------------------------------------------------- MultiHeadAttention

MultiHeadAttention = Exercise(
    "MultiHeadAttention",
    reference=attention.MultiHeadAttention,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    hints=(
        "x asks, the memory answers. Project, split (three times), attend, merge, project: six lines. Through all of "
        "it the heads are an axis like the batch, which nothing sums over.",
        "The scores are (batch, n_heads, n_query, n_key). Divide them by the root of the width over which *one "
        "head's* dot product sums. The mask is (batch, 1, n_key): where must one more axis of length 1 go, so that it "
        "serves all heads?",
        "`mask[:, None]` is (batch, 1, 1, n_key). After the softmax: `weights @ value`, `.transpose(1, 2).flatten(2)`, "
        "and `self.output` of that.",
    ),
)


def _module(answer, draw, n_heads=None):
    """A built module, x (batch, n_query, d_model) and a memory (batch, n_key, d_model)."""
    batch, heads, d_head, n_query, n_key = draw.sizes(5, 2, 7)
    d_model = (n_heads or heads) * d_head
    x, memory = draw.normal(batch, n_query, d_model) / 2, draw.normal(batch, n_key, d_model) / 2
    return answer.build(draw, d_model, n_heads or heads), x, memory


@MultiHeadAttention.aspect("self-attention", points=2)
def _(answer, draw):
    """each head attends in its own columns; W_O joins what they found"""
    module, x, _ = _module(answer, draw)
    return module(x)


@MultiHeadAttention.aspect("one head", points=1)
def _(answer, draw):
    """with one head it is plain scaled attention, then W_O"""
    module, x, _ = _module(answer, draw, n_heads=1)
    return module(x)


@MultiHeadAttention.aspect(
    "a memory", points=1, explain=told("the first word's output {place} changes by {size} when the others of x change")
)
def _(answer, draw):
    """where there is a memory it alone answers: x only asks"""
    module, x, memory = _module(answer, draw)
    other = torch.cat([x[:, :1], draw.normal(*x[:, 1:].shape) / 2], dim=1)
    output = module(x, memory)
    if torch.equal(output, module(x, 1 - memory)):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    return telling(output[:, 0]) - module(other, memory)[:, 0]


@MultiHeadAttention.aspect(
    "mask", points=1, explain=told("output {place} is off by {size} from what the words without the padding give")
)
def _(answer, draw):
    """a sentence gets what it would get if there were no padding"""
    module, x, memory = _module(answer, draw)
    mask = draw.padding_mask(*memory.shape[:2])                           # (batch, n_key)
    padded = memory + 3 * draw.normal(*memory.shape) * ~mask[..., None]
    output = module(x, padded, mask[:, None])
    if torch.equal(output, module(x, 1 - padded, mask[:, None])):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    words = [(x[i : i + 1], memory[i : i + 1, :n], mask[i : i + 1, None, :n]) for i, n in enumerate(mask.sum(dim=1))]
    return telling(output) - torch.cat([module(*sentence) for sentence in words])


LEARNED = ("x", "query.weight", "key.weight", "value.weight", "output.weight")


@MultiHeadAttention.aspect("gradient", points=1, explain=arrives(*LEARNED))
def _(answer, draw):
    """all four projections can be learned"""
    module, x, _ = _module(answer, draw)
    x.requires_grad_()
    return reached(module(x), [x, *(module.parameter(name) for name in LEARNED[1:])], draw)


@MultiHeadAttention.misconception("view without transpose", fails=("self-attention", "mask"))
def _(self, x, memory=None, mask=None):
    """The projected vectors were viewed as (batch, n_heads, n, d_head) directly. The shape is right, and each head got
    all columns of a few words in place of a few columns of all words: positions get mixed up, padding included. Cut the
    last axis first, then transpose."""
    memory = x if memory is None else memory
    batch, d_head = x.shape[0], x.shape[-1] // self.n_heads
    query = self.query(x).reshape(batch, self.n_heads, -1, d_head)
    key = self.key(memory).reshape(batch, self.n_heads, -1, d_head)
    value = self.value(memory).reshape(batch, self.n_heads, -1, d_head)
    scores = query @ key.mT / math.sqrt(d_head)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.reshape(x.shape))


@MultiHeadAttention.misconception("merged without transpose", fails=("self-attention", "a memory"))
def _(self, x, memory=None, mask=None):
    """The heads were split as they should be, and the result was reshaped to (batch, n, d_model) with the heads still
    in front of the words. A row then holds several words of one head. Swap the axes back before you flatten."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.reshape(x.shape))


@MultiHeadAttention.misconception("√d_model", fails=("self-attention",))
def _(self, x, memory=None, mask=None):
    """The scores were divided by the root of the whole width. A head's dot product sums over that head's columns alone,
    and these are d_model / n_heads. With √d_model the scores of a narrow head are too small, and its softmax too
    flat."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(x.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("not scaled", fails=("self-attention", "one head"))
def _(self, x, memory=None, mask=None):
    """The scores were not divided by anything. (Some slides leave the root out where heads are introduced, and for
    cross-attention; it is there all the same.)"""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("no W_O", fails=("self-attention", "one head", "gradient"))
def _(self, x, memory=None, mask=None):
    """The heads were put side by side and handed on. Then head 0 can only ever write into the first columns, and the
    last layer, `self.output`, learns nothing. That layer is what lets every head write everywhere."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return output.transpose(1, 2).flatten(2)


@MultiHeadAttention.misconception("one wide head", fails=("self-attention",))
def _(self, x, memory=None, mask=None):
    """The vectors were never cut: this is one head, d_model wide, whatever `n_heads` says. Everything fits, and there
    is a single table of weights."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return self.output(scores.softmax(dim=-1) @ value)


@MultiHeadAttention.misconception("softmax over the heads", fails=("self-attention", "one head", "mask"))
def _(self, x, memory=None, mask=None):
    """`dim=1` is now the heads' axis: the heads shared out each pair of words among themselves. Every head has a unit
    of its own for every query, to share out over the keys: the last axis, however many there are in front."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("heads look at heads", fails=("self-attention", "one head", "a memory", "mask"))
def _(self, x, memory=None, mask=None):
    """The axes were (batch, n, n_heads, d_head) when the matrix product came, and a product works on the last two. So
    in each word its heads looked at each other, and no word saw another. Bring the words next to the width first."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.flatten(2))


@MultiHeadAttention.misconception("ignores the memory", fails=("a memory", "mask"))
def _(self, x, memory=None, mask=None):
    """Keys, values or both came from x although there was a memory. x asks; what answers is the memory, where there is
    one. That is the whole difference between self-attention and cross-attention."""
    query, key, value = self.query(x), self.key(x), self.value(x)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.variant("ignores the memory", fails=("a memory", "mask"))
def _(self, x, memory=None, mask=None):
    """For the values alone."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(x)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.variant("ignores the memory", fails=("a memory", "mask"))
def _(self, x, memory=None, mask=None):
    """Self-attention, and no more."""
    query, key, value = self.query(x), self.key(x), self.value(x)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception(
    "a mask taken for granted", fails=("self-attention", "one head", "a memory", "gradient")
)
def _(self, x, memory=None, mask=None):
    """Without a mask it breaks down: `mask` is None then, and None can be neither negated nor broadcast. Where nothing
    is padded nobody passes a mask; leave the scores as they are."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("padding set to zero", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The padding's vectors were set to zero, and still took part: a zero vector has a score like any other, and draws
    weight away from the words. It is the scores that must become −∞, so that no weight is left for it."""
    memory = x if memory is None else memory
    if mask is not None:
        memory = memory * mask.mT
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


@MultiHeadAttention.variant("padding set to zero", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The scores and the values."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores, value = scores * mask[:, None], value * mask[:, None].mT
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("ignores the mask", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The padding took part: change what stands there, and the answer changes. Give padded positions a score of −∞, in
    every head."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("mask upside down", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The words were silenced and the padding was heard. True means "may attend": fill where the mask is False."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("mask without an axis for the heads", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The mask (batch, 1, n_key) met scores (batch, n_heads, n_query, n_key). Axes are matched from the end, so its
    batch was taken for the heads: an error if you are lucky, and another sentence's mask if the two sizes happen to
    agree. It needs one more axis, for the heads; where?"""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("masks after the softmax", fails=("mask",))
def _(self, x, memory=None, mask=None):
    """The padding's weights are 0, but its scores were still in softmax's denominator, so the rows no longer sum to one
    and what stands in the padding changes the answer. Mask the scores first."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    if mask is not None:
        weights = weights * mask[:, None]
    return self.output((weights @ value).transpose(1, 2).flatten(2))


@MultiHeadAttention.misconception("cut off from the gradient", fails=("gradient",))
def _(self, x, memory=None, mask=None):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. Where to look is what must be learned."""
    memory = x if memory is None else memory
    query, key, value = self.query(x), self.key(memory), self.value(memory)
    query, key, value = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in (query, key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1).detach() @ value
    return self.output(output.transpose(1, 2).flatten(2))


@MultiHeadAttention.alternative("view and transpose")
def _(self, x, memory=None, mask=None):
    """The usual way."""
    memory = x if memory is None else memory
    (batch, n_query, d_model), n_key = x.shape, memory.shape[1]
    d_head = d_model // self.n_heads
    query = self.query(x).view(batch, n_query, self.n_heads, d_head).transpose(1, 2)
    key = self.key(memory).view(batch, n_key, self.n_heads, d_head).transpose(1, 2)
    value = self.value(memory).view(batch, n_key, self.n_heads, d_head).transpose(1, 2)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_head)
    if mask is not None:
        scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
    output = scores.softmax(dim=-1) @ value
    return self.output(output.transpose(1, 2).contiguous().view(batch, n_query, d_model))


@MultiHeadAttention.alternative("a loop over the heads")
def _(self, x, memory=None, mask=None):
    """As the equation has it: each head from its own columns, then side by side."""
    if memory is None:
        memory = x
    found = []
    pieces = [projected.chunk(self.n_heads, dim=-1) for projected in (self.query(x), self.key(memory))]
    for query, key, value in zip(*pieces, self.value(memory).chunk(self.n_heads, dim=-1), strict=True):
        scores = torch.bmm(query, key.mT) / key.shape[-1] ** 0.5
        if mask is not None:
            scores = torch.where(mask, scores, -1e9)
        found.append(torch.bmm(scores.softmax(dim=-1), value))
    return self.output(torch.cat(found, dim=-1))


@MultiHeadAttention.alternative("W_O by heads, with einsum")
def _(self, x, memory=None, mask=None):
    """Sums over the heads what each of them writes, and never puts them side by side."""
    memory = x if memory is None else memory
    query = self.query(x).unflatten(-1, (self.n_heads, -1))
    key = self.key(memory).unflatten(-1, (self.n_heads, -1))
    value = self.value(memory).unflatten(-1, (self.n_heads, -1))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[:, None]
    output = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), value)
    by_head = self.output.weight.unflatten(1, (self.n_heads, -1))
    return torch.einsum("bqhd,ohd->bqo", output, by_head) + self.output.bias


@MultiHeadAttention.alternative("heads folded into the batch")
def _(self, x, memory=None, mask=None):
    """Three axes throughout, in float64."""
    memory = x if memory is None else memory

    def folded(y):
        return y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2).flatten(0, 1).double()

    query, key, value = folded(self.query(x)), folded(self.key(memory)), folded(self.value(memory))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask.repeat_interleave(self.n_heads, dim=0), -torch.inf)
    output = (scores.softmax(dim=-1) @ value).float()
    return self.output(output.unflatten(0, (-1, self.n_heads)).transpose(1, 2).flatten(2))


# --------------------------------------------------------------------------------------------- grouped_query_attention


def _grouped_query_attention(query, key, value):
    """Groups of neighbouring query heads share one head of keys and values. Ainslie et al. 2023, section 2.2."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return attention.attend(query, key, value)[0]


grouped_query_attention = Exercise(
    "grouped_query_attention",
    reference=_grouped_query_attention,
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


def _grouped(draw, n_heads, n_kv_heads):
    """[query, key, value], no two sizes alike but the heads."""
    batch, n_query, n_key, d_head = [size for size in draw.sizes(6, 2, 10) if size not in (n_heads, n_kv_heads)][:4]
    query = 1.2 * draw.normal(batch, n_heads, n_query, d_head)
    return [query, *(1.2 * draw.normal(batch, n_kv_heads, n_key, d_head) for _ in range(2))]


@grouped_query_attention.aspect("groups", points=2)
def _(answer, draw):
    """neighbouring query heads share keys and values"""
    return answer(*_grouped(draw, *((6, 2), (6, 3), (8, 2), (8, 4))[draw.integers(4, 1)]))


@grouped_query_attention.aspect("one for all", points=1)
def _(answer, draw):
    """a single head of keys and values serves everybody: multi-query attention"""
    return answer(*_grouped(draw, 4, 1))


@grouped_query_attention.aspect("one for each", points=1)
def _(answer, draw):
    """as many as there are query heads: plain multi-head attention"""
    return answer(*_grouped(draw, 3, 3))


@grouped_query_attention.aspect("gradient", points=1, explain=arrives("query", "key", "value"))
def _(answer, draw):
    """queries, keys and values can all be learned"""
    inputs = [x.requires_grad_() for x in _grouped(draw, 6, 2)]
    return reached(answer(*inputs), inputs, draw)


NOT_GROUPED = ("groups", "one for all")
ALL_GROUPS = ("groups", "one for all", "one for each")


@grouped_query_attention.misconception("repeat for repeat_interleave", fails=("groups",))
def _(query, key, value):
    """The key heads were dealt out like cards, 0 1 0 1 0 1: query heads 0 and 1 got different ones. Groups are
    *neighbouring* query heads, 0 0 0 1 1 1. Nothing crashes either way; only a checkpoint tells them apart.
    (`torch.repeat_interleave` is numpy's `repeat`; torch's `repeat` is numpy's `tile`.)"""
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat(1, shared, 1, 1), value.repeat(1, shared, 1, 1)
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("keys grouped, values dealt out", fails=("groups",))
def _(query, key, value):
    """A query head was compared with the keys of one group and then averaged the values of another. Keys and values
    belong together: whatever is done to the one must be done to the other, in the same way."""
    shared = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(shared, dim=1), value.repeat(1, shared, 1, 1)
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("6 heads against 2", fails=("groups", "gradient"))
def _(query, key, value):
    """When the product came, there were still more heads of queries than of keys. Broadcasting stretches only an axis
    of length 1: it serves one head of keys for all, and knows nothing of groups. Repeat keys and values along the
    heads' axis, the second (neither the batch's nor the words'), or give the query an axis for its groups."""
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.variant("6 heads against 2", fails=("groups", "one for all", "gradient"))
def _(query, key, value):
    """Repeated along the batch."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=0) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.variant("6 heads against 2", fails=("groups", "gradient"))
def _(query, key, value):
    """Repeated along the words."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=2) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("queries averaged in their group", fails=NOT_GROUPED)
def _(query, key, value):
    """The queries of a group were averaged until there were only as many as there are keys. It is keys and values that
    are shared; every query head keeps its own question, and its own output."""
    n_kv_heads = key.shape[1]
    query = query.unflatten(1, (n_kv_heads, -1)).mean(dim=2)
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("surplus queries dropped", fails=NOT_GROUPED)
def _(query, key, value):
    """Only the first heads' questions were asked, as many as there are keys. All query heads ask; several of them ask
    the same keys."""
    query = query[:, : key.shape[1]]
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("the first keys for all", fails=("groups", "one for each"))
def _(query, key, value):
    """Every query head used the first head of keys and values, and the others were never looked at. Head i belongs to
    group i // (n_heads / n_kv_heads)."""
    key, value = key[:, :1], value[:, :1]
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("not scaled", fails=ALL_GROUPS)
def _(query, key, value):
    """The groups are right, but the scores were not divided by the root of the head's width."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return (query @ key.mT).softmax(dim=-1) @ value


@grouped_query_attention.misconception("root of the wrong size", fails=ALL_GROUPS)
def _(query, key, value):
    """The scores were divided by a root, but not that of the head's width. Sharing keys changes nothing about the dot
    product: it still sums over one head's columns, the last axis."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.shape[1] * query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.variant("root of the wrong size", fails=ALL_GROUPS)
def _(query, key, value):
    """The number of keys."""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(shared, dim=1) for x in (key, value))
    return (query @ key.mT / math.sqrt(key.shape[2])).softmax(dim=-1) @ value


@grouped_query_attention.misconception("group outputs averaged", fails=NOT_GROUPED)
def _(query, key, value):
    """The heads of a group were averaged at the end, so there is one output for each group. What is shared is keys and
    values; each query head found something of its own, and W_O wants all of it."""
    n_kv_heads = key.shape[1]
    query = query.unflatten(1, (n_kv_heads, -1))
    scores = query @ key.unsqueeze(2).mT / math.sqrt(query.shape[-1])
    return (scores.softmax(dim=-1) @ value.unsqueeze(2)).mean(dim=2)


@grouped_query_attention.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key, value):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `torch.tensor(...)` forget
    where numbers came from. (A cache holds numbers without gradients; in training there is no cache.)"""
    shared = query.shape[1] // key.shape[1]
    key, value = (x.detach().repeat_interleave(shared, dim=1) for x in (key, value))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


@grouped_query_attention.alternative("an axis for the groups")
def _(query, key, value):
    """Copies nothing: five axes, and broadcasting within the group."""
    query = query.unflatten(1, (key.shape[1], -1))
    scores = query @ key[:, :, None].mT / math.sqrt(query.shape[-1])
    return (scores.softmax(dim=-1) @ value[:, :, None]).flatten(1, 2)


@grouped_query_attention.alternative("a loop over the query heads")
def _(query, key, value):
    """Says for each head which keys it uses."""
    shared = query.shape[1] // key.shape[1]
    outputs = []
    for head in range(query.shape[1]):
        group = head // shared
        scores = torch.bmm(query[:, head], key[:, group].mT) / query.shape[-1] ** 0.5
        outputs.append(torch.bmm(scores.softmax(dim=-1), value[:, group]))
    return torch.stack(outputs, dim=1)


@grouped_query_attention.alternative("by index, in float64")
def _(query, key, value):
    """Gathers the heads, not contiguous."""
    group = torch.arange(query.shape[1]) // (query.shape[1] // key.shape[1])
    scores = torch.einsum("bhqd,bhkd->bhkq", query.double(), key[:, group].double()) / math.sqrt(query.shape[-1])
    return torch.einsum("bhkq,bhkd->bhqd", scores.softmax(dim=2), value[:, group].double())


@grouped_query_attention.alternative("expand, then reshape")
def _(query, key, value):
    """As Llama's code does."""
    batch, n_kv_heads, n, d_head = key.shape
    shared = query.shape[1] // n_kv_heads
    key = key[:, :, None].expand(batch, n_kv_heads, shared, n, d_head).reshape(batch, -1, n, d_head)
    value = value[:, :, None].expand(batch, n_kv_heads, shared, n, d_head).reshape(batch, -1, n, d_head)
    return (query @ key.mT / math.sqrt(d_head)).softmax(dim=-1) @ value


# ---------------------------------------------------------------------------------------------------- count_parameters


def _count_parameters(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """GPT's shape: learned positions, biases, LayerNorms in front and one at the end, the output tied."""
    config = TransformerConfig(
        vocabulary=vocabulary, max_length=max_length, n_layers=n_layers, d_model=d_model, n_heads=n_heads,
        n_kv_heads=n_kv_heads, d_head=d_head, d_ff=d_ff, positions="learned",
    )  # fmt: skip
    count = sizes.count_parameters(config, LanguageModel)
    return count.embedding + count.positions, count.attention, count.feed_forward, count.norms


count_parameters = Exercise(
    "count_parameters",
    reference=_count_parameters,
    returns=("embeddings", "attention", "feed_forward", "norms"),
    forbidden=("attncourse.sizes", "attncourse.transformer"),
    difficulty=2,
    minutes=20,
    numbers=True,
    hints=(
        "A linear layer from a to b has a · b weights, and a bias for each of its b outputs. Write that as a small "
        "function, then list the linear layers of one block: four and two.",
        "From what width to what width do the four go? The queries leave n_heads · d_head wide, keys and values "
        "n_kv_heads · d_head; the output comes back from n_heads · d_head to d_model.",
        "A LayerNorm has a gain and a bias, d_model each. There is one in front of each of the block's two halves, "
        "and one after the last block.",
    ),
)


def _sizes(draw, wider=0):
    """Keyword order of the contract: small numbers, heads as wide together as the model, or each `wider` than that."""
    n_heads, d_head, n_layers, d_ff, max_length = draw.sizes(5, 3, 9)
    return [20 + d_ff, max_length, n_layers, n_heads * d_head, n_heads, n_heads, d_head + wider, d_ff]


def _counts(got, expected):
    """Whole numbers, to the last digit."""
    return f"counted {float(got):,.12g}, expected {float(expected):,.12g}"


@count_parameters.aspect("embeddings", points=1, explain=_counts)
def _(answer, draw):
    """a vector for each token and each position; the output shares the tokens' matrix"""
    return answer(*_sizes(draw, wider=2))[0]


@count_parameters.aspect("attention", points=2, explain=_counts)
def _(answer, draw):
    """four projections with their biases, in every layer"""
    return answer(*_sizes(draw))[1]


@count_parameters.aspect("heads of a different width", points=1, explain=_counts)
def _(answer, draw):
    """n_heads · d_head need not be d_model"""
    return answer(*_sizes(draw, wider=2))[1]


@count_parameters.aspect("groups", points=1, explain=_counts)
def _(answer, draw):
    """fewer heads of keys and values make smaller matrices for both"""
    vocabulary, max_length, n_layers, _, _, _, d_head, d_ff = _sizes(draw)
    return answer(vocabulary, max_length, n_layers, 6 * d_head, 6, 2, d_head, d_ff)[1]


@count_parameters.aspect("feed_forward", points=1, explain=_counts)
def _(answer, draw):
    """up and down again, with both biases"""
    return answer(*_sizes(draw, wider=2))[2]


@count_parameters.aspect("norms", points=1, explain=_counts)
def _(answer, draw):
    """two in every block, one at the end, each with gain and bias"""
    return answer(*_sizes(draw, wider=2))[3]


ATTENTION = ("attention", "heads of a different width", "groups")


@count_parameters.misconception("no biases", fails=(*ATTENTION, "feed_forward"))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The matrices are right, and the biases are missing: a linear layer adds one number to each of its outputs. They
    are few. But a count that is off by a few is still off."""
    attention = 2 * d_model * n_heads * d_head + 2 * d_model * n_kv_heads * d_head
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * 2 * d_model * d_ff, norms


@count_parameters.misconception("biases of the wrong width", fails=("heads of a different width",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The attention's matrices are right, but not all of its biases are. A linear layer has one for each of its
    *outputs*, whatever comes in. How wide is what leaves each of the four?"""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_model + 1) * d_query
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.variant("biases of the wrong width", fails=("heads of a different width", "groups"))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """d_model for each of the four."""
    attention = 2 * d_model * (n_heads + n_kv_heads) * d_head + 4 * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("no W_O", fails=ATTENTION)
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Queries, keys and values were counted, three matrices. The fourth joins the heads: the output projection."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("h times a full attention", fails=ATTENTION)
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Each head was given matrices of d_model × d_model. Heads share out the columns: one head's W_Q is
    d_model × d_head, and all of them side by side are n_heads · d_head wide."""
    attention = n_heads * 4 * (d_model * d_model + d_model)
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("heads always as wide as the model", fails=("heads of a different width", "groups"))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The attention was counted as four matrices of d_model × d_model. That holds when n_heads · d_head is d_model and
    every query head has keys of its own. Where does the lecture's table break the first condition, and what breaks the
    second?"""
    attention = 4 * (d_model + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.variant("no biases", "heads always as wide as the model", fails=(*ATTENTION, "feed_forward"))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """4 d² for the attention, as on the back of an envelope."""
    norms = (2 * n_layers + 1) * 2 * d_model
    embeddings = (vocabulary + max_length) * d_model
    return embeddings, n_layers * 4 * d_model * d_model, n_layers * 2 * d_model * d_ff, norms


@count_parameters.misconception("keys as many as queries", fails=("groups",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """`n_kv_heads` was not used. Where heads share keys and values, it takes fewer columns to make them: both matrices
    are n_kv_heads · d_head wide."""
    width = n_heads * d_head
    attention = 3 * (d_model + 1) * width + (width + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("no final norm", fails=("norms",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Two LayerNorms for each block were counted. There is one more after the last block."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, n_layers * 4 * d_model


@count_parameters.misconception("gains without biases", fails=("norms",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """A LayerNorm has two vectors, a gain and a bias. (RMSNorm has the gain alone.)"""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("one norm a block", fails=("norms",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """One LayerNorm for each block was counted, and one at the end. A block has two halves, attention and feed-forward,
    and each has a LayerNorm in front."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("output counted again", fails=("embeddings",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The matrix from vectors to words was counted as well as the one from words to vectors. Here they are *tied*: one
    and the same matrix, used twice. A parameter counts once, however often it is used."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (2 * vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("no positions", fails=("embeddings",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The positions are learned here: a table of max_length vectors, beside that of the tokens."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return vocabulary * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("one matrix up, none down", fails=("feed_forward",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The feed-forward network goes up from d_model to d_ff *and down again*: two linear layers, with a bias each."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * (d_model + 1) * d_ff, norms


@count_parameters.misconception("d_ff taken to be 4 d_model", fails=("feed_forward",))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The hidden layer was taken to be four times as wide as the model. It often is; but `d_ff` is given, and it is the
    number to use."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * 4 * d_model + (4 * d_model + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.misconception("one layer", fails=(*ATTENTION, "feed_forward", "norms"))
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """This is one block. There are n_layers of them, and each has matrices of its own."""
    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * d_query + 2 * (d_model + 1) * d_key + (d_query + 1) * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    return (vocabulary + max_length) * d_model, attention, feed_forward, 3 * 2 * d_model


@count_parameters.alternative("linear layers by a helper")
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The plain way."""

    def linear(d_in, d_out):
        return d_in * d_out + d_out

    attention = linear(d_model, n_heads * d_head) + 2 * linear(d_model, n_kv_heads * d_head)
    attention += linear(n_heads * d_head, d_model)
    feed_forward = linear(d_model, d_ff) + linear(d_ff, d_model)
    norms = 2 * d_model * (2 * n_layers + 1)
    return (vocabulary + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@count_parameters.alternative("built and counted")
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Makes one block's layers. (An `nn.Embedding` on the meta device is right, too, and imports 800 modules.)"""
    width, shared = n_heads * d_head, n_kv_heads * d_head
    attention = [nn.Linear(d_model, width), nn.Linear(d_model, shared), nn.Linear(d_model, shared)]
    attention.append(nn.Linear(width, d_model))
    feed_forward = [nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)]
    embeddings = [nn.Embedding(vocabulary, d_model), nn.Embedding(max_length, d_model)]
    norm = [nn.LayerNorm(d_model)]

    def count(layers):
        return sum(p.numel() for layer in layers for p in layer.parameters())

    norms = (2 * n_layers + 1) * count(norm)
    return count(embeddings), n_layers * count(attention), n_layers * count(feed_forward), norms


@count_parameters.alternative("tensors and floats")
def _(vocabulary, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Numbers of other types."""
    biases = (n_heads + 2 * n_kv_heads) * d_head + d_model
    attention = torch.tensor(2 * d_model * (n_heads + n_kv_heads) * d_head + biases)
    feed_forward = float(2 * d_model * d_ff + d_ff + d_model)
    embeddings = torch.tensor([vocabulary, max_length]).sum() * d_model
    return embeddings, n_layers * attention, n_layers * feed_forward, torch.tensor(4.0 * n_layers + 2) * d_model


# ------------------------------------------------------------------------------------------------------- average_heads


def _average_heads(weight, n_heads, n_kv_heads):
    """The mean over the heads of each group. Ainslie et al. 2023, section 2.1."""
    heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
    return heads.mean(dim=1).flatten(0, 1)


average_heads = Exercise(
    "average_heads",
    reference=_average_heads,
    returns=("weight",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "A row of the weight makes one column of the keys. Which rows belong to head 0, and which heads to group 0?",
        "Cut the first axis into three: group, head within the group, column within the head. Which one is averaged "
        "over?",
    ),
)


def _projection(draw, n_heads, n_kv_heads):
    """A weight (n_heads · d_head, d_model) and the two numbers."""
    d_head, d_model = draw.sizes(2, 4, 9)
    return draw.normal(n_heads * d_head, d_model), n_heads, n_kv_heads


@average_heads.aspect("groups", points=1)
def _(answer, draw):
    """each new head is the mean of its group's"""
    return answer(*_projection(draw, *((6, 2), (6, 3), (8, 2), (8, 4))[draw.integers(4, 1)]))


@average_heads.aspect("all into one", points=0.5)
def _(answer, draw):
    """one group: the mean of all heads"""
    return answer(*_projection(draw, 4, 1))


@average_heads.aspect("each its own", points=0.5)
def _(answer, draw):
    """as many groups as heads: nothing changes"""
    return answer(*_projection(draw, 3, 3))


@average_heads.misconception("dealt out like cards", fails=("groups",))
def _(weight, n_heads, n_kv_heads):
    """Heads 0, 2, 4 were averaged into the first and 1, 3, 5 into the second. But query heads 0, 1, 2 will look at the
    first: their former keys are what it should resemble."""
    heads = weight.unflatten(0, (n_heads // n_kv_heads, n_kv_heads, -1))
    return heads.mean(dim=0).flatten(0, 1)


@average_heads.misconception("summed", fails=("groups", "all into one"))
def _(weight, n_heads, n_kv_heads):
    """The heads of a group were added up. Keys of three times the size make scores of three times the size; the mean
    keeps them as large as they were."""
    heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
    return heads.sum(dim=1).flatten(0, 1)


@average_heads.misconception("the first of each group", fails=("groups", "all into one"))
def _(weight, n_heads, n_kv_heads):
    """One head of each group was kept and the others thrown away. The paper tried that, too, and found the mean to be
    better: it keeps something of each."""
    heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
    return heads[:, 0].flatten(0, 1)


@average_heads.misconception("columns of a head averaged", fails=("groups", "all into one"))
def _(weight, n_heads, n_kv_heads):
    """Neighbouring rows were averaged, and these belong to the same head: its columns, which mean different things.
    What should be averaged is the first column of one head with the first column of the next."""
    return weight.unflatten(0, (-1, n_heads // n_kv_heads)).mean(dim=1)


@average_heads.misconception("the weight on its side", fails=("groups", "all into one", "each its own"))
def _(weight, n_heads, n_kv_heads):
    """The result is transposed. `nn.Linear` keeps its weight as (outputs, inputs): the heads' columns are its *rows*,
    and what you return has to go back into such a layer."""
    heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
    return heads.mean(dim=1).flatten(0, 1).mT


@average_heads.alternative("a loop over the groups")
def _(weight, n_heads, n_kv_heads):
    """Head by head."""
    heads = weight.chunk(n_heads)
    shared = n_heads // n_kv_heads
    return torch.cat([sum(heads[g * shared : (g + 1) * shared]) / shared for g in range(n_kv_heads)])


@average_heads.alternative("a matrix that averages, in float64")
def _(weight, n_heads, n_kv_heads):
    """The means as a product."""
    shared, d_head = n_heads // n_kv_heads, weight.shape[0] // n_heads
    group = torch.arange(n_heads) // shared
    means = (group == torch.arange(n_kv_heads)[:, None]).double() / shared
    heads = weight.double().reshape(n_heads, d_head, -1)
    return torch.einsum("gh,hdm->gdm", means, heads).reshape(n_kv_heads * d_head, -1)
