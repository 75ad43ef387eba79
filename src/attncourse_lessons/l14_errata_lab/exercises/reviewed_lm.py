"""ReviewedLM: A page of code with several mistakes, reviewed as a whole: the module that its comments promise."""

import math

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, explain_sizes, gradient_reaches, require_variation, sizes_by_part

from .common import READY_MADE


class Attention(nn.Module):
    """The notebook's own: causal self-attention, whose mask is made for max_length."""

    mask: torch.Tensor

    def __init__(self, d_model, n_heads, max_length=128):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        future = torch.ones(max_length, max_length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, x):
        n = x.shape[1]
        query, key, value = self.qkv(x).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        weights = scores.masked_fill(self.mask[:n, :n], -torch.inf).softmax(dim=-1)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """The notebook's own."""

    def __init__(self, d_model):
        super().__init__(nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model))


class Solution(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.attention, self.ff = nn.ModuleList(), nn.ModuleList()
        self.norm_1, self.norm_2 = nn.ModuleList(), nn.ModuleList()
        for _ in range(n_layers):
            self.norm_1.append(nn.LayerNorm(d_model))
            self.attention.append(Attention(d_model, n_heads, max_length))
            self.norm_2.append(nn.LayerNorm(d_model))
            self.ff.append(FeedForward(d_model))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.embedding(tokens) + self.positions(torch.arange(n))   # (batch, n, d_model)
        for layer in range(len(self.attention)):
            x = x + self.attention[layer](self.norm_1[layer](x))
            x = x + self.ff[layer](self.norm_2[layer](x))
        return self.logits(self.norm(x))                               # (batch, n, vocab_size)


exercise = Exercise(
    "ReviewedLM",
    reference=Solution,
    solution=Solution,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=27,
    hints=(
        "Do not read harder: ask. Build the page's model, and call it with a text and with the first half of it; with "
        "a text alone and in a batch; with more tokens than 128; with all sublayers zeroed, and with one kind of them "
        "zeroed. Which calls surprise you?",
        "That all zeroed sublayers return what went in shows that nothing is in the way of x. It does not show that "
        "each sublayer's output arrives. Zero the feed-forward networks alone: what should one layer return then, and "
        "is what attention found still in it after the next line? And which row of the table does token 0 get in a "
        "short text, which in a long one?",
        "Call `backward` once and list the parameters without a gradient: each of them is a line to look at. Count the "
        "parameters of each part: are there as many as the number of layers asks for, and does the last norm have any "
        "of its own? Is each size that the model is told handed on to all that need it?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

PARTS = ("embedding", "positions", "norm_1", "attention", "norm_2", "ff", "norm", "logits")
VOCAB_SIZE = 19


def _model(answer, draw, max_length=17):
    """A model with two or three layers, and tokens (batch, n), of more tokens than texts."""
    n_heads, d_head, batch = draw.sizes(3, 2, 4)
    n_layers = 2 + int(draw.integers(2, 1))
    model = answer.build(draw, VOCAB_SIZE, n_heads * d_head, n_heads, n_layers, max_length)
    return model, draw.integers(VOCAB_SIZE, batch, 9)


def _right(model, parts=PARTS):
    """The course's module with the same numbers, of which those of these parts must be there."""
    right = model.reference_with_same_weights
    missing = [name for name, p in right.named_parameters() if p.isnan().any() and name.split(".")[0] in parts]
    if missing:
        words = f"{missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}"
        raise AspectFailed(Problem("unusable", f"it cannot be compared: {words} is not there, or of another shape"))
    return right


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("registered", points=1, hint=3, explain=explain_sizes(PARTS))
def registered(answer, draw):
    """all eight parts are there, with their right sizes"""
    model, _ = _model(answer, draw)
    return sizes_by_part(model.parameters, PARTS)


@aspect("batch", points=0.5, hint=1, explain=explain_worst("its logits move by {size} at {place}"))
def batch_invariance(answer, draw):
    """a text gets the same logits alone and as the last of its batch"""
    model, tokens = _model(answer, draw)
    moved = require_variation(model(tokens))[-1] - model(tokens[-1:])[0]
    return torch.where(moved.abs() < 1e-3, 0.0, moved)  # where sublayers read no norm, scores are large: rounding grows


@aspect("longest text", points=0.5, hint=3)
def longest_text(answer, draw):
    """a model for 150 tokens reads 150 tokens"""
    model, _ = _model(answer, draw, max_length=150)
    return torch.tensor(model(draw.integers(VOCAB_SIZE, 1, 150)).shape)


@aspect("zeroed sublayers", points=1, hint=2,
        explain=explain_worst("with sublayers whose numbers are zero it is off by {size}"))  # fmt: skip
def zeroed_sublayers(answer, draw):
    """with zeroed sublayers the logits are those of embeddings and positions, after the final norm"""
    model, tokens = _model(answer, draw)
    right = _right(model, ("embedding", "positions", "norm", "logits"))
    found = ("attention", "ff")
    model.runner.fill({name: p.detach() * (name.split(".")[0] not in found) for name, p in model.parameters.items()})
    x = right.embedding(tokens) + right.positions.weight[: tokens.shape[1]]
    return apart(require_variation(model(tokens)), right.logits(right.norm(x)))


@aspect("zeroed networks", points=1, hint=2,
        explain=explain_worst("with feed-forward networks whose numbers are zero it is off by {size}"))  # fmt: skip
def zeroed_networks(answer, draw):
    """with zeroed feed-forward networks the logits are those of what attention adds, layer after layer"""
    model, tokens = _model(answer, draw)
    right = _right(model, ("embedding", "positions", "norm_1", "attention", "norm", "logits"))
    model.runner.fill({name: p.detach() * (name.split(".")[0] != "ff") for name, p in model.parameters.items()})
    x = right.embedding(tokens) + right.positions.weight[: tokens.shape[1]]
    for norm, attention in zip(right.norm_1, right.attention, strict=True):
        x = x + attention(norm(x))
    return apart(require_variation(model(tokens)), right.logits(right.norm(x)))


@aspect("logits", points=1, hint=2, explain=explain_worst("the logits are off by {size} at {place}"))
def logits(answer, draw):
    """each layer's two sublayers in turn, each after its norm, each added to what came in"""
    model, tokens = _model(answer, draw)
    return apart(require_variation(model(tokens)), _right(model)(tokens))


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


# -------------------------------------------------------------------------------------- one slip away from the solution

LOGITS, FOUND = ("logits",), ("zeroed networks", "logits")  # FOUND: what attention found does not arrive
WIRED = ("zeroed sublayers", *FOUND)
PLACES = "self.positions(torch.arange(n))"
FIRST, SECOND = "x = x + self.attention[layer](self.norm_1[layer](x))", "x = x + self.ff[layer](self.norm_2[layer](x))"
NORM, OUT = "self.norm = nn.LayerNorm(d_model)", "self.logits(self.norm(x))"
ATTENTION = "Attention(d_model, n_heads, max_length)"

slip("positions by the batch", ("batch", *WIRED),
     {PLACES: "self.positions(torch.arange(len(tokens)).unsqueeze(1))"},
     {PLACES: "self.positions(torch.arange(len(tokens)).unsqueeze(1) % self.positions.num_embeddings)"},
     words="""
    The positions still count the texts of the batch: axis 0. All tokens of a text get one vector, and which one depends
    on the texts above it. A text alone and in a batch shows it.""")
slip("max_length not handed on", ("longest text",), {ATTENTION: "Attention(d_model, n_heads)"}, words="""
    The model takes `max_length` and makes its table of positions with it. But the masks are made for 128 tokens,
    because `max_length` was not passed on to them. It reads 128 tokens, whatever it was asked for.""")
slip("attention adds to the normalised x", WIRED,
     {FIRST: "x = self.norm_1[layer](x)\n        x = x + self.attention[layer](x)"}, words="""
    What attention found is added to the *normalised* x, because x was overwritten before the sum. Zero the sublayers,
    and x should come out as it went in.""")
slip("the feed-forward network adds to the normalised x", WIRED,
     {SECOND: "x = self.norm_2[layer](x)\n        x = x + self.ff[layer](x)"}, words="""
    The first half of each layer is right. In the second the sum still begins at the normalised x. Half a repair does
    not pass the test with zeroed sublayers.""")
slip("the block as printed", WIRED,
     {FIRST: "x = self.norm_1[layer](x)\n        x = x + self.attention[layer](x)",
      SECOND: "x = self.norm_2[layer](x)\n        x = x + self.ff[layer](x)"}, words="""
    Both sums of a layer begin at the normalised x, as printed. The comments say pre-normalization: the *branch* reads
    the normalised x, and the sum begins at the x that came in.""")
slip("no final norm", ("registered", *WIRED), {NORM: "pass", OUT: "self.logits(x)"},
     {NORM: "pass", OUT: "self.logits(self.norm_2[-1](x))"}, words="""
    There is no norm of its own between the last layer and the logits: none at all, or one that belongs to a layer. x
    grows with each layer, and a final norm, `norm`, must bring it back to size.""")
slip("a final norm that is not used", (*WIRED, "learns"), {OUT: "self.logits(x)"}, words="""
    The final norm is made, and `forward` does not use it.""")
slip("post-norm", WIRED,
     {FIRST: "x = self.norm_1[layer](x + self.attention[layer](x))",
      SECOND: "x = self.norm_2[layer](x + self.ff[layer](x))"}, words="""
    The norms stand after the sums. That is a sound block, post-norm, and not the one that the comments promise.""")
slip("the network first", LOGITS,
     {FIRST: SECOND, SECOND: FIRST},
     words="""
    The feed-forward network comes before attention. In a Transformer's layer attention comes first.""")
slip("side by side", LOGITS,
     {FIRST: "attended = self.attention[layer](self.norm_1[layer](x))",
      SECOND: "x = x + attended + self.ff[layer](self.norm_2[layer](x))"}, words="""
    Both sublayers read the same x, side by side. Some models do so (GPT-J); here the network reads what attention has
    left.""")
slip("without norms in the branches", (*FOUND, "learns"),
     {FIRST: "x = x + self.attention[layer](x)", SECOND: "x = x + self.ff[layer](x)"}, words="""
    The sublayers read x as it is. In a pre-norm layer each reads a normalised x.""")
slip("one norm for both sublayers", (*LOGITS, "learns"), {"self.norm_2[layer](x))": "self.norm_1[layer](x))"}, words="""
    Both sublayers of a layer use the same norm. Each has its own, with numbers of its own.""")
slip("one norm for all layers", ("registered", *LOGITS), {
    "self.norm_2.append(nn.LayerNorm(d_model))": "self.norm_2.append([*self.norm_2, nn.LayerNorm(d_model)][0])"},
     words="""
    All layers share one norm. A list times a number, `[norm] * 3`, holds one and the same module three times, and one
    set of numbers. Each layer has a norm of its own: make a new one for each.""")
slip("one norm for all layers", ("registered", *FOUND), {
    "self.norm_1.append(nn.LayerNorm(d_model))": "self.norm_1.append([*self.norm_1, nn.LayerNorm(d_model)][0])"})
slip("the final norm in every layer", WIRED, {
    SECOND: "x = self.norm(x + self.ff[layer](self.norm_2[layer](x)))"}, words="""
    The final norm stands inside the loop, so that x is normalised after every layer, and nothing can pass through the
    stack unchanged. It belongs after the last layer, once.""")
slip("the final norm in every layer", WIRED, {
    SECOND: "x = self.norm(x + self.ff[layer](self.norm_2[layer](x)))", OUT: "self.logits(x)"})
slip("output and embedding share their weights", ("registered", *WIRED),
     {"self.logits = nn.Linear(d_model, vocab_size)":
      "self.logits = nn.Linear(d_model, vocab_size)\n    self.logits.weight = self.embedding.weight"}, words="""
    `logits` has the embedding's matrix for its weights. That is weight tying, which many models use; the contract asks
    for a layer with weights of its own.""")
slip("one layer too few", ("registered", *FOUND), {"for _ in range(n_layers)": "for _ in range(1, n_layers)"},
     words="""
    One layer is missing: `range(1, n)` counts n − 1 of them, and a `zip` that is not strict drops what has no partner.
    Build a model of one layer and count its parameters.""")
slip("one sublayer for all layers", ("registered", *LOGITS),
     {"self.ff.append(FeedForward(d_model))": "self.ff.append([*self.ff, FeedForward(d_model)][0])"}, words="""
    All layers share one sublayer, and its numbers: it was made once and put into the list n times. (The Universal
    Transformer does so on purpose.) Each layer has sublayers of its own.""")
slip("one sublayer for all layers", ("registered", *FOUND),
     {"self.attention.append(Attention(d_model, n_heads, max_length))":
      "self.attention.append([*self.attention, Attention(d_model, n_heads, max_length)][0])"})
slip("a norm before the first layer", WIRED,
     {f"self.embedding(tokens) + {PLACES}": f"self.norm(self.embedding(tokens) + {PLACES})"}, words="""
    The sum of embedding and position is normalised before the first layer. In a pre-norm model it goes in as it is,
    and the first norm stands in the first branch.""")
slip("probabilities", WIRED, {OUT: "self.logits(self.norm(x)).softmax(dim=-1)"}, words="""
    What comes back has been through a softmax. Logits are asked for: the loss takes the softmax itself, and would take
    it twice.""")
slip("positions not added", (*WIRED, "learns"), {f" + {PLACES}": ""}, words="""
    The table of positions is made and not used. To a causal model the order of the tokens is then nearly lost.""")
slip("what attention found is not passed on", FOUND,
     {FIRST: "h = x + self.attention[layer](self.norm_1[layer](x))",
      SECOND: "x = x + self.ff[layer](self.norm_2[layer](h))"}, words="""
    The feed-forward network reads the sum that attention has left, and its own sum begins at the x before that: what
    attention found goes no further. With *all* sublayers zeroed this does not show: zero only the networks.""")
slip("positions from the end", WIRED, {PLACES: "self.positions.weight[-n:]"}, words="""
    The last n rows of the table were taken: which row a token gets depends on how long its text is. Compare the logits
    of a text with those of its first half. Token t gets row t.""")
slip("positions without a gradient", ("learns",), {PLACES: "self.positions.weight.data[:n]"}, words="""
    The rows of the table are read past autograd, by `.data`: they keep the numbers with which they began, and nothing
    says so. List the parameters whose `grad` is None after one `backward`.""")
slip("layers in a plain list", ("registered", *WIRED), {
    "self.attention, self.ff = nn.ModuleList(), nn.ModuleList()": "self.attention, self.ff = [], []"}, words="""
    The sublayers are in plain Python lists. A module does not look into these, so the sublayers are never trained,
    saved or moved.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("zip, and positions from the table")
class ZipAndPositionsFromTheTable(nn.Module):
    """The loop over four lists at once, and the first rows of the table."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length=max_length) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.norm, self.logits = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.size(1)]
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True):
            found = attention(norm_1(x))
            x = x + found
            normed = norm_2(x)
            x = x + ff(normed)
        return self.logits(self.norm(x))


@alternative("positions for every text")
class PositionsForEveryText(nn.Module):
    """Indices (batch, n), and a name of its own for each normalised x."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1, self.attention, self.norm_2, self.ff = (nn.ModuleList() for _ in range(4))
        for _ in range(n_layers):
            self.norm_1 += [nn.LayerNorm(d_model)]
            self.norm_2 += [nn.LayerNorm(d_model)]
            self.attention += [Attention(d_model, n_heads, max_length)]
            self.ff += [FeedForward(d_model)]
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        x = self.embedding(tokens) + self.positions(places)
        for i, attention in enumerate(self.attention):
            h = self.norm_1[i](x)
            x = x + attention(h)
            h = self.norm_2[i](x)
            x = x + self.ff[i](h)
        h = self.norm(x)
        return self.logits(h)


@alternative("layers by number")
class LayersByNumber(nn.Module):
    """The same parts, made in another order, and the sums written with torch.add."""

    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.logits = nn.Linear(d_model, vocab_size)
        self.norm = nn.LayerNorm((d_model,))
        self.ff = nn.ModuleList(map(FeedForward, [d_model] * n_layers))
        self.norm_2 = nn.ModuleList(map(nn.LayerNorm, [d_model] * n_layers))
        self.attention = nn.ModuleList(Attention(d_model, n_heads, max_length) for _ in range(n_layers))
        self.norm_1 = nn.ModuleList(map(nn.LayerNorm, [d_model] * n_layers))
        self.positions = nn.Embedding(max_length, d_model)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.n_layers = n_layers

    def forward(self, tokens):
        x = torch.add(self.embedding(tokens), self.positions.weight.narrow(0, 0, tokens.shape[1]))
        for i in range(self.n_layers):
            x = torch.add(x, self.attention[i](self.norm_1[i](x)))
            x = torch.add(x, self.ff[i](self.norm_2[i](x)))
        return self.logits(self.norm(x))
