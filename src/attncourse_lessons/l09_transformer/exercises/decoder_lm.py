"""DecoderLM: A decoder-only language model as a module of one's own: what it learns, and what it does."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import (
    apart,
    explain_sizes,
    gradient_reaches,
    gradients,
    require_variation,
    sizes_by_part,
)

from .common import READY_MADE


class Block(nn.Module):
    """The notebook's own: a pre-norm block, as in GPT-2."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x, mask):
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        x = x + self.output((weights @ value).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm_2(x))


class Solution(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).tril()               # (n, n)
        x = self.tokens(tokens) + self.positions.weight[:n]            # (batch, n, d_model)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.T                     # (batch, n, vocab_size)


exercise = Exercise(
    "DecoderLM",
    reference=Solution,
    solution=Solution,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "A module learns what its attributes hold: layers, parameters and torch's containers, such as `nn.ModuleList`. "
        "An optimiser never finds what is kept in a plain Python list, or is made in `forward`. "
        "Print `[name for name, _ in model.named_parameters()]`.",
        "Tied means one tensor in two roles. The table (vocab_size, d_model) has a row for each token: the "
        "embedding looks one up, and the logits are the dot products of a state with every row. Which matrix product "
        "gives all of these at once?",
        "In `forward`: rows of `tokens`, plus the first n rows of `positions`; each block of `blocks` in turn, on the "
        "output of the block before, with a mask (n, n) that is True on and below the diagonal; the norm; and the "
        "product with the transposed table.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

PARTS = ("tokens", "positions", "blocks", "norm")
VOCAB_SIZE, MAX_LENGTH = 23, 11


def _model(answer, draw, fill=True):
    """A model with three layers or four, and tokens (batch, n) of which the last of the vocabulary is none."""
    n_heads, d_head, batch = draw.sizes(3, 2, 5)
    n_layers, n = 3 + int(draw.integers(2, 1)), MAX_LENGTH - 3
    model = answer.build(draw, VOCAB_SIZE, MAX_LENGTH, n_heads * d_head, n_heads, n_layers, fill=fill)
    return model, draw.integers(VOCAB_SIZE - 1, batch, n)


def _others(model):
    """What the model learns beside the four parts."""
    return [name for name in model.parameters if name.split(".")[0] not in PARTS]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("registered", points=2, hint=1, explain=explain_sizes(PARTS))
def registered(answer, draw):
    """the module knows all that it can learn: two tables, the blocks, the last norm, each with its right size"""
    model, _ = _model(answer, draw)
    return sizes_by_part(model.parameters, PARTS)


def _tied(got, expected):
    if got[0]:
        return f"there are {int(got[0]):,} parameters beside the four parts: a second table is not tied to the first"
    return "the logit of a token does not train that token's row of `tokens`: the output does not use the table itself"


@aspect("tied", points=2, hint=2, explain=_tied)
def tied(answer, draw):
    """the table of tokens makes the logits, too, and nothing else does"""
    model, tokens = _model(answer, draw)
    table, unread = model.parameter("tokens.weight"), VOCAB_SIZE - 1     # a row that no token of the input looks up
    gradient = gradients(model(tokens)[..., unread:], [table], draw).view(table.shape)[unread]
    others = sum(model.parameter(name).numel() for name in _others(model))
    return torch.tensor([others, int(not gradient.abs().max() <= 1e-5)])  # NaN is another aspect's


@aspect("logits", points=3, hint=3, explain=explain_worst("the logits are off by {size} at {place}"))
def logits(answer, draw):
    """tokens and positions, every block in turn, the norm, the table"""
    model, tokens = _model(answer, draw)
    right = model.reference_with_same_weights
    missing = [name for name, p in right.named_parameters() if p.isnan().any()]
    if missing:
        words = f"{missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}"
        raise AspectFailed(Problem("unusable", f"it cannot be compared: {words} is not there, or of another shape"))
    states: list[torch.Tensor] = []
    right.norm.register_forward_hook(lambda module, given, state: states.append(state))
    right(tokens)
    tables = [right.tokens.weight, *(model.parameter(name) for name in _others(model))]
    table = [each for each in tables if each.shape == tables[0].shape][-1]  # whether it is tied: another aspect
    return apart(require_variation(model(tokens)), states[0] @ table.T)


@aspect(
    "causal",
    points=1,
    hint=3,
    explain=explain_worst("other tokens at later places change an earlier one's logits by {size}, at {place}"),
)
def causal(answer, draw):
    """what comes later changes nothing"""
    model, tokens = _model(answer, draw)
    now = tokens.shape[1] // 2
    other = torch.cat([tokens[:, :now], (tokens[:, now:] + 1) % VOCAB_SIZE], dim=1)
    return apart(require_variation(model(tokens)[:, :now]), model(other)[:, :now])


@aspect("learns", points=1, hint=3)
def learns(answer, draw):
    """a gradient reaches everything that the module can learn"""
    model, tokens = _model(answer, draw)
    names = list(model.parameters)
    reached = gradient_reaches(model(tokens), [model.parameter(name) for name in names], draw)
    idle = [f"`{name}`" for name, there in zip(names, reached, strict=True) if not there]
    if idle:
        more = f" and {len(idle) - 2} others" if len(idle) > 2 else ""
        raise AspectFailed(Problem("unusable", f"no gradient reaches {', '.join(idle[:2])}{more}"))
    return reached.all()


def _undecided(got, expected):
    even = f"ln {VOCAB_SIZE} = {math.log(VOCAB_SIZE):.1f}"
    return f"a new model's loss is {float(got[0]):.1f} nats; of one that prefers no token it is {even}"


@aspect("start", points=1, hint=2, explain=_undecided)
def start(answer, draw):
    """a new model prefers no token: its loss is near the logarithm of the vocabulary's size"""
    model = answer.build(draw, VOCAB_SIZE, MAX_LENGTH, 32, 4, 2, fill=False)
    tokens, answers = draw.integers(VOCAB_SIZE, 2, 8, MAX_LENGTH - 3)
    loss = float(F.cross_entropy(model(tokens).flatten(0, 1), answers.flatten()))
    return torch.tensor([0.0 if abs(loss - math.log(VOCAB_SIZE)) < 0.5 else loss])


# -------------------------------------------------------------------------------------- one slip away from the solution

LOGITS, TIED, UNKNOWN = ("logits",), ("tied",), ("registered", "logits")
BLOCKS = "nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])"
NORM, TABLE = "self.norm = nn.LayerNorm(d_model)", "@ self.tokens.weight.T"
MASK = "torch.ones(n, n, dtype=torch.bool).tril()"
POSITIONS, LOOP = " + self.positions.weight[:n]", "x = block(x, mask)"
INIT = "nn.init.normal_(table.weight, std=0.02)"
OUTPUT = "self.output = nn.Linear(d_model, vocab_size, bias=False)"
COPIED = f"{OUTPUT}\n    self.output.weight.data = self.tokens.weight.data.clone()"

slip("blocks in a plain list", UNKNOWN,
     {BLOCKS: "[Block(d_model, n_heads) for _ in range(n_layers)]"},
     {BLOCKS: "tuple(Block(d_model, n_heads) for _ in range(n_layers))"},
     words="""
    The blocks stand in a Python list, and a module does not look into lists: `parameters()` does not give theirs. The
    model runs, the loss even falls a little, and the blocks are never trained, saved or moved to a GPU. torch has
    containers that a module does look into.""")
slip("one block, n_layers times", UNKNOWN,
     {BLOCKS: "nn.ModuleList([Block(d_model, n_heads)] * n_layers)"},
     {f"self.blocks = {BLOCKS}":
      "block = Block(d_model, n_heads)\n    self.blocks = nn.ModuleList([block for _ in range(n_layers)])"},
     words="""
    There is one block, and every layer is that one: a list times n repeats the same object. Some models share their
    layers on purpose (ALBERT). Here each layer learns for itself, so each must be made anew.""")
slip("one layer too few", UNKNOWN, {"range(n_layers)": "range(n_layers - 1)"}, words="""
    There is one block less than `n_layers`.""")
slip("a layer made in forward", UNKNOWN,
     {NORM: "pass", "self.norm(x)": "nn.LayerNorm(x.shape[-1])(x)"},
     {NORM: "pass", "self.norm(x)": "F.layer_norm(x, x.shape[-1:])"},
     words="""
    The last norm is made while the model runs, or has no gain and bias at all. What `forward` makes is new in each call
    and forgotten after it: nothing of it can be learned. Layers are made once, in `__init__`.""")
slip("no table of positions", UNKNOWN,
     {"self.positions = nn.Embedding(max_length, d_model)": "pass", POSITIONS: "",
      "(self.tokens, self.positions)": "(self.tokens,)"}, words="""
    There are no positions. A causal mask tells a model a little about order, and GPT-2 has a table besides: a row for
    each place, as the contract says.""")
slip("positions not added", ("logits", "learns"), {POSITIONS: ""}, words="""
    The table of positions is made and not used. The first tokens of a text are then hard to tell from one another, and
    no gradient ever reaches the table.""")
slip("not tied", TIED,
     {NORM: f"{NORM}\n    {OUTPUT}", f"self.norm(x) {TABLE}": "self.output(self.norm(x))"},
     {INIT: f"{INIT}\n    {COPIED}", f"self.norm(x) {TABLE}": "self.output(self.norm(x))"},
     words="""
    The output has a table of its own. In GPT-2 of 124 million parameters it would be 39 million more. A copy is not
    tied either: the two begin alike, and from the first step on each goes its own way. Tied means that it is one
    tensor.""")
slip("a bias in the output", ("tied", "logits"),
     {NORM: f"{NORM}\n    self.bias = nn.Parameter(torch.zeros(vocab_size))", TABLE: f"{TABLE} + self.bias"},
     words="""
    The logits have a bias. The contract has none: the output is the table of tokens, and nothing else.""")
slip("the table cut off at the output", TIED,
     {TABLE: "@ self.tokens.weight.detach().T"},
     {TABLE: "@ self.tokens.weight.data.T"},
     words="""
    The logits use the numbers of the table but not the parameter: `.detach()` and `.data` cut the gradient. Only the
    tokens that are read would train their rows, and none learns from being predicted.""")
slip("the future is read", ("logits", "causal"),
     {MASK: "torch.ones(n, n, dtype=torch.bool)"},
     words="""
    Every place attends to all others. At place t the model is to predict the token at t + 1, and it can simply read
    it there: in training the loss falls to nothing, and in writing there is nothing to be read.""")
slip("the next token is read", ("logits", "causal"), {".tril()": ".tril(1)"}, words="""
    The mask is True one place too far: at place t the model reads the token at t + 1, which it is to predict. The
    diagonal belongs to the past, and nothing above it does.""")
slip("only the future is read", ("logits", "causal"), {".tril()": ".triu()"}, words="""
    The mask is the upper triangle. Rows ask and columns answer: row i is to be True up to column i.""")
slip("True for forbidden", ("logits", "causal", "learns", "start"), {MASK: f"~{MASK}"},
     {MASK: "torch.ones(n, n, dtype=torch.bool).triu(1)"}, words="""
    The mask is True where attending is forbidden. torch's own layers have it so; in this course, and for `Block`, True
    means "may attend". The last place may now attend to nothing, which gives NaN.""")
slip("no last norm", ("logits", "learns"), {"self.norm(x)": "x"}, words="""
    The norm after the last block is made and not used. In a pre-norm model nothing else brings the sum of all blocks to
    a scale of its own before it meets the table.""")
slip("the norm after every block", LOGITS, {LOOP: "x = self.norm(block(x, mask))", "self.norm(x)": "x"}, words="""
    What has passed the norm went on to the next block. In a pre-norm model nothing normalises the path from block to
    block: the norm stands once, after the last of them.""")
slip("the norm before the blocks", LOGITS,
     {f"self.tokens(tokens){POSITIONS}": f"self.norm(self.tokens(tokens){POSITIONS})", "self.norm(x)": "x"},
     words="""
    The last norm stands before the first block. Each block of a pre-norm model normalises what it reads by itself; what
    needs one more norm is the sum of all blocks, before it meets the table.""")
slip("the tokens shifted", LOGITS,
     {"self.tokens(tokens)": "self.tokens(F.pad(tokens, (1, 0))[:, :-1])"},
     {"self.tokens(tokens)": "F.pad(self.tokens(tokens), (0, 0, 1, 0))[:, :-1]"}, words="""
    The tokens were moved by a place inside of the model. At place t it reads the token at t and gives the logits of the
    next one. The training loop moves the targets, not the model.""")
slip("every block on the same input", ("logits", "learns"),
     {LOOP: "y = block(x, mask)", "self.norm(x)": "self.norm(y)"}, words="""
    Each block was given the embedded tokens, and only what the last one made was used. A block works on what the block
    before it has made: one name for what goes in and what comes out.""")
slip("the first block alone", ("logits", "learns"), {"in self.blocks": "in self.blocks[:1]"}, words="""
    Only one of the blocks is used. The others are there, and learn nothing.""")
slip("embeddings times √d_model", LOGITS,
     {"self.tokens(tokens)": "self.tokens(tokens) * self.tokens.embedding_dim**0.5"}, words="""
    The embedded tokens were multiplied by √d_model, as in "Attention is all you need". GPT-2 and this contract do not:
    tokens and positions are of one size here.""")
slip("probabilities for logits", LOGITS,
     {"return self.norm(x)": "logits = self.norm(x)", TABLE: f"{TABLE}\n    return logits.softmax(dim=-1)"}, words="""
    What came back are probabilities. The cross entropy takes logits and does the softmax by itself, and sampling with a
    temperature needs them, too.""")
slip("positions counted from 1", LOGITS, {"weight[:n]": "weight[1 : n + 1]"}, words="""
    The first token has got the second row of positions. Places are counted from 0: a text of the greatest length would
    find no row for its last token.""")
slip("the last positions", LOGITS, {"weight[:n]": "weight[-n:]"}, words="""
    The positions were taken from the end of the table, so that a token's position depends on how long the text is. The
    first token of every text is at place 0.""")
slip("as long as can be", ("logits", "tied", "causal", "learns", "start"), {"weight[:n]": "weight"}, words="""
    All rows of positions were added, and a text need not be as long as the longest: take as many rows as there are
    tokens.""")
slip("tables as torch makes them", ("start",), {"std=0.02": "std=1.0"}, {"std=0.02": "mean=0.02"}, words="""
    The table of tokens is as `nn.Embedding` makes it, with numbers of standard deviation 1. Looked up that is fine. As
    the output it gives logits as large as √d_model, so that a new model is sure of itself, and wrong. A tied table
    begins small.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a linear layer that shares its weight")
class ALinearLayerThatSharesItsWeight(nn.Module):
    """As most code on the web does it: tied by putting one parameter into the other's place."""

    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.blocks = nn.ModuleList()
        for _ in range(n_layers):
            self.blocks.append(Block(d_model, n_heads))
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size, bias=False)
        self.output.weight = self.tokens.weight
        self.apply(self.start)

    def start(self, module):
        if isinstance(module, nn.Embedding | nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.tokens(tokens) + self.positions(torch.arange(n))
        mask = torch.tril(torch.ones(n, n)) == 1
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


@alternative("a mask kept as a buffer")
class AMaskKeptAsABuffer(nn.Module):
    """The mask of the longest text is made once, and cut to size."""

    mask: torch.Tensor

    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)
        self.tokens.weight.data.mul_(0.02)
        self.positions.weight.data.mul_(0.02)
        self.norm = nn.LayerNorm(d_model)
        self.blocks = nn.Sequential(*(Block(d_model, n_heads) for _ in range(n_layers)))
        places = torch.arange(max_length)
        self.register_buffer("mask", places <= places[:, None])

    def forward(self, tokens):
        n = len(tokens[0])
        x = self.tokens.weight[tokens] + self.positions.weight.narrow(0, 0, n)
        for i in range(len(self.blocks)):
            x = self.blocks[i](x, self.mask[:n, :n])
        return torch.einsum("bnd,vd->bnv", self.norm(x), self.tokens.weight)


@alternative("modules set one by one")
class ModulesSetOneByOne(nn.Module):
    """A container with numbered children, and the functional forms of embedding and output."""

    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model, _weight=torch.randn(vocab_size, d_model) / 40)
        self.positions = nn.Embedding(max_length, d_model, _weight=torch.zeros(max_length, d_model))
        self.blocks = nn.Module()
        for i in range(n_layers):
            self.blocks.add_module(str(i), Block(d_model, n_heads))
        self.norm = nn.LayerNorm((d_model,))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        x = F.embedding(tokens, self.tokens.weight) + F.embedding(places, self.positions.weight)
        for block in self.blocks.children():
            x = block(x, places[0] <= places[0][:, None])
        return F.linear(self.norm(x), self.tokens.weight)
