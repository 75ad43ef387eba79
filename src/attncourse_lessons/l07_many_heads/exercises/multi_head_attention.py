"""MultiHeadAttention: Several attentions side by side, and one projection that joins what they found."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE
from .merge_heads import solution as merge_heads
from .split_heads import solution as split_heads


def solution(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    query = split_heads(self.query(x), self.n_heads)  # (batch, n_heads, n_query, d_head)
    key = split_heads(self.key(memory), self.n_heads)  # (batch, n_heads, n_key, d_head)
    value = split_heads(self.value(memory), self.n_heads)  # (batch, n_heads, n_key, d_head)
    scores = query @ key.mT / math.sqrt(key.shape[-1])  # (batch, n_heads, n_query, n_key)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    output = scores.softmax(dim=-1) @ value  # (batch, n_heads, n_query, d_head)
    return self.output(merge_heads(output))  # (batch, n_query, d_model)


exercise = Exercise(
    "MultiHeadAttention",
    reference=attention.MultiHeadAttention,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    hints=(
        "Queries from x, keys and values from the memory. Project, split (three times), attend, merge, project: six "
        "lines. Through all of it the heads are an axis like the batch, which nothing sums over.",
        "The scores are (batch, n_heads, n_query, n_key). Divide them by the root of the width over which *one "
        "head's* dot product sums. The mask is (batch, 1, n_key): where must one more axis of length 1 go, so that it "
        "serves all heads?",
        "With its further axis the mask is (batch, 1, 1, n_key). After the average each head has (n_query, d_head) of "
        "its own: merge the heads first, and let the last projection read them side by side.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _module(answer, draw, n_heads=None):
    """A built module, x (batch, n_query, d_model) and a memory (batch, n_key, d_model)."""
    batch, heads, d_head, n_query, n_key = draw.sizes(5, 2, 7)
    d_model = (n_heads or heads) * d_head
    x, memory = draw.normal(batch, n_query, d_model) / 2, draw.normal(batch, n_key, d_model) / 2
    return answer.build(draw, d_model, n_heads or heads), x, memory


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("self-attention", points=2, hint=1)
def self_attention(answer, draw):
    """each head attends in its own columns; W_O joins what they found"""
    module, x, _ = _module(answer, draw)
    return module(x)


@aspect("one head", points=1, hint=2)
def one_head(answer, draw):
    """with one head it is plain scaled attention, then W_O"""
    module, x, _ = _module(answer, draw, n_heads=1)
    return module(x)


@aspect(
    "a memory",
    points=1, hint=1,
    explain=explain_worst("the first token's output {place} changes by {size} when the others of x change"),
)
def a_memory(answer, draw):
    """where there is a memory, keys and values come from it alone, and only queries from x"""
    module, x, memory = _module(answer, draw)
    other = torch.cat([x[:, :1], draw.normal(*x[:, 1:].shape) / 2], dim=1)
    output = module(x, memory)
    if torch.equal(output, module(x, 1 - memory)):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    return apart(require_variation(output[:, 0]), module(other, memory)[:, 0])


def _masked(got, expected):
    """Of the two parts of the aspect, the one that is off."""
    worst = abs(got - expected).max(axis=(1, 2, 3))
    if worst[0] > 1e-4:
        return f"the output is off by {worst[0]:.4g} from what the tokens without the padding give"
    return f"in self-attention the mask does not do what it does with a memory: the output is off by {worst[1]:.4g}"


@aspect("mask", points=1, hint=2, explain=_masked)
def mask(answer, draw):
    """a sentence gets what it would get if there were no padding, with a memory and without one"""
    module, x, memory = _module(answer, draw)
    mask = draw.padding_mask(*memory.shape[:2]).roll(-1, dims=0)          # (batch, n_key), padding in the first row
    mask[-1, (mask.shape[1] - 1) // 2] = False                            # and in the last in front of a token
    padded = memory + 3 * draw.normal(*memory.shape) * ~mask[..., None]
    output = module(x, padded, mask[:, None])
    if torch.equal(output, module(x, 1 - padded, mask[:, None])):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    alone = [(x[i : i + 1], memory[i : i + 1, real], mask[i : i + 1, None, real]) for i, real in enumerate(mask)]
    off = apart(require_variation(output), torch.cat([module(*sentence) for sentence in alone]))
    own = draw.padding_mask(*x.shape[:2])[:, None]                        # x for its own memory: the same, said twice
    return torch.stack([off, module(x, None, own) - module(x, x.clone(), own)])


LEARNED = ("x", "query.weight", "key.weight", "value.weight", "output.weight", "memory")


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient(*LEARNED))
def gradient(answer, draw):
    """all four projections can be learned, and whoever made x and the memory"""
    module, x, _ = _module(answer, draw)
    x.requires_grad_()
    memory = (draw.normal(*x.shape) / 2).requires_grad_()                 # lengths are another aspect's matter
    reached = gradient_reaches(module(x), [x, *(module.parameter(name) for name in LEARNED[1:-1])], draw)
    output = module(x, memory)
    unheard = torch.equal(output, module(x, 1 - memory))                  # another aspect's fault
    return torch.cat([reached, gradient_reaches(output, [memory], draw) | unheard])


# -------------------------------------------------------------------------------------- one slip away from the solution

MASK = ("mask",)
MEMORY = "memory = x if memory is None else memory"
SCORES, SHARES = "query @ key.mT / math.sqrt(key.shape[-1])", "softmax(dim=-1)"
MASKED, MERGED = ".masked_fill(~mask[:, None], -torch.inf)", "merge_heads(output)"

slip("view without transpose", ("self-attention", "mask"),
    {MEMORY: f"{MEMORY}\nsplit_heads = lambda y, h: y.reshape(len(y), h, -1, y.shape[-1] // h)",
     MERGED: "output.reshape(x.shape)"},
    words="""
    The projected vectors were viewed as (batch, n_heads, n, d_head) directly. The shape is right, and each head got all
    columns of a few tokens in place of a few columns of all tokens: positions get mixed up, padding included. Cut the
    last axis first, then transpose.""")
slip("heads attend to heads", ("self-attention", "one head", "a memory", "mask"),
    {MEMORY: f"{MEMORY}\nsplit_heads = lambda y, h: y.unflatten(-1, (h, -1))", MERGED: "output.flatten(2)"},
    words="""
    The axes were (batch, n, n_heads, d_head) when the matrix product came, and a product works on the last two. So in
    each token its heads attended to each other, and no token to another. Bring the tokens next to the width first.""")
slip("every h-th column to a head", ("self-attention",),
    {MEMORY: f"{MEMORY}\nsplit_heads = lambda y, h: y.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)"},
    {MEMORY: f"{MEMORY}\nsplit_heads = lambda y, h: y.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)",
     MERGED: "output.permute(0, 2, 3, 1).flatten(2)"},
    words="""
    The heads got every h-th column in place of columns side by side: the last axis was cut into (d_head, n_heads). The
    number of heads comes first, (n_heads, d_head). A model trained like this works, and a checkpoint does not fit.""")
slip("the residual connection inside", ("self-attention", "one head"),
    {f"self.output({MERGED})": f"x + self.output({MERGED})"}, words="""
    x was added to the output. That is the residual connection, which a Transformer puts around this layer and not into
    it (lecture @deep_stacks). Here, return the layer's own output.""")
slip("one wide head", ("self-attention",),
    {"query(x), self.n_heads": "query(x), 1", "key(memory), self.n_heads": "key(memory), 1",
     "value(memory), self.n_heads": "value(memory), 1"},
    words="""
    The vectors were never cut: this is one head, d_model wide, whatever `n_heads` says. Everything fits, and there is a
    single table of weights.""")
slip("merged without transpose", ("self-attention", "a memory"), {MERGED: "output.reshape(x.shape)"}, words="""
    The heads were split as they should be, and the result was reshaped to (batch, n, d_model) with the heads still in
    front of the tokens. A row then holds several tokens of one head. Swap the axes back before you flatten.""")
slip("√d_model", ("self-attention",), {"key.shape[-1]": "x.shape[-1]"}, words="""
    The scores were divided by the root of the whole width. A head's dot product sums over that head's columns
    alone, and these are d_model / n_heads. With √d_model the scores of a narrow head are too small, and its softmax
    too flat.""")
slip("not scaled", ("self-attention", "one head"), {SCORES: "query @ key.mT"}, words="""
    The scores were not divided by anything. (Some slides leave the root out where heads are introduced, and for
    cross-attention; it is there all the same.)""")
slip("no W_O", ("self-attention", "one head", "gradient"), {f"self.output({MERGED})": MERGED}, words="""
    The heads were put side by side and handed on. Then head 0 can only ever write into the first columns, and the last
    layer, `self.output`, learns nothing. That layer is what lets every head write everywhere.""")
slip("softmax over the heads", ("self-attention", "one head", "mask"), {"dim=-1": "dim=1"}, words="""
    `dim=1` is now the heads' axis: for each pair of tokens the weights summed to one over the heads. Every head has
    weights of its own, which sum to one over the keys: the last axis, however many there are in front.""")
slip("normalised over the queries", ("self-attention", "one head", "a memory", "mask"),
    {"dim=-1": "dim=-2"},
    {"dim=-1": "dim=-2", "-torch.inf": "-1e9"},
    words="""
    The weights sum to one down each column, over the queries. The weights of each *query* must sum to one over the
    keys, which are the last axis.""")
slip("ignores the memory", ("a memory", "mask"),
    {MEMORY: "memory = x"},
    {"self.value(memory)": "self.value(x)"},  # for the values alone
    {MEMORY: "memory = x", MASKED: ""},  # self-attention, and no more
    words="""
    Keys, values or both came from x although there was a memory. Queries come from x; keys and values from the memory,
    where there is one. That is the whole difference between self-attention and cross-attention.""")
slip("a mask taken for granted", ("self-attention", "one head", "a memory", "gradient"),
    {"if mask is not None:\n    scores": "scores"},
    words="""
    Without a mask it breaks down: `mask` is None then, and None can be neither negated nor broadcast. Where nothing is
    padded nobody passes a mask; leave the scores as they are.""")
slip("ignores the mask", MASK, {MASKED: ""}, words="""
    The padding took part: change what stands there, and the answer changes. Give padded positions a score of −∞, in
    every head.""")
slip("no mask in self-attention", MASK,
    {MEMORY: f"mask = None if memory is None else mask\n{MEMORY}"},
    words="""
    The mask was used where there is a memory, and not in self-attention. An encoder's sentences are padded, too, and
    there x is its own memory. Whether there is a memory and whether there is a mask are two questions; ask them one
    after the other, not one inside the other.""")
slip("the mask read as a length", MASK,
    {"~mask[": "~(torch.arange(mask.shape[-1]) < mask.sum(dim=-1, keepdim=True))["}, words="""
    The mask was read as a length: so many keys from the front. That is right only where all padding stands behind. The
    mask says *which* keys are tokens, not only how many there are.""")
slip("one sentence's mask for all", MASK, {"mask[:, None]": "mask[:1, None]"}, words="""
    Every sentence got the mask of the first one in the batch. Each has a length, and a mask, of its own.""")
slip("a forbidden score that is not low enough", MASK,
    {MASKED: " * mask[:, None]"},
    {MASKED: " + mask[:, None]"},  # numbers 0 and 1 added
    {"-torch.inf": "-1.0"},
    {"-torch.inf": "-10.0"},
    words="""
    The padding got a score that is too high. Softmax takes 0, −1 and −1e-9 for scores like any other, and exp(0) is 1:
    the padding keeps a share, and may even get more than a token. Only −∞, or something as far below every score as
    −1e9, leaves it nothing.""")
slip("the truth value of a tensor", ("a memory", "mask", "gradient"), {MEMORY: "memory = memory or x"}, words="""
    `or` asks whether `memory` is true, and a tensor of many numbers is neither true nor false. Ask whether there is a
    memory: `is None`.""")
slip("mask upside down", MASK,
    {"~mask": "mask"},
    {"~mask[:, None], -torch.inf": "mask[:, None], -1e9"},  # a row of which every key is silenced is no NaN then
    words="""
    The tokens were masked out and the padding was not. True means "may attend": fill where the mask is False.""")
slip("mask without an axis for the heads", MASK, {"mask[:, None]": "mask"}, words="""
    The mask (batch, 1, n_key) met scores (batch, n_heads, n_query, n_key). Axes are matched from the end, so its batch
    was taken for the heads: an error if you are lucky, and another sentence's mask if the two sizes happen to agree. It
    needs one more axis, for the heads; where?""")
slip("padding set to zero", MASK,
    {MEMORY: f"{MEMORY}\nif mask is not None:\n    memory = memory * mask.mT", MASKED: ""},
    {f"scores = scores{MASKED}": "scores, value = scores * mask[:, None], value * mask[:, None].mT"},
    words="""
    The padding's vectors were set to zero, and still took part: a zero vector has a score like any other, and draws
    weight away from the tokens. It is the scores that must become −∞, so that no weight is left for it.""")
slip("masks after the softmax", MASK,
    {SCORES: f"({SCORES}).{SHARES}", MASKED: " * mask[:, None]", f"scores.{SHARES}": "scores"},
    words="""
    The padding's weights are 0, but its scores were still in softmax's denominator, so the rows no longer sum to one
    and what stands in the padding changes the answer. Mask the scores first.""")
slip("cut off from the gradient", ("gradient",),
    {SHARES: f"{SHARES}.detach()"},
    {MEMORY: "memory = x if memory is None else memory.detach()"},  # whoever made the memory learns nothing
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. The scores must be learned; and an encoder learns through the memory.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("view without transpose", fails=("self-attention", "a memory", "mask"))
def view_without_transpose_and_merged_rightly(self, x, memory=None, mask=None):
    """Merged as it should be."""
    memory = x if memory is None else memory
    width = x.shape[-1] // self.n_heads
    query = self.query(x).reshape(len(x), self.n_heads, -1, width)
    key = self.key(memory).reshape(len(x), self.n_heads, -1, width)
    value = self.value(memory).reshape(len(x), self.n_heads, -1, width)
    scores = query @ key.mT / math.sqrt(width)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("view and transpose")
def view_and_transpose(self, x, memory=None, mask=None):
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


@alternative("a loop over the heads")
def a_loop_over_the_heads(self, x, memory=None, mask=None):
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


@alternative("W_O by heads, with einsum")
def w_o_by_heads_with_einsum(self, x, memory=None, mask=None):
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


@alternative("heads folded into the batch")
def heads_folded_into_the_batch(self, x, memory=None, mask=None):
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
