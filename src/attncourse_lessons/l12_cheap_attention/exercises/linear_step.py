"""linear_step: Causal linear attention of the newest token, from a state that does not grow."""

import torch

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE, features


def reference(query, key, value, s, z):
    """Katharopoulos et al. 2020, equations 16 to 20."""
    output, state = efficient.linear_attend_step(query, key, value, efficient.LinearState(s, z))
    return output, state.s, state.z


def solution(query, key, value, s, z):
    query, key = features(query), features(key)                  # (batch, d_k)
    s = s + key.unsqueeze(-1) * value.unsqueeze(-2)              # (batch, d_k, d_v)
    z = z + key                                                  # (batch, d_k)
    summed = (query.unsqueeze(-2) @ s).squeeze(-2)               # (batch, d_v)
    return summed / (query * z).sum(dim=-1, keepdim=True), s, z


exercise = Exercise(
    "linear_step",
    reference=reference,
    solution=solution,
    returns=("output", "s", "z"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=10,
    hints=(
        "The new token's key and value go into the state first, because a token may attend to itself. What does this "
        "step add to S, and what does it add to z?",
        "φ(k)ᵀ v is a matrix (d_k, d_v) for each sentence: a column times a row. `unsqueeze` gives each of the two the "
        "axis that it lacks.",
        "The output reads the new state: φ(q) S, divided by the number φ(q) · z. What comes back is the output and "
        "the two sums, not divided by anything.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _token(draw, batch, d_k, d_v):
    return draw.normal(batch, d_k), draw.normal(batch, d_k), draw.normal(batch, d_v)


def _state(draw, batch, d_k, d_v):
    """Sums that several tokens have left."""
    past = features(draw.normal(batch, 5, d_k)), draw.normal(batch, 5, d_v)
    return past[0].mT @ past[1], past[0].sum(dim=1)


def _read(query, s, z):
    """What a query finds in a state."""
    query, s, z = features(query), s.float(), z.float()
    return (query.unsqueeze(-2) @ s).squeeze(-2) / (query * z).sum(dim=-1, keepdim=True)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("state", points=2, hint=1)
def state(answer, draw):
    """after three steps S and z are the sums over all tokens"""
    sizes = draw.sizes(3, 2, 7)
    s, z = _state(draw, *sizes)
    for _ in range(3):
        _, s, z = answer(*_token(draw, *sizes), s, z)
    return torch.cat([s, z.unsqueeze(-1)], dim=-1)


READ = "the output is not φ(q) S / (φ(q) · z) of the state that comes back: it is off by {size} at {place}"


@aspect("output", points=2, hint=3, explain=explain_worst(READ))
def output(answer, draw):
    """the query reads the state that comes back: φ(q) S, divided by φ(q) · z"""
    sizes = draw.sizes(3, 2, 7)
    token = _token(draw, *sizes)
    output, s, z = answer(*token, *_state(draw, *sizes))
    return apart(require_variation(output), _read(token[0], s, z))


@aspect("the first token", points=1, hint=1)
def the_first_token(answer, draw):
    """from a state of zeros, a token finds its own value, in a batch of one"""
    d_k, d_v = draw.sizes(2, 2, 7)
    return answer(*_token(draw, 1, d_k, d_v), torch.zeros(1, d_k, d_v), torch.zeros(1, d_k))[0]


@aspect("gradient", points=1, hint=3, explain=explain_way_back("query", "key", "value", "s", "z"))
def gradient(answer, draw):
    """gradients reach the new token and, through the state, the earlier ones"""
    sizes = draw.sizes(3, 2, 7)
    inputs = [x.requires_grad_() for x in (*_token(draw, *sizes), *_state(draw, *sizes))]
    query, key, value, s, z = inputs
    outputs = answer(query, key, value, s, z), reference(query, key, value, s, z)
    got, right = (torch.cat([x.flatten(1) for x in each], dim=1) for each in outputs)
    return way_back(got, right, inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

S, Z = "s + key.unsqueeze(-1) * value.unsqueeze(-2)", "z + key"
DIVIDED = " / (query * z).sum(dim=-1, keepdim=True)"
Q, K = "features(query)", "features(key)"

slip("the token does not see itself", ("output", "the first token"),
     {f"s = {S}": f"after_s = {S}", f"z = {Z}": f"after_z = {Z}", ", s, z": ", after_s, after_z"},
     {f"s = {S}": f"after_s = {S}", f"z = {Z}": f"after_z = {Z}", ", s, z": ", after_s, after_z",
      DIVIDED: f" / ({DIVIDED.removeprefix(' / ')} + 1e-9)"}, words="""
    The output was read from the state as it came in, and only then the token was added. In causal attention a token
    sees all before it *and itself*; the first would see nobody, 0/0.""")
slip("the old S is read", ("output", "the first token"),
     {f"s = {S}": f"before, s = s, {S}", "@ s).squeeze": "@ before).squeeze"}, words="""
    The sums came back with the new token in them, but the output was made of the old S, divided by the new z. A token
    sees itself: its value belongs to the numerator as its key belongs to the divisor.""")
slip("another φ", ("state", "output"),
     {Q: "(query.relu() + 1)", K: "(key.relu() + 1)"},
     {Q: "query.exp()", K: "key.exp()"},
     {Q: "torch.nn.functional.softplus(query)", K: "torch.nn.functional.softplus(key)"}, words="""
    φ is another function here. elu(x) + 1 is x + 1 above 0 and exp(x) below: `features` does it.""")
slip("one divisor for the whole batch", ("output",),
     {DIVIDED: " / (query * z).sum()"}, words="""
    All sentences were divided by one number, the sum over the whole batch. Each query has a sum of weights of its own:
    sum over the features alone, and keep the axis.""")
slip("the old state handed on", ("state", "output"),
     {f"s = {S}": f"old_s, s = s, {S}", f"z = {Z}": f"old_z, z = z, {Z}", ", s, z": ", old_s, old_z"}, words="""
    The output is made of the new sums, and the old ones came back: the next step will not know that this token was
    there.""")
slip("the past forgotten", ("state", "gradient"), {S: S.removeprefix("s + "), Z: Z.removeprefix("z + ")}, words="""
    S and z are those of this token alone. They are sums over all tokens: what was there, and one term more.""")
slip("z left as it was", ("state", "the first token"), {f"z = {Z}": "pass"}, words="""
    S got the new token and z did not. The divisor is the sum of the same weights over the same tokens: both grow.""")
slip("not divided", ("output", "the first token"), {DIVIDED: ""}, words="""
    The output was not divided by φ(q) · z, the sum of the weights. It then grows with every token.""")
slip("the query left out of the divisor", ("output", "the first token"), {DIVIDED: " / z.sum(dim=-1, keepdim=True)"},
     words="""
    What was read was divided by the sum of z. The weights are φ(q) · φ(k), so their sum is φ(q) · z: the query belongs
    below the line as well.""")
slip("a divided state", ("state", "output"),
     {", s, z": ", s / z.unsqueeze(-1), z"}, words="""
    The S that came back had been divided. The next step adds to it, and must find the plain sum: divide what is read,
    not what is kept.""")
slip("no φ of the key", ("state",), {K: "key"}, words="""
    The key went into the state as it is. Both sums are of φ(k): then every weight is positive, and their sum can be
    divided by.""")
slip("no φ of the query", ("output",), {Q: "query"}, words="""
    The state was read by the query as it is. The weights are φ(q) · φ(k): take φ of the query, too, above and below the
    line.""")
slip("queries in the state", ("state", "gradient"),
     {S: "s + query.unsqueeze(-1) * value.unsqueeze(-2)", Z: "z + query"}, words="""
    It is the query that was added to the sums. A query asks once and is forgotten; what is kept of a token is its key
    and its value.""")
slip("queries in z", ("state", "the first token"), {Z: "z + query"}, words="""
    S got φ(k) v, and z got φ(q). The divisor is the sum of the weights φ(q) · φ(k): z is a sum of the same φ(k) that
    went into S.""")
slip("keys for values", ("state", "the first token", "gradient"),
     {S: "s + key.unsqueeze(-1) * torch.ones_like(value).unsqueeze(-2)"}, words="""
    The value did not go into S: what is kept is no longer what the tokens have to say.""")
slip("value times key", ("state", "output", "the first token", "gradient"),
     {S: "s + value.unsqueeze(-1) * key.unsqueeze(-2)"}, words="""
    What was added to S is vᵀ φ(k), (d_v, d_k), and S is (d_k, d_v). Rows of S belong to features of the key, columns to
    numbers of the value.""")
slip("divided by √d_k as well", ("output", "the first token"),
     {"return summed": "return summed / query.shape[-1] ** 0.5"}, words="""
    The output was divided by √d_k, too. There is no softmax here that would need it, and a single token finds its own
    value, undivided.""")
slip("squeezed axes", ("the first token",),
     {"return summed": "return (summed", DIVIDED: f"{DIVIDED}).squeeze()"}, words="""
    `squeeze()` removes every axis of length one, the batch's too when there is one sentence in it. Name the axis that
    you mean.""")
slip("cut off from the past", ("gradient",),
     {"s = s + ": "s = s.detach() + ", "z = z + ": "z = z.detach() + "},
     {DIVIDED: " / (query * z).sum(dim=-1, keepdim=True).detach()"},
     words="""
    The numbers are right, and a part of the gradient is cut off. A recurrent network learns through its state: what an
    earlier token left there must be able to learn from what is read later.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def with_einsum(query, key, value, s, z):
    """Letters in place of axes of length one."""
    query, key = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    s, z = s + torch.einsum("bk,bv->bkv", key, value), z.add(key)
    return torch.einsum("bk,bkv->bv", query, s) / torch.einsum("bk,bk->b", query, z)[:, None], s, z


@alternative("outer products and a baddbmm")
def outer_products_and_a_baddbmm(query, key, value, s, z):
    """As batched matrix products."""
    query, key = torch.where(query > 0, query + 1, query.exp()), torch.where(key > 0, key + 1, key.exp())
    s = torch.baddbmm(s, key[:, :, None], value[:, None, :])
    z = key + z
    return torch.bmm(query[:, None], s)[:, 0] / torch.bmm(query[:, None], z[:, :, None])[:, 0], s, z


@alternative("one sentence at a time")
def one_sentence_at_a_time(query, key, value, s, z):
    """Divided before it is multiplied, in double precision."""
    rows = []
    for q, k, v, s_, z_ in zip(*(x.double() for x in (query, key, value, s, z)), strict=True):
        q, k = q.clamp(min=0) + q.clamp(max=0).exp(), k.clamp(min=0) + k.clamp(max=0).exp()
        s_, z_ = s_ + torch.outer(k, v), z_ + k
        rows.append((q / q.dot(z_) @ s_, s_, z_))
    return tuple(torch.stack(each) for each in zip(*rows, strict=True))
