"""sample_token: The next token of each sentence, sampled from what temperature, top-k and top-p leave of it."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.inputs import told_apart
from lessonkit.exercises.judge import explain_case

from .common import READY_MADE


def solution(logits, temperature, top_k, top_p, u):
    probabilities = (logits / temperature).softmax(dim=-1)        # (batch, vocab_size)
    kth = probabilities.topk(top_k, dim=-1).values[:, -1:]
    probabilities = probabilities.masked_fill(probabilities < kth, 0.0)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    ordered, order = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered                     # of all that are likelier
    ordered = ordered.masked_fill(before >= top_p, 0.0)
    probabilities = torch.zeros_like(logits).scatter(-1, order, ordered)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    token = (probabilities.cumsum(dim=-1) > u[:, None]).int().argmax(dim=-1)
    return probabilities, token


exercise = Exercise(
    "sample_token",
    reference=solution,
    solution=solution,
    returns=("probabilities", "token"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Four steps, one after the other, and after each that takes tokens out the rest must sum to one again: "
        "temperature and softmax, of each row; top-k, where each row has a k-th likeliest of its own, which stays; "
        "top-p; the token.",
        "Sort the probabilities from the largest down. How much probability lies *before* each of them, without "
        "itself? A token stays if that is less than p: so the one that crosses p stays, and the first always does. "
        "`sort` returns the order as well, and `scatter` puts numbers back to where they came from.",
        "For the token take the running sum of the filtered probabilities in the order of the vocabulary, and find the "
        "first place where it is larger than u: a comparison, then `argmax` over whole numbers finds the first 1.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


NO_LIMIT = 2.0  # for top_p


def _rows(draw):
    """(logits, k, p, u): rows of different sharpness, no two probabilities of one alike.

    p lies well between running sums of every row, so that nothing hangs on the last digit; u inside a token's stretch.
    """
    batch, vocab_size = draw.sizes(2, 3, 9)
    vocab_size += 3
    steps = torch.stack([torch.randperm(vocab_size, generator=draw.generator) for _ in range(batch)])
    logits = (0.25 + 0.4 * draw.uniform(batch, 1)) * (steps + 0.3 * draw.uniform(batch, vocab_size))
    k, p = 3 + int(draw.integers(2, 1)), 0.5 + 0.3 * float(draw.uniform(1))
    running = logits.softmax(dim=-1).cumsum(dim=-1)                               # u: where each row's lot falls
    place = draw.integers(vocab_size, batch, 1)
    share = 0.2 + 0.6 * draw.uniform(batch, 1)
    u = running.gather(1, place) - share * logits.softmax(dim=-1).gather(1, place)
    return logits, k, p, u[:, 0]


def _told(name, draw, look):
    return told_apart(exercise, name, draw.seed, _rows, look)


def _kept(got, expected):
    """Says how many tokens were kept where, in the first row that is wrong in that."""
    for row, (seen, wanted) in enumerate(zip(got, expected, strict=True)):
        if (seen > 0).sum() != (wanted > 0).sum():
            return f"{int((seen > 0).sum())} tokens are left in sentence {row}, expected {int((wanted > 0).sum())}"
    return None


def _at_temperatures(answer, rows):
    logits, _, _, u = rows
    return torch.stack([answer(logits, t, logits.shape[1], NO_LIMIT, u)[0] for t in (1.0, 0.5, 2.0)])


def _top_k(answer, rows):
    return answer(rows[0], 1.0, rows[1], NO_LIMIT, rows[3])[0]


def _top_p(answer, rows):
    return answer(rows[0], 1.0, rows[0].shape[1], rows[2], rows[3])[0]


def _small_p(answer, rows):
    return answer(rows[0], 1.0, rows[0].shape[1], 0.01, rows[3])[0]


def _together(answer, rows):
    return answer(rows[0], 1.7, rows[1], rows[2], rows[3])[0]


def _tokens(answer, rows):
    return answer(rows[0], 1.0, rows[0].shape[1], NO_LIMIT, rows[3])[1]


def _left(answer, rows):
    u = torch.arange(len(rows[0])) % 2 * 0.999
    found = [answer(rows[0], 1.0, k, NO_LIMIT, u)[1] for k in (1, 3)]
    # Of a nucleus, by the probabilities that came back: what is wrong with them is not paid for twice.
    logits, _, p, _ = rows
    late = torch.full_like(u, 0.95)
    probabilities, token = answer(logits, 1.0, logits.shape[1], p, late)
    right = solution(logits, 1.0, logits.shape[1], p, late)[1]
    return torch.cat([*found, token - _by(probabilities, late) + right])


def _by(probabilities, u):
    return (probabilities.cumsum(dim=-1) > u[:, None]).int().argmax(dim=-1)


# ----------------------------------------------------------------------------------------------------- what is observed

AT = explain_case("at temperature 1", "at temperature 0.5", "at temperature 2")


@aspect("temperature", points=1, hint=1, explain=AT)
def temperature(answer, draw):
    """the logits are divided by it: below 1 the likely get likelier, above 1 all come closer together"""
    return _at_temperatures(answer, _told("temperature", draw, _at_temperatures))


@aspect("top-k", points=1, hint=1, explain=_kept)
def top_k(answer, draw):
    """the k likeliest of each sentence are left, and sum to one"""
    return _top_k(answer, _told("top-k", draw, _top_k))


@aspect("top-p", points=2, hint=2, explain=_kept)
def top_p(answer, draw):
    """the fewest of the likeliest are left that reach p together, with the one that crosses it"""
    return _top_p(answer, _told("top-p", draw, _top_p))


@aspect("a small p", points=1, hint=2, explain=_kept)
def a_small_p(answer, draw):
    """the likeliest token is left, however small p is"""
    return _small_p(answer, _told("a small p", draw, _small_p))


@aspect("all together", points=1, hint=1, explain=_kept)
def all_together(answer, draw):
    """p is reached by what the temperature and top-k have left, which sums to one again"""
    return _together(answer, _told("all together", draw, _together))


@aspect("token", points=2, hint=3)
def token(answer, draw):
    """the first token, in the vocabulary's order, at which the running sum is larger than u"""
    return _tokens(answer, _told("token", draw, _tokens))


@aspect("only from what is left", points=1, hint=3)
def only_from_what_is_left(answer, draw):
    """a token that was taken out is never sampled, also where u is 0"""
    return _left(answer, _told("only from what is left", draw, _left))


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_K = ("temperature", "top-k", "all together", "token", "only from what is left")
P = ("top-p", "a small p", "all together")
HOT, TAKEN, CROSSED = "logits / temperature", "probabilities < kth", "before >= top_p"
AGAIN = "probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)\n"
FIRST = f"masked_fill({TAKEN}, 0.0)\n{AGAIN}"
LAST = f"scatter(-1, order, ordered)\n{AGAIN}"
BEFORE = "ordered.cumsum(dim=-1) - ordered"
RUNNING = "(probabilities.cumsum(dim=-1) > u[:, None]).int().argmax(dim=-1)"

slip("times the temperature", ("temperature", "all together"), {HOT: "logits * temperature"}, words="""
    The logits were multiplied by the temperature, so a high one makes the model surer of itself. Divide: heat
    shakes.""")
slip("the temperature left out", ("temperature", "all together"), {HOT: "logits"},
     {"(logits / temperature).softmax(dim=-1)  ": "logits.softmax(dim=-1) / temperature  "},  # of the probabilities
     words="""
    The temperature has no effect. The *logits* are divided by it, before the softmax: probabilities that are all
    divided by one number, and made to sum to one again, are what they were.""")
slip("the softmax over the batch", ("temperature", "top-k", "top-p", "all together", "token"),
     {"(logits / temperature).softmax(dim=-1)  ": "(logits / temperature).softmax(dim=0)  "}, words="""
    The softmax ran over the sentences: each *token's* probabilities sum to one. A sentence's do, along the
    last axis.""")
slip("no top-k", ("top-k", "all together", "only from what is left"), {TAKEN: "probabilities < 0"}, words="""
    `top_k` has no effect: all tokens are left, and it is top-p alone that filters.""")
slip("the k-th itself taken out", EVERY_K, {TAKEN: "probabilities <= kth"},
     words="""
    One token too few is left of the k: the k-th likeliest belongs to them.""")
slip("top-k of the first sentence", EVERY_K, {"values[:, -1:]": "values[:1, -1:]"},
     words="""
    The k-th probability of the first sentence was the bound for all of them. Each row has a k-th likeliest of its
    own.""")
slip("p of the whole vocabulary", ("all together",), {FIRST: f"masked_fill({TAKEN}, 0.0)\n"}, words="""
    p was taken as a share of the whole vocabulary: what top-k left did not sum to one when p was looked at, or top-p
    came first. The order is a convention. Here top-k comes first, what it leaves is made to sum to one, and p is a
    share of that.""")
slip("not shared out again at the end", P, {LAST: "scatter(-1, order, ordered)\n"}, words="""
    What is left does not sum to one. It must, or the running sum ends below 1 and u may lie beyond it.""")
slip("the token that crosses p left out", P, {BEFORE: "ordered.cumsum(dim=-1)", CROSSED: "before > top_p"},
     {BEFORE: "ordered.cumsum(dim=-1)"},
     words="""
    The token whose probability crosses p was taken out, so what is left does not reach p; and where the first token
    alone is above p, nothing is left at all. Keep a token if what lies *before* it has not reached p yet.""")
slip("crosses p left out, but for the first", ("top-p", "all together"),
     {BEFORE: "(ordered.cumsum(dim=-1) - top_p + 1e-9).clamp(min=0).index_fill(1, torch.tensor([0]), -1.0)",
      CROSSED: "(before > 0) & (top_p < 1)"},
     words="""
    The token whose probability crosses p was taken out, and the first was kept by a rule of its own. What is left does
    not reach p. Keep a token if what lies *before* it has not reached p yet: then the first needs no rule.""")
slip("one token too many", P, {BEFORE: "ordered.cumsum(dim=-1) - ordered - ordered.roll(1, -1)"},
     words="""
    One token more than needed was kept: p was reached without it.""")
slip("the unlikely kept", P, {"descending=True": "descending=False"}, words="""
    The probabilities were sorted from the smallest up, so the *unlikely* tokens were kept. Sort from the largest
    down.""")
slip("not put back in order", (*P, "temperature", "top-k", "token", "only from what is left"),
     {".scatter(-1, order, ordered)": ".add(ordered)"}, words="""
    The probabilities came back sorted: the first of them is the largest, whichever token it belongs to. Put each back
    to where it came from.""")
slip("tokens below p taken out", ("top-p", "a small p", "all together"), {CROSSED: "(ordered < top_p) & (top_p < 1)"},
     words="""
    Each token was compared with p by itself. That is another filter (its p is called ε). The nucleus is about sums: how
    much do a token and all likelier ones have together?""")
slip("the likeliest always", ("token", "only from what is left"), {RUNNING: "probabilities.argmax(dim=-1)"}, words="""
    The likeliest token was taken, whatever u is. That is greedy decoding. u says where on the line from 0 to 1 the lot
    has fallen, and each token has a stretch of that line as long as its probability.""")
slip("laid side by side in the order of the probabilities", ("token", "only from what is left"),
     {RUNNING: "order.gather(1, (ordered.div(ordered.sum(dim=-1, keepdim=True)).cumsum(dim=-1) > u[:, None])"
               ".int().argmax(dim=-1, keepdim=True))[:, 0]"},
     words="""
    The probabilities were laid on the line from the largest down. That samples as well, but here the line has the
    vocabulary's order: the same u stands for another token.""")
slip("one token too early", ("token", "only from what is left"),
     {RUNNING: "(probabilities.cumsum(dim=-1) <= u[:, None]).sum(dim=-1) - 1"}, words="""
    The token in front of the right one came back. Count the tokens whose running sum is at most u: that many lie before
    the one you look for, and tokens are counted from 0.""")
slip("a token of no probability where u is 0", ("only from what is left",),
     {"> u[:, None]": ">= u[:, None]"}, words="""
    Where u is 0 the first token of the vocabulary came back, although it had been taken out: 0 ≥ 0. The running sum
    must be *larger* than u.""")
slip("sampled from the unfiltered", ("only from what is left",),
     {"(probabilities.cumsum": f"(({HOT}).softmax(dim=-1).cumsum"},
     words="""
    The probabilities that came back are filtered, and the token was sampled from all of them. What was taken out must
    not come back this way.""")
slip("drawn without u", ("token", "only from what is left"),
     {RUNNING: "torch.multinomial(probabilities, 1)[:, 0]"}, words="""
    The token does not follow from u: it was drawn with other random numbers, so nobody can say which it should have
    been. Look up where on the line from 0 to 1 the given u falls.""")
slip("one u for all", ("token", "only from what is left"), {"u[:, None]": "u[0]"}, words="""
    The first sentence's u was used for all of them. Each sentence has a lot of its own.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("minus infinity in the logits")
def minus_infinity_in_the_logits(logits, temperature, top_k, top_p, u):
    """Filters logits, as libraries do, and takes the softmax anew each time."""
    logits = logits / temperature
    unlikely = logits < logits.sort(dim=-1, descending=True).values[:, top_k - 1, None]
    logits = logits.masked_fill(unlikely, -torch.inf)
    ordered, order = logits.sort(dim=-1, descending=True)
    reached = ordered.softmax(dim=-1).cumsum(dim=-1) >= top_p
    reached = reached.roll(1, dims=-1)                                            # the one that crosses stays
    reached[:, 0] = False
    logits = logits.masked_fill(reached.gather(-1, order.argsort(dim=-1)), -torch.inf)
    probabilities = logits.softmax(dim=-1)
    return probabilities, torch.searchsorted(probabilities.cumsum(dim=-1), u[:, None], right=True)[:, 0]


@alternative("a loop over sentences")
def a_loop_over_sentences(logits, temperature, top_k, top_p, u):
    """Token after token goes into the nucleus."""
    rows, tokens = [], []
    for row, lot in zip(logits, u.tolist(), strict=True):
        p = torch.exp(row / temperature - (row / temperature).logsumexp(dim=0))
        likeliest = p.argsort(descending=True)[:top_k]
        total, kept, reached = p[likeliest].sum(), torch.zeros_like(p), 0.0
        for i in likeliest:
            if reached >= top_p:
                break
            kept[i] = p[i] / total
            reached += float(kept[i])
        kept = kept / kept.sum()
        token, running = -1, 0.0
        while running <= lot:
            token += 1
            running += float(kept[token])
        rows.append(kept)
        tokens.append(token)
    return torch.stack(rows), torch.tensor(tokens)


@alternative("pairs of tokens compared")
def pairs_of_tokens_compared(logits, temperature, top_k, top_p, u):
    """Nothing is sorted: what is likelier than a token is asked of all the others."""
    p = torch.softmax(logits.double() / temperature, dim=1)
    likelier = p[:, None, :] > p[:, :, None]                                      # (batch, token, other)
    p = p * (likelier.sum(dim=2) < top_k)
    p = p / p.sum(dim=1, keepdim=True)
    before = (likelier * p[:, None, :]).sum(dim=2)
    p = p * (before < top_p)
    p = (p / p.sum(dim=1, keepdim=True)).float()
    return p, (p.cumsum(dim=1) <= u[:, None]).sum(dim=1)
