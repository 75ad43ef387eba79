"""broken_rules: which of three rules a layer for padded sentences breaks, found out by calling it."""

import math

import torch
import torch.nn.functional as F

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, sentences

RULES = ("padding", "mean", "feature")


def reference(layer, x, real, W_Q, W_K, W_V):
    """Whether the layer breaks the rule of the padding, of the mean, of one more feature."""

    def apart(got, expected):
        return (got - expected).abs().max() > 1e-3

    before, full = layer(x, real, W_Q, W_K, W_V), torch.ones_like(real)
    other = layer(x.masked_fill(~real[..., None], 0.0) + torch.randn_like(x) * ~real[..., None], real, W_Q, W_K, W_V)
    first = torch.eye(x.shape[-1])[0].expand_as(x[:, :1])
    asking = torch.cat([first, x[:, 1:]], dim=1)
    silent = torch.cat([torch.zeros_like(W_Q[:1]), W_Q[1:]])
    received = layer(asking, full, silent, W_K, W_V)[:, 0]
    wider = [torch.cat([W, torch.randn(1, W.shape[1])]) for W in (W_Q, W_K, W_V)]
    return (
        apart(other[real], before[real]),
        apart(received, (asking @ W_V).mean(dim=1)),
        apart(layer(F.pad(x, (0, 1)), real, *wider), before),
    )


def solution(layer, x, real, W_Q, W_K, W_V):
    def differ(got, expected):
        return bool((got - expected).abs().max() > 1e-3)     # between 0.00001 and 0.01

    before = layer(x, real, W_Q, W_K, W_V)                   # (batch, n, d_v)
    other = torch.where(real[..., None], x, torch.randn_like(x))
    after = layer(other, real, W_Q, W_K, W_V)
    padding = differ(after[real], before[real])              # real tokens alone

    full = torch.ones_like(real)                             # no padding
    tokens, silent = x.clone(), W_Q.clone()
    tokens[:, 0] = torch.eye(x.shape[-1])[0]                 # token 0 has feature 0 alone,
    silent[0] = 0.0                                          # of which no query is made
    received = layer(tokens, full, silent, W_K, W_V)[:, 0]   # (batch, d_v)
    mean = differ(received, (tokens @ W_V).mean(dim=1))

    wider = [torch.cat([W, torch.randn(1, W.shape[1])]) for W in (W_Q, W_K, W_V)]
    x_wider = nn.functional.pad(x, (0, 1))                   # (batch, n, d_model + 1)
    feature = differ(layer(x_wider, real, *wider), before)
    return padding, mean, feature


nn = torch.nn  # as the notebook has it

exercise = Exercise(
    "broken_rules",
    reference=reference,
    solution=solution,
    returns=RULES,
    forbidden=READY_MADE,
    truths=True,
    difficulty=2,
    minutes=20,
    hints=(
        "Call the layer twice, with the padding as it is and with other numbers in it. `torch.where(real[..., None], "
        "x, torch.randn_like(x))` changes the padding alone. Which rows of the two outputs must be equal? Compare "
        "these and no others.",
        "Take the batch without padding: `real` is True everywhere. In a copy of x, token 0 becomes feature 0 alone, "
        "(1, 0, 0, …), and in a copy of W_Q, row 0 becomes zero. Then this query alone is zero, and the token's key "
        "and value are not. Which mean must it receive? Its own new value counts.",
        "`torch.cat` puts another row under a matrix, and `nn.functional.pad(x, (0, 1))` puts a zero behind the "
        "features of each token. The new rows are multiplied by these zeros, so what is in them must make no "
        "difference. Does your test put something there?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ------------------------------------------------------------------------------------------------ layers, right and not


def _layer(
    scores=lambda Q, K, x, W: Q @ K.mT / math.sqrt(K.shape[-1]),
    mask=lambda scores, real: scores.masked_fill(~real[:, None], -torch.inf),
    shares=lambda scores, real: scores.softmax(dim=-1),
    clear=True,
):
    """Self-attention of padded sentences, of these pieces."""

    def layer(x, real, W_Q, W_K, W_V):
        made = mask(scores(x @ W_Q, x @ W_K, x, (W_Q, W_K)), real)
        output = shares(made, real) @ (x @ W_V)
        return output.masked_fill(~real[..., None], 0.0) if clear else output

    return layer


def _by_the_mean_of_all(scores, real):
    """A softmax that subtracts the mean of all scores, padding's too: only its rounding depends on padding."""
    exponentials = (scores - scores.mean(dim=(1, 2), keepdim=True)).exp() * real[:, None]
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def _up_to_the_length(scores, real):
    return scores.masked_fill(torch.arange(real.shape[1]) >= real.sum(dim=1)[:, None, None], -torch.inf)


def _among_those_who_ask(scores, real):
    exponentials = scores.exp() * real[:, None] * real[:, :, None]
    return exponentials / exponentials.sum(dim=-2, keepdim=True).clamp(min=1e-9)


def _not_itself(scores, real):
    itself = torch.eye(real.shape[1], dtype=torch.bool)
    return scores.masked_fill(~real[:, None] | itself, -1e9)


def _kept(scores, real):
    return scores


def _afterwards(scores, real):
    return scores.softmax(dim=-1) * real[:, None]


def _keys_ask(Q, K, x, W):
    return K @ Q.mT / math.sqrt(K.shape[-1])


def _by_the_model(Q, K, x, W):
    return Q @ K.mT / math.sqrt(x.shape[-1])


def _to_length_one(Q, K, x, W):
    return 2 * Q @ (K / W[1].norm(dim=0)).mT


def _exact(x, real, W_Q, W_K, W_V):
    """Right to the last digit: in double precision, and a query of zeros gets the mean itself."""
    values = x @ W_V
    output = _layer()(x.double(), real, W_Q.double(), W_K.double(), W_V.double()).float()
    silent = (x @ W_Q == 0).all(dim=-1, keepdim=True) & real.all(dim=1)[:, None, None]
    return torch.where(silent, values.mean(dim=1, keepdim=True), output)


def _zeros(x, real, W_Q, W_K, W_V):
    return torch.zeros(*real.shape, W_V.shape[1])


# Each with its story and, for every rule, whether it is broken.
SOUND, PADDING, MEAN, FEATURE = (False,) * 3, (True, False, False), (False, True, False), (False, False, True)
LAYERS = (
    ("a right layer", SOUND, _layer()),
    ("a right layer that rounds a little", SOUND, _layer(
        scores=lambda Q, K, x, W: (Q / math.sqrt(x.shape[-1])) @ K.mT * math.sqrt(x.shape[-1] / K.shape[-1]),
        mask=_kept, shares=_by_the_mean_of_all)),
    ("a right layer in double precision", SOUND, _exact),
    ("a right layer, in which padding receives something, too", SOUND, _layer(clear=False)),
    ("a layer without a mask", PADDING, _layer(mask=_kept)),
    ("a layer that masks those who ask", PADDING, _layer(
        mask=lambda scores, real: scores.masked_fill(~real[:, :, None], -1e9))),
    ("a layer that takes the padding out after the softmax", PADDING, _layer(mask=_kept, shares=_afterwards)),
    ("a layer in which padding gets a score of 0", PADDING, _layer(
        mask=lambda scores, real: scores.masked_fill(~real[:, None], 0.0))),
    ("a layer that masks only what stands behind a sentence", PADDING, _layer(mask=_up_to_the_length)),
    ("a layer that has the first sentence's mask for all", PADDING, _layer(
        mask=lambda scores, real: scores.masked_fill(~real[:1, None], -torch.inf))),
    ("a layer in which keys ask and queries answer", MEAN, _layer(scores=_keys_ask)),
    ("a layer that makes its queries with W_K", MEAN, _layer(
        scores=lambda Q, K, x, W: K @ K.mT / math.sqrt(K.shape[-1]))),
    ("a layer whose softmax runs over those who ask", MEAN, _layer(mask=_kept, shares=_among_those_who_ask)),
    ("a layer in which a token does not attend to itself", MEAN, _layer(mask=_not_itself)),
    ("a layer whose weights do not sum to one", MEAN, _layer(
        mask=_kept, shares=lambda scores, real: scores.sigmoid() * real[:, None])),
    ("a layer that returns zeros", MEAN, _zeros),
    ("a layer that divides by √d_model", FEATURE, _layer(scores=_by_the_model)),
    ("a layer that divides by d_model", FEATURE, _layer(scores=lambda Q, K, x, W: Q @ K.mT / x.shape[-1])),
    ("a layer that brings the columns of W_K to length one", FEATURE, _layer(scores=_to_length_one)),
    ("a layer that breaks the first two rules", (True, True, False), _layer(scores=_keys_ask, mask=_kept)),
    ("a layer that breaks the first rule and the third", (True, False, True), _layer(
        scores=_by_the_model, mask=_kept, shares=_afterwards)),
    ("a layer that breaks the last two rules", (False, True, True), _layer(
        scores=lambda Q, K, x, W: K @ Q.mT / math.sqrt(x.shape[-1]))),
)  # fmt: skip


def _inputs(draw):
    """[x, real, W_Q, W_K, W_V]: the first sentence is full, the second has padding behind it, the third a hole."""
    batch, n = 3, 6 + draw.sizes(1, 0, 2)[0]
    x, *matrices = sentences(draw, batch, n)
    real = torch.ones(batch, n, dtype=torch.bool)
    real[1, 3:] = False
    real[2, 2] = False
    return [x, real, *matrices]


def _rule(number, meaning):
    """An aspect: every layer, and what the answer says of this rule."""
    name = RULES[number]

    def look(answer, draw):
        inputs = _inputs(draw)
        return torch.stack([answer(layer, *inputs)[number] for _, _, layer in LAYERS])

    def explain(got, expected):
        for (story, _, _), said, broken in zip(LAYERS, got, expected, strict=True):
            if bool(said) != bool(broken):
                return f"rule {number + 1}, {name}: {'misses' if broken else 'accuses'} {story}"
        return None

    look.__doc__ = meaning
    exercise.aspect(name, points=1, hint=number + 1, explain=explain)(look)


_rule(0, "finds every layer in which real tokens depend on the padding, and accuses no other")
_rule(1, "finds every layer in which a query of zeros does not receive the mean, and accuses no other")
_rule(2, "finds every layer that one more feature changes, and accuses no other")


# -------------------------------------------------------------------------------------- one slip away from the solution

slip("padding's own rows compared", ("padding",), {"differ(after[real], before[real])": "differ(after, before)"},
     words="""
    All rows were compared, those of padding, too. What padding itself receives may depend on what stands in it: the
    rule is about real tokens. Compare `after[real]` with `before[real]`.""")
slip("one sentence is looked at", ("padding",),
     {"differ(after[real], before[real])": "differ(after[0][real[0]], before[0][real[0]])"}, words="""
    Only the first sentence of the batch was compared, which may have no padding at all. Compare the real tokens of
    every sentence.""")
slip("other real tokens", ("padding",),
     {"torch.where(real[..., None], x, torch.randn_like(x))": "torch.randn_like(x)"},
     {"torch.where(real[..., None], x, torch.randn_like(x))": "torch.where(real[..., None], torch.randn_like(x), x)"},
     words="""
    Real tokens were changed, too, and with other tokens every layer gives another output. Only the padding may differ
    between the two calls: True in `real` means that a token is there.""")
slip("padding left in", ("mean",), {"full = torch.ones_like(real)": "full = real"}, words="""
    The second rule was tried on a batch with padding. There a layer that breaks only the first rule fails, too, and
    the mean would be one of real tokens. Let `real` be True everywhere.""")
slip("a token of zeros", ("mean",), {"= torch.eye(x.shape[-1])[0]": "= 0.0"}, words="""
    The token was a vector of zeros. Its query is zero, but its key is, too, so all its scores are zero even where keys
    ask and queries answer. Take a token whose query is zero and whose key is not.""")
slip("every query is zero", ("mean",), {"W_Q.clone()": "torch.zeros_like(W_Q)"}, words="""
    All of W_Q was set to zero, so every token's query is zero, and every score, whichever of the two asks. Set only
    row 0 to zero: then the other tokens still have queries.""")
slip("the mean of other values", ("mean",),
     {"(tokens @ W_V).mean(dim=1)": "(x @ W_V).mean(dim=1)"},
     {"(tokens @ W_V).mean(dim=1)": "(tokens[:, 1:] @ W_V).mean(dim=1)"}, words="""
    The output was compared with the mean of other values than those the layer was given. The token that asks also
    answers: its own value, made of its new vector, belongs to the mean.""")
slip("rows of zeros", ("feature",), {"torch.randn(1, W.shape[1])": "torch.zeros(1, W.shape[1])"}, words="""
    The new rows of the matrices were zeros. Then a layer passes that does something with a matrix alone, such as
    bringing its columns to length one. The rows are multiplied by a feature of zero, so any numbers must do.""")
slip("a feature that is not zero", ("feature",), {"pad(x, (0, 1))": "pad(x, (0, 1), value=1.0)"}, words="""
    The new feature was not zero. Then queries, keys and values change, and so does the output of every layer.""")
slip("right layers accused", RULES, {"> 1e-3": "> 0.0"}, words="""
    Right layers were accused of breaking a rule. If no difference at all is allowed, rounding is enough for that: it
    moves a number by less than 0.00001, and a broken rule moves some number by more than 0.01. Put the limit between
    the two, and run your tests on a right layer.""")
slip("nothing is large enough", RULES, {"> 1e-3": "> 100.0"}, words="""
    So much was allowed that no layer breaks a rule. A broken rule may move a number by no more than 0.01.""")
slip("kept for broken", RULES, {"> 1e-3": "< 1e-3"}, words="""
    True was returned where the rule is kept. True means that the rule is broken.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("accuses every layer", fails=RULES)
def accuses_every_layer(layer, x, real, W_Q, W_K, W_V):
    """Every layer was accused of everything, right ones too. A test is worth something only if a right layer passes it:
    try yours on one, such as your `self_attention` in a batch without padding."""
    return True, True, True


@misconception("a comparison with a right layer", fails=RULES)
def a_comparison_with_a_right_layer(layer, x, real, W_Q, W_K, W_V):
    """The layer was compared with a right one. This tells that something is wrong, but not which rule is broken: ask
    for each rule by itself."""
    scores = (x @ W_Q) @ (x @ W_K).mT / math.sqrt(W_K.shape[1])
    right = scores.masked_fill(~real[:, None], -torch.inf).softmax(dim=-1) @ (x @ W_V)
    wrong = bool(((layer(x, real, W_Q, W_K, W_V) - right)[real].abs() > 1e-3).any())
    return wrong, wrong, wrong


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("inputs of its own")
def inputs_of_its_own(layer, x, real, W_Q, W_K, W_V):
    """Draws a batch and three matrices, and does not look at those it was given."""
    x, real = torch.randn(4, 5, 6), torch.ones(4, 5, dtype=torch.bool)
    real[1, 3:], real[2, 1], real[3, :2] = False, False, False
    W_Q, W_K, W_V = torch.randn(6, 3), torch.randn(6, 3), torch.randn(6, 4)
    first = layer(x, real, W_Q, W_K, W_V)
    changed = x.clone()
    changed[~real] = 3 * torch.randn(int((~real).sum()), 6)
    padding = (layer(changed, real, W_Q, W_K, W_V) - first)[real].abs().max() > 1e-4
    wider = [torch.cat([W, 2 * torch.ones(1, W.shape[1])]) for W in (W_Q, W_K, W_V)]
    more = torch.cat([x, torch.zeros(4, 5, 1)], dim=2)
    feature = (layer(more, real, *wider) - first).abs().max() > 1e-4
    x[:, -1] = 0.0
    x[:, -1, 2] = 1.0
    W_Q[2] = 0.0
    got = layer(x, torch.ones(4, 5, dtype=torch.bool), W_Q, W_K, W_V)[:, -1]
    return padding, (got - (x @ W_V).mean(dim=1)).abs().max() > 1e-4, feature


@alternative("one sentence at a time")
def one_sentence_at_a_time(layer, x, real, W_Q, W_K, W_V):
    """Goes through the batch, with `torch.allclose`, and calls the layer on every sentence among the others."""
    rules = [False, False, False]
    before = layer(x, real, W_Q, W_K, W_V)
    for b in range(len(x)):
        there, other = real[b], x.clone()
        other[b, ~there] = torch.randn(int((~there).sum()), x.shape[2])
        after = layer(other, real, W_Q, W_K, W_V)
        rules[0] |= not torch.allclose(after[b, there], before[b, there], atol=1e-3)
        alone, silent = x[b : b + 1].clone(), W_Q.clone()
        alone[0, 1], silent[0] = torch.eye(x.shape[2])[0], 0.0
        got = layer(alone, torch.ones(1, x.shape[1], dtype=torch.bool), silent, W_K, W_V)
        rules[1] |= not torch.allclose(got[0, 1], (alone[0] @ W_V).mean(dim=0), atol=1e-3)
    wider = [torch.cat([W, torch.randn(1, W.shape[1])]) for W in (W_Q, W_K, W_V)]
    more = torch.cat([x, torch.zeros(*x.shape[:2], 1)], dim=2)
    rules[2] = not torch.allclose(layer(more, real, *wider), before, atol=1e-3)
    return tuple(rules)


@alternative("the new feature in front")
def the_new_feature_in_front(layer, x, real, W_Q, W_K, W_V):
    """Puts it before the others, with rows of ones, and asks three times for new padding."""
    before = layer(x, real, W_Q, W_K, W_V)
    padding = False
    for size in (1, 2, 3):
        other = x + size * torch.randn_like(x) * (~real)[..., None]
        padding = padding or bool(((layer(other, real, W_Q, W_K, W_V) - before)[real].abs() > 0.003).any())
    more = [torch.cat([torch.ones(1, W.shape[1]), W]) for W in (W_Q, W_K, W_V)]
    feature = bool(((layer(F.pad(x, (1, 0)), real, *more) - before).abs() > 0.003).any())
    d = x.shape[2]
    silent, asking = torch.where(torch.arange(d)[:, None] == d - 1, 0.0, W_Q), x.clone()
    asking[:, 2] = torch.eye(d)[-1]
    output = layer(asking, torch.full_like(real, True), silent, W_K, W_V)
    mean = bool(((output[:, 2] - (asking @ W_V).sum(dim=1) / x.shape[1]).abs() > 0.003).any())
    return padding, mean, feature
