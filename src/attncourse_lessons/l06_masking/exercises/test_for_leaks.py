"""test_for_leaks: Whether any output of `model` depends on inputs at later positions."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise

# A change of the future that moves an output by less than this is rounding.
ROUNDING = 1e-5


def reference(model, x):
    """Whether any output of `model` depends on what comes after it."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1.0, 100.0):
            changed = torch.cat([x[:, : i + 1], size * torch.randn_like(x[:, i + 1 :])], dim=1)
            after = model(changed)[:, : i + 1]
            if not torch.allclose(after, before[:, : i + 1], rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
                return torch.tensor(True)
    return torch.tensor(False)


def solution(model, x):
    before = model(x)                                                      # (batch, n, d_out)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):  # one draw each: a random future shows these models' leaks
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])  # another future
            after = model(changed)
            same = torch.allclose(
                after[:, : i + 1], before[:, : i + 1], rtol=1e-5, atol=1e-5, equal_nan=True
            )
            if not same:
                return True
    return False


exercise = Exercise(
    "test_for_leaks",
    reference=reference,
    solution=solution,
    returns=("leaks",),
    truths=True,
    difficulty=3,
    minutes=40,
    hints=(
        "If you change only what comes after position i, which outputs may change, and which must stay as they were? "
        "Ask that for every i.",
        "`changed = x.clone()`, then other numbers in `changed[:, i + 1:]`, all features, once as large as usual and "
        "once a hundred times as large. Compare `model(changed)[:, :i + 1]` with what was there before.",
        "Change all sentences of the batch, compare all. NaN is not equal to NaN, and NaN > 0.1 is False, so a "
        "difference of NaN hides what stands beside it. And how small is the smallest leak, how large is rounding? "
        "`torch.allclose` takes `rtol`, `atol` and `equal_nan=True`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


Model = Callable[[Tensor, Tensor], Tensor]  # (x (batch, n, d), drawn matrices (3, d, d)) -> (batch, n, d_out)


def _heed(x: Tensor, W: Tensor, allowed: Tensor) -> Tensor:
    """Self-attention in which a query with nothing to attend to gets zeros."""
    return attention.attend(x @ W[0], x @ W[1], x @ W[2], allowed)[0]


def _bare(x: Tensor, W: Tensor, allowed: Tensor) -> Tensor:
    """The same, in which it gets NaN."""
    scores = (x @ W[0]) @ (x @ W[1]).mT / math.sqrt(x.shape[-1])
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ (x @ W[2])


def _table(x: Tensor) -> Tensor:
    """(n, n), True."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)


def _so_far(x: Tensor) -> Tensor:
    """How many positions there are up to each, (n, 1)."""
    return torch.arange(1, x.shape[1] + 1)[:, None]


def _causal(x: Tensor, W: Tensor) -> Tensor:
    return _heed(x, W, _table(x).tril())


def _recurrent(x: Tensor, W: Tensor) -> Tensor:
    h, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ W[0] + h @ W[1])
        states.append(h)
    return torch.stack(states, dim=1)


def _pairs(x: Tensor) -> Tensor:
    """Whether i and j lie in one chunk of two."""
    chunk = torch.arange(x.shape[1]) // 2
    return chunk[:, None] == chunk


def _alone(x: Tensor) -> Tensor:
    """Each position may attend to itself alone."""
    return _table(x).tril() & _table(x).triu()


def _no_first(x: Tensor) -> Tensor:
    """Every position may attend to all, but for the first one, which may attend to nothing."""
    return _table(x) & (torch.arange(x.shape[1]) > 0)[:, None]


def _up_to(x: Tensor, limit: int = 3) -> Tensor:
    """A causal mask that was made for `limit` positions: behind those nothing is forbidden."""
    allowed = _table(x).tril()
    allowed[limit:, limit:] = True
    return allowed


def _centred(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _large(x: Tensor) -> Tensor:
    """What of each number lies beyond 5: nothing, for numbers of the usual size."""
    return (x.abs() - 5).relu()


def _beside_rounding(x: Tensor, W: Tensor) -> Tensor:
    """Causal attention whose softmax subtracts the largest score of *all*, which changes nothing but the rounding."""
    query, key = (x @ w / ((x @ w).norm(dim=-1, keepdim=True) + 1e-6) for w in W[:2])
    scores = 3 * query @ key.mT
    shares = (scores - scores.amax(dim=-1, keepdim=True)).exp() * _table(x).tril()
    return shares / shares.sum(dim=-1, keepdim=True) @ (2 + torch.tanh(x))


# In every family: a test that misses or accuses these does not miss what the family is about, but something simpler.
CONTROLS: tuple[tuple[str, bool, Model], ...] = (
    ("a model that returns at each position the vector of the next one", True, lambda x, W: x.roll(-1, dims=1)),
    ("a model that adds the mean of the whole sentence", True, lambda x, W: x + x.mean(dim=1, keepdim=True)),
    ("a model that returns every vector as it is", False, lambda x, W: x.clone()),
)


def _family(name: str, hint: int, meaning: str, *family: tuple[str, bool, Model]) -> None:
    """An aspect: models, each with its story and whether it leaks. At least one does, and at least one does not."""
    models = family + CONTROLS

    def look(answer, draw):
        batch, d = 2 + int(draw.integers(2, 1)), 4 + 2 * int(draw.integers(2, 1))
        n = 5 + 2 * int(draw.integers(2, 1))  # odd: the last position is alone where chunks are pairs
        x, W = draw.normal(batch, n, d), draw.normal(3, d, d) / math.sqrt(d)

        def of(model: Model) -> Callable[[Tensor], Tensor]:
            return lambda x: model(x, W)

        return torch.stack([answer(of(model), x) for _, _, model in models])

    def explain(got, expected):
        for (story, leaks, _), said in zip(models, got, strict=True):
            if bool(said) != leaks:
                return f"{'misses' if leaks else 'wrongly accuses'} {story}"
        return None

    look.__doc__ = meaning
    exercise.aspect(name, points=1, explain=explain, hint=hint)(look)


_family(
    "no mask",
    1,
    "catches attention without a mask; leaves causal attention and a recurrent network alone",
    ("attention without any mask", True, lambda x, W: _heed(x, W, _table(x))),
    ("attention with a causal mask", False, _causal),
    ("a recurrent network, which has no way to look ahead", False, _recurrent),
)


_family(
    "one step too far",
    1,
    "catches a mask with j ≤ i + 1, and one that lets i + 2 in alone; leaves j ≤ i and j < i alone",
    ("a mask that allows j ≤ i + 1", True, lambda x, W: _heed(x, W, _table(x).tril(1))),
    ("a mask that allows j ≤ i and j = i + 2, not the position in between", True,
     lambda x, W: _heed(x, W, _table(x).tril() | (_table(x).tril(2) & _table(x).triu(2)))),
    ("a mask that allows j ≤ i", False, _causal),
    ("a mask that allows j < i, with zeros in the first row", False, lambda x, W: _heed(x, W, _table(x).tril(-1))),
)  # fmt: skip


_family(
    "inside a chunk",
    1,
    "catches a leak that never comes from the last position",
    ("attention in chunks of two, in which the mask inside a chunk was forgotten (the last position is alone in its "
     "chunk and tells nobody)", True, lambda x, W: _heed(x, W, _table(x).tril() | _pairs(x))),
    ("attention inside chunks of two, with a mask", False, lambda x, W: _heed(x, W, _table(x).tril() & _pairs(x))),
)  # fmt: skip


_family(
    "past the limit",
    1,
    "catches a leak that never reaches the first positions",
    ("a mask made for three positions, past which nothing is forbidden", True, lambda x, W: _heed(x, W, _up_to(x))),
    ("attention with a causal mask", False, _causal),
)


_family(
    "outputs that sum to zero",
    2,
    "catches a leak that does not show in the sum of an output's numbers",
    ("attention without a mask, followed by a LayerNorm: the numbers of each output always sum to zero", True,
     lambda x, W: _centred(_heed(x, W, _table(x)))),
    ("the same with a causal mask", False, lambda x, W: _centred(_causal(x, W))),
)  # fmt: skip


_family(
    "no gradient",
    2,
    "catches a leak through which no gradient flows",
    ("a model that subtracts the mean of the whole sentence, detached", True,
     lambda x, W: x @ W[0] - x.mean(dim=1, keepdim=True).detach()),
    ("a model that subtracts the mean of what was read so far, detached", False,
     lambda x, W: x @ W[0] - x.cumsum(dim=1).detach() / _so_far(x)),
)  # fmt: skip


_family(
    "in steps",
    2,
    "catches a leak that small changes do not show",
    ("a model that counts the positive numbers of the whole sentence", True,
     lambda x, W: x @ W[0] + (x > 0).float().mean(dim=1, keepdim=True)),
    ("a model that counts those that it has read so far", False,
     lambda x, W: x @ W[0] + (x > 0).float().cumsum(dim=1) / _so_far(x)),
)  # fmt: skip


_family(
    "one feature",
    2,
    "catches a leak of one feature alone",
    ("a causal model to which the last feature's mean over the whole sentence is added", True,
     lambda x, W: _causal(x, W) + x[..., -1:].mean(dim=1, keepdim=True)),
    ("a causal model to which its mean over what was read is added", False,
     lambda x, W: _causal(x, W) + x[..., -1:].cumsum(dim=1) / _so_far(x)),
)  # fmt: skip


_family(
    "a sleeper",
    2,
    "catches a leak that only large numbers wake up",
    ("a model that looks ahead only where a number in the future is larger than 5", True,
     lambda x, W: _causal(x, W) + _large(x).amax(dim=1, keepdim=True)),
    ("a model that looks for such numbers in its past", False,
     lambda x, W: _causal(x, W) + _large(x).cummax(dim=1).values),
)  # fmt: skip


_family(
    "faint, or rounding",
    3,
    "tells a faint leak from rounding",
    ("a causal model to which the tanh of the whole sentence's mean is added, divided by 4000", True,
     lambda x, W: _causal(x, W) + torch.tanh(x.mean(dim=1, keepdim=True)) / 4000),
    ("a causal model in which the future changes nothing but the rounding, by about 1e-7", False, _beside_rounding),
)  # fmt: skip


_family(
    "NaN",
    3,
    "catches a leak beside a row of NaN, and does not take such a row for a leak",
    ("a mask upside down: each position sees its future alone, and the last one, which has none, is NaN", True,
     lambda x, W: _bare(x, W, _table(x).triu(1))),
    ("attention without a mask, whose first row is always NaN", True, lambda x, W: _bare(x, W, _no_first(x))),
    ("a mask that allows j < i, with NaN in the first row, whatever comes after it", False,
     lambda x, W: _bare(x, W, _table(x).tril(-1))),
)  # fmt: skip


_family(
    "the rest of the batch",
    3,
    "catches a leak from another sentence's future, and does not take other sentences for the future",
    ("a model that subtracts the mean over sentences and positions", True,
     lambda x, W: x @ W[0] - (x @ W[1]).mean(dim=(0, 1))),
    ("a model that adds the means of the *other* sentences of the batch, and not its own", True,
     lambda x, W: x @ W[0] + (x.sum(dim=0) - x).mean(dim=1, keepdim=True)),
    ("a model in which each position sees only itself and the same position in the other sentences", False,
     lambda x, W: _heed(x, W, _alone(x)) - (x @ W[1]).mean(dim=0)),
)  # fmt: skip


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_FAMILY = tuple(aspect.name for aspect in exercise.aspects)
FAINT, NAN = ("faint, or rounding",), ("NaN",)
NO_NUMBERS = tuple(name for name in EVERY_FAMILY if name not in ("no gradient", "in steps"))
COMPARED = "after[:, : i + 1], before[:, : i + 1]"
SAME = f"torch.allclose(\n            {COMPARED}, rtol=1e-5, atol=1e-5, equal_nan=True\n        )"
CHANGED, FUTURE = "changed[:, i + 1 :]", "x[:, i + 1 :]"
DRAWN = f"size * torch.randn_like({FUTURE})"

slip("accuses every model", EVERY_FAMILY,
    {COMPARED: "after, before"},
    {CHANGED: "changed[:, i:]", FUTURE: "x[:, i:]"},  # the slice begins one place too early
    words="""
    Every model was accused, even the correct ones. Either you compare an output that is *allowed* to change, at the
    changed position itself or after it; or you change something in its past. Draw a line after position i: change what
    is right of it, compare what is left of it.""")
slip("acquits every model", EVERY_FAMILY, {"model(changed)": "model(x)"}, words="""
    No model was accused, not even attention without a mask. Either nothing was changed, or nothing was compared: look
    at your slices for some i, and print how much `x` and the outputs differ.""")
slip("past and future exchanged", EVERY_FAMILY[:-1],
    {CHANGED: "changed[:, : i + 1]", FUTURE: "x[:, : i + 1]", COMPARED: "after[:, i + 1 :], before[:, i + 1 :]"},
    words="""
    You changed the past and looked to see whether what comes later moves. In a correct model it does: the past is what
    it reads. Do it the other way round: change what comes after position i, and compare the outputs up to i.""")
slip("a gap of one", EVERY_FAMILY, {COMPARED: "after[:, :i], before[:, :i]"}, words="""
    Between the outputs that were compared and the inputs that were changed one position was left out, so a model that
    looks exactly one step ahead goes free; and that is the leak that pays best, and the slip that is made most easily.
    What is changed must begin right after the last output that is compared.""")
slip("True for a correct model", EVERY_FAMILY, {"return True": "return False", "return False": "return True"}, words="""
    Every verdict is the opposite of the right one. The question is "does it leak?": True accuses.""")
slip("only the last position is changed", ("inside a chunk",),
    {CHANGED: "changed[:, -1:]", FUTURE: "x[:, -1:]"},
    words="""
    Only the last position was changed. A leak need not come from there: position 2 may see position 3 while nobody sees
    the last one. Every position but one has a future; try them all.""")
slip("not every position is looked at", ("past the limit", "NaN"), {"range(x.shape[1] - 1)": "range(1)"}, words="""
    Only outputs at the front were compared, perhaps the first alone. They have the longest future, but a leak may lie
    further back: a mask that ends too early leaves the front alone. Look at every position that has a future.""")
slip("only one feature is changed", ("one feature",),
    {CHANGED: "changed[:, i + 1 :, 0]", FUTURE: "x[:, i + 1 :, 0]"},
    words="""
    Only one number of each position was changed. A leak may go through a different one, and then this test never
    touches what leaks. Change all features.""")
slip("the future in another order", EVERY_FAMILY, {DRAWN: f"{FUTURE}.flip(1)"}, words="""
    The future was put in another order. To attention that is the same set of keys and values (lecture
    @self_attention), to a mean or a count it is the same sum, and a future of one position has no other order. Put
    other numbers there.""")
slip("only small changes", ("in steps", "a sleeper", *FAINT),
    {f"= {DRAWN}": f"+= 1e-4 * torch.randn_like({FUTURE}).sign()", "rtol=1e-5, atol=1e-5": "rtol=0, atol=2e-6"},
    words="""
    The future was changed by next to nothing. A model that counts or rounds does not notice that, one that heeds only
    large numbers sleeps on, and what a small change sends through a faint leak drowns in the rounding. Nothing obliges
    you to be gentle: put other numbers there, and large ones too.""")
slip("no change large enough", ("a sleeper",),
    {"(1, 100)": "(1,)"},
    {"model(changed)": "model(x[:, : i + 1])"},  # the future is cut off and not changed
    {DRAWN: "0"},
    words="""
    All changes were of the usual size. Some leaks sleep until a number in the future is large. The contract speaks of a
    hundred times the usual size: try that as well.""")
slip("a faint leak taken for rounding", FAINT,
    {f"= {DRAWN}": f"+= 10 * torch.randn_like({FUTURE}).sign()", "rtol=1e-5, atol=1e-5": "rtol=0, atol=0.3"},
    {"rtol=1e-5, atol=1e-5": "rtol=0, atol=0.05"},
    {"rtol=1e-5, atol=1e-5": "rtol=0, atol=0.02"},
    {"rtol=1e-5, atol=1e-5": "rtol=0, atol=1e-3"},
    words="""
    So much was allowed that a faint leak went through as rounding. Rounding moves a number by about its seventh digit;
    training finds and uses leaks that are far weaker than 0.001. Between the two there is room enough.""")
slip("equal to the last digit", FAINT, {"rtol=1e-5, atol=1e-5": "rtol=0, atol=0"}, words="""
    No difference at all was allowed. Arithmetic in float32 is good to seven digits, and a model may be right in
    mathematics while its last digit depends on what else was in the row. Allow a little: `torch.allclose` does.""")
slip("sums that cancel", ("outputs that sum to zero",),
    {SAME: "not (after - before)[:, : i + 1].nanmean().abs() > 1e-5"},
    words="""
    Numbers of an output, or their differences, were added up or averaged with their signs, and what one of them gained
    another one lost. After a LayerNorm they always cancel. Take the sizes of the differences first, `.abs()`, and then
    the largest.""")
slip("NaN swallowed the difference", NAN, {SAME: "not (after - before)[:, : i + 1].abs().max() > 1e-4"}, words="""
    A row of NaN hid what stood beside it. Any comparison with NaN is False: `max()` of differences of which one is NaN
    is NaN, and `NaN > 1e-5` is False, so the model was acquitted. Look at the numbers that are not NaN, or let
    `torch.allclose(…, equal_nan=True)` do it.""")
slip("NaN is not equal to NaN", NAN, {", equal_nan=True": ""}, words="""
    A model was accused because it returns NaN, before and after the change alike. That is a fault, but not a leak. NaN
    is not equal to itself, unless you say `equal_nan=True`.""")
slip("a future that is not a number", (*NO_NUMBERS, "in steps"),
    {DRAWN: "torch.nan", SAME: "not after[:, : i + 1].isnan().any()"},
    words="""
    You put NaN or ∞ into the future and looked to see whether it comes through. It does, in models that are right:
    a masked value has the weight 0, and 0 · NaN and 0 · ∞ are NaN. (And a model that counts never shows it.) Use
    numbers.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a future that is not a number", fails=NO_NUMBERS)
def an_infinite_future(model, x):
    """Infinity, and a comparison."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] = torch.inf
        if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@variant("not every position is looked at", fails=("past the limit",))
def the_first_three_positions(model, x):
    """The first three."""
    before = model(x)
    for size in (1, 100):
        changed = x.clone()
        changed[:, 3:] = size * torch.randn_like(x[:, 3:])
        if not torch.allclose(model(changed)[:, :3], before[:, :3], atol=1e-5, equal_nan=True):
            return True
    return False


@misconception(
    "the gradient of a sum", fails=("outputs that sum to zero", "no gradient", "in steps", "a sleeper", "NaN")
)
def the_gradient_of_a_sum(model, x):
    """You asked for the gradient of a *sum* of outputs. After a LayerNorm that sum is always zero, whatever leaks, so
    its gradient is zero too. (And where a model counts, or detaches, a leak has no gradient at all: there only changing
    the input and looking again will show it.)"""
    x = x.clone().requires_grad_()
    output = model(x)
    for i in range(x.shape[1] - 1):
        (gradient,) = torch.autograd.grad(output[:, i].sum(), x, retain_graph=True)
        if (gradient[:, i + 1 :].abs() > 1e-5).any():
            return True
    return False


@misconception("a gradient where there is none", fails=("no gradient", "in steps", "a sleeper", "NaN"))
def a_gradient_where_there_is_none(model, x):
    """The gradient says how an output moves when its input moves by next to nothing, here, along the paths that torch
    has recorded. A model that counts, or rounds, or detaches, or wakes up only later, leaks with a gradient of zero.
    Change the input, and look again."""
    x = x.clone().requires_grad_()
    output = model(x)
    for i in range(x.shape[1] - 1):
        direction = torch.randn_like(output[:, i])
        (gradient,) = torch.autograd.grad((output[:, i] * direction).sum(), x, retain_graph=True)
        if (gradient[:, i + 1 :].abs() > 1e-5).any():
            return True
    return False


@misconception("only the next position is changed", fails=("one step too far",))
def only_the_next_position_is_changed(model, x):
    """For each position only the one right after it was changed. A leak may leave that one out and come from further
    on. Change all that comes after position i, or each later position in turn."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1] = size * torch.randn_like(x[:, i + 1])
            if not torch.allclose(model(changed)[:, i], before[:, i], rtol=1e-5, atol=1e-5, equal_nan=True):
                return True
    return False


@misconception("a sentence's own future alone", fails=("the rest of the batch",))
def a_sentences_own_future_alone(model, x):
    """Only one sentence was changed at a time, and only its own outputs were looked at; or the batch was cut down to
    one sentence. A model may also let a sentence hear the future of *another* one, which is a leak by the contract:
    change the later positions of all sentences, and compare all outputs."""
    before = model(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1] - 1):
            for size in (1, 100):
                changed = x.clone()
                changed[b, i + 1 :] = size * torch.randn_like(x[b, i + 1 :])
                after = model(changed)[b, : i + 1]
                if not torch.allclose(after, before[b, : i + 1], rtol=1e-5, atol=1e-5, equal_nan=True):
                    return True
    return False


@variant("a sentence's own future alone", fails=("the rest of the batch",))
def the_first_sentence_alone(model, x):
    """The first sentence alone."""
    x = x[:1]
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
                return True
    return False


@misconception("each sentence by itself", fails=("the rest of the batch",))
def each_sentence_by_itself(model, x):
    """A sentence alone was compared with the same sentence in its batch. A model may let sentences of a batch mix (a
    batch norm does), and that may be a fault, but the others at position i are not the future of position i. Keep the
    batch together, and change what comes later."""
    before = model(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1] - 1):
            for size in (1, 100):
                changed = x[b : b + 1].clone()
                changed[:, i + 1 :] = size * torch.randn_like(changed[:, i + 1 :])
                after = model(changed)[0, : i + 1]
                if not torch.allclose(after, before[b, : i + 1], atol=1e-5, equal_nan=True):
                    return True
    return False


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("prefixes of large sentences")
def prefixes_of_large_sentences(model, x):
    """What is not there cannot be seen: is the whole pass what each prefix gives by itself?"""
    for size in (1, 100):
        whole = model(size * x)
        for i in range(1, x.shape[1]):
            alone = model(size * x[:, :i])
            if not torch.allclose(alone, whole[:, :i], rtol=1e-5, atol=1e-5, equal_nan=True):
                return True
    return False


@alternative("one position at a time, NaN left out")
def one_position_at_a_time_nan_left_out(model, x):
    """Changes a single position, looks at all before it, and compares what is a number."""
    before = model(x).detach().clone()
    for j in range(1, x.shape[1]):
        for size in (1.0, 3.0, 50.0, -50.0):
            changed = x.clone()
            changed[:, j, :] = size + torch.randn(x.shape[0], x.shape[2])
            difference = (model(changed) - before)[:, :j]
            if (difference[~difference.isnan()].abs() > 1e-5).any():
                return True
    return False


@alternative("a table of who hears whom")
def a_table_of_who_hears_whom(model, x):
    """Its upper triangle must be empty. A tensor comes back."""
    n = x.shape[1]
    before = model(x)
    hears = torch.zeros(n, n)
    for j in range(n):
        for change in (torch.randn_like(x[:, j]), torch.full_like(x[:, j], 40.0)):
            moved = x.detach().clone()
            moved[:, j] += change
            difference = (model(moved) - before).abs().nan_to_num(0.0).amax(dim=(0, 2))
            hears[:, j] = torch.maximum(hears[:, j], difference.detach())
    return (hears.triu(1) > 1e-4).any()


@alternative("many draws at once, in words")
def many_draws_at_once_in_words(model, x):
    """Many changes for each line, and a relative error."""
    n = x.shape[1]
    before = torch.nan_to_num(model(x), nan=7.0)
    leaks = []
    for i in range(n - 1):
        for trial in range(6):
            future = torch.randn_like(x) * 10 ** (trial % 3)
            changed = torch.where(torch.arange(n)[:, None] > i, future, x)
            after = torch.nan_to_num(model(changed), nan=7.0)
            error = ((after - before) / (1 + before.abs()))[:, : i + 1].abs().max().item()
            leaks.append(error > 1e-5)
    return any(leaks)
