"""A seventh draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn at random and written from the released notebooks; `norm`, `rotate`, `Attention` and `FeedForward` are theirs.
`ReviewedLM` was in the third draw too, with other mistakes.
"""

import math
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

from attncourse_lessons.l14_errata_lab.exercises.reviewed_lm import Attention, FeedForward

# ruff: noqa: B905, RUF059  (as learners write)

# ------------------------------------------------------------------------------------------------------- pre_norm_stack


def pre_norm_stack__level_0_without_the_norm(x, blocks, final_norm):
    levels = [x]  # here
    for block in blocks:
        x = block(x)
        levels.append(final_norm(x))
    return torch.stack(levels)


def pre_norm_stack__normalised_on_the_way(x, blocks, final_norm):
    x = final_norm(x)  # here
    levels = [x]
    for block in blocks:
        x = final_norm(block(x))  # here
        levels.append(x)
    return torch.stack(levels, dim=0)


def pre_norm_stack__the_residual_again(x, blocks, final_norm):
    out = [final_norm(x)]
    h = x
    for block in blocks:
        h = h + block(h)  # here
        out.append(final_norm(h))
    return torch.stack(out)


def pre_norm_stack__only_read(x, blocks, final_norm):
    stream = [x]
    for block in blocks:
        stream.append(block(stream[-1]))
    return torch.stack([final_norm(h.detach()) for h in stream])  # here


@two
def pre_norm_stack__the_last_first_and_norm_at_the_end_only(x, blocks, final_norm):
    levels = [x]
    for block in blocks:
        x = block(x)
        levels.insert(0, x)  # here
    levels[0] = final_norm(levels[0])  # here
    return torch.stack(levels)


@right
def pre_norm_stack__accumulated(x, blocks, final_norm):
    stream = accumulate(blocks, lambda h, block: block(h), initial=x)
    return torch.cat([final_norm(h).unsqueeze(0) for h in stream])


# ---------------------------------------------------------------------------------------------- grouped_query_attention


def grouped_query_attention__tiled(query, key, value):
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat(1, group, 1, 1) for t in (key, value))  # here
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return scores.softmax(-1) @ value


def grouped_query_attention__queries_averaged(query, key, value):
    n_kv = key.shape[1]
    group = query.shape[1] // n_kv
    q = query.unflatten(1, (n_kv, group)).mean(dim=2)  # here
    weights = torch.softmax(q @ key.mT / math.sqrt(key.shape[-1]), dim=-1)
    return (weights @ value).repeat_interleave(group, dim=1)


def grouped_query_attention__causal(query, key, value):
    g = query.size(1) // key.size(1)
    k = key.repeat_interleave(g, dim=1)
    v = value.repeat_interleave(g, dim=1)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, k) / query.size(-1) ** 0.5
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.size(2) - query.size(2))
    scores = scores.masked_fill(~allowed, float("-inf"))  # here
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(dim=-1), v)


def grouped_query_attention__dim_3_of_five(query, key, value):
    b, h, n, d = query.shape
    n_kv = key.shape[1]
    q = query.view(b, n_kv, h // n_kv, n, d)
    scores = q @ key[:, :, None].transpose(-1, -2) / d**0.5
    weights = scores.softmax(dim=3)  # here
    return (weights @ value[:, :, None]).view(b, h, n, d)


@two
def grouped_query_attention__groups_the_other_way_and_not_scaled(query, key, value):
    b, h, n, d = query.shape
    kv = key.shape[1]
    q = query.reshape(b, h // kv, kv, n, d)  # here
    weights = (q @ key[:, None].mT).softmax(-1)  # here
    return (weights @ value[:, None]).reshape(b, h, n, d)


@right
def grouped_query_attention__head_by_head(query, key, value):
    n_heads, n_kv = query.shape[1], key.shape[1]
    heads = []
    for h in range(n_heads):
        shared = h * n_kv // n_heads
        scores = torch.bmm(query[:, h] * query.shape[-1] ** -0.5, key[:, shared].transpose(1, 2))
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        heads.append(torch.bmm(e, value[:, shared]) / e.sum(-1, keepdim=True))
    return torch.stack(heads, dim=1)


# ----------------------------------------------------------------------------------------------------------- ReviewedLM


class ReviewedLM__tied(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)
        self.logits.weight = self.embedding.weight  # here

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = x + attention(norm_1(x))
            x = x + ff(norm_2(x))
        return self.logits(self.norm(x))


class ReviewedLM__both_sublayers_of_the_same_x(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.attention = nn.ModuleList(Attention(d_model, n_heads, max_length) for _ in range(n_layers))
        self.norm_2 = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.ff = nn.ModuleList(FeedForward(d_model) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions(torch.arange(n))
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            h = attention(norm_1(x))
            x = x + h + ff(norm_2(x))  # here
        return self.logits(self.norm(x))


class ReviewedLM__last_norm_after_every_layer(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.n_layers = n_layers
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight[:n]
        for i in range(self.n_layers):
            h = x + self.attention[i](self.norm_1[i](x))
            x = self.norm(h + self.ff[i](self.norm_2[i](h)))  # here
        return self.logits(x)  # here


class ReviewedLM__positions_detached(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight.detach()[:n]  # here
        layers = zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True)
        for norm_1, attention, norm_2, ff in layers:
            h = x + attention(norm_1(x))
            x = h + ff(norm_2(h))
        return self.logits(self.norm(x))


@two
class ReviewedLM__one_norm_2_and_rows_from_the_end(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model)] * n_layers)  # here
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight[-n:]  # here
        layers = zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True)
        for norm_1, attention, norm_2, ff in layers:
            h = x + attention(norm_1(x))
            x = h + ff(norm_2(h))
        return self.logits(self.norm(x))


@right
class ReviewedLM__with_setattr(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        makers = {
            "norm_1": lambda: nn.LayerNorm(d_model),
            "attention": lambda: Attention(d_model, n_heads, max_length),
            "norm_2": lambda: nn.LayerNorm(d_model),
            "ff": lambda: FeedForward(d_model),
        }
        for name, make in makers.items():
            setattr(self, name, nn.ModuleList())
            for _ in range(n_layers):
                getattr(self, name).append(make())
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)
        self.positions = nn.Embedding(max_length, d_model)
        self.embedding = nn.Embedding(vocab_size, d_model)

    def forward(self, tokens):
        places = torch.ones_like(tokens).cumsum(1) - 1
        x = F.embedding(places, self.positions.weight)
        x = x + F.embedding(tokens, self.embedding.weight)
        for layer in range(len(self.ff)):
            for norm, sublayer in ((self.norm_1, self.attention), (self.norm_2, self.ff)):
                x = sublayer[layer](norm[layer](x)) + x
        return F.linear(self.norm(x), self.logits.weight, self.logits.bias)


# ---------------------------------------------------------------------------------------------------------- causal_mask


def causal_mask__the_first_rows(n_query, n_key):
    full = torch.ones(n_key, n_key, dtype=torch.bool).tril()
    return full[:n_query]  # here


def causal_mask__not_itself(n_query, n_key):
    i = torch.arange(n_key - n_query, n_key)
    j = torch.arange(n_key)
    return j[None, :] < i[:, None]  # here


def causal_mask__ones_and_zeros(n_query, n_key):
    return torch.tril(torch.ones(n_query, n_key), diagonal=n_key - n_query)  # here


def causal_mask__a_window(n_query, n_key):
    past = n_key - n_query
    allowed = torch.ones(n_query, n_key, dtype=torch.bool)
    return allowed.tril(past) & allowed.triu()  # here


@two
def causal_mask__true_where_forbidden_and_from_0(n_query, n_key):
    i = torch.arange(n_query)[:, None]  # here
    j = torch.arange(n_key)
    return j > i  # here


@right
def causal_mask__from_the_identity(n_query, n_key):
    return torch.eye(n_key)[-n_query:].flip(1).cumsum(1).flip(1) > 0.5


# --------------------------------------------------------------------------------------------------------- cached_block


def norm(x):
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def rotate(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def cached_block__positions_of_the_chunk(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    b, m, d = x.shape
    n_heads, n, d_head = keys.shape[1:]
    h = norm(x)
    q, k, v = ((h @ W).view(b, m, n_heads, d_head).transpose(1, 2) for W in (W_Q, W_K, W_V))
    positions = torch.arange(m)  # here
    keys = torch.cat([keys, rotate(k, positions)], dim=2)
    values = torch.cat([values, v], dim=2)
    scores = rotate(q, positions) @ keys.mT / math.sqrt(d_head)
    mask = torch.ones(m, n + m, dtype=torch.bool).tril(n)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    x = x + (weights @ values).transpose(1, 2).reshape(b, m, d) @ W_O
    return x + torch.relu(norm(x) @ W_up) @ W_down, keys, values


def cached_block__the_cache_rotated_again(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    batch, m, d_model = x.shape
    _, n_heads, n, d_head = keys.shape

    def split(t):
        return t.unflatten(-1, (n_heads, d_head)).transpose(1, 2)

    normed = norm(x)
    query, key, value = split(normed @ W_Q), split(normed @ W_K), split(normed @ W_V)
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    positions = torch.arange(n + m)
    query = rotate(query, positions[n:])
    keys = rotate(keys, positions)  # here
    scores = query @ keys.transpose(-1, -2) / d_head**0.5
    future = positions[None, :] > positions[n:, None]
    weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    h = x + (weights @ values).transpose(1, 2).flatten(2) @ W_O
    out = h + F.relu(norm(h) @ W_up) @ W_down
    return out, keys, values


def cached_block__mask_from_0(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    b, m, d = x.shape
    n_heads, n, d_head = keys.shape[1:]
    h = norm(x)
    q, k, v = ((h @ W).view(b, m, n_heads, d_head).transpose(1, 2) for W in (W_Q, W_K, W_V))
    pos = torch.arange(n, n + m)
    q, k = rotate(q, pos), rotate(k, pos)
    keys, values = torch.cat((keys, k), 2), torch.cat((values, v), 2)
    mask = torch.ones(m, n + m, dtype=torch.bool).tril()  # here
    scores = (q @ keys.mT / math.sqrt(d_head)).masked_fill(~mask, -torch.inf)
    mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(b, m, d)
    x = x + mixed @ W_O
    return x + (norm(x) @ W_up).relu() @ W_down, keys, values


def cached_block__heads_by_view(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    b, m, d = x.shape
    n_heads, n, d_head = keys.shape[1:]
    h = norm(x)
    q, k, v = ((h @ W).view(b, n_heads, m, d_head) for W in (W_Q, W_K, W_V))  # here
    pos = torch.arange(n, n + m)
    keys = torch.cat([keys, rotate(k, pos)], dim=2)
    values = torch.cat([values, v], dim=2)
    scores = rotate(q, pos) @ keys.mT / math.sqrt(d_head)
    mask = torch.ones(m, n + m, dtype=torch.bool).tril(n)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    x = x + (weights @ values).transpose(1, 2).reshape(b, m, d) @ W_O
    return x + torch.relu(norm(x) @ W_up) @ W_down, keys, values


@two
def cached_block__values_rotated_and_no_mask(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    b, m, d = x.shape
    n_heads, n, d_head = keys.shape[1:]
    h = norm(x)
    pos = torch.arange(n, n + m)
    q, k, v = (  # here
        rotate((h @ W).view(b, m, n_heads, d_head).transpose(1, 2), pos) for W in (W_Q, W_K, W_V)
    )
    keys = torch.cat([keys, k], dim=2)
    values = torch.cat([values, v], dim=2)
    weights = (q @ keys.mT / math.sqrt(d_head)).softmax(-1)  # here
    x = x + (weights @ values).transpose(1, 2).reshape(b, m, d) @ W_O
    return x + torch.relu(norm(x) @ W_up) @ W_down, keys, values


@right
def cached_block__token_by_token(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    n_heads, d_head = keys.shape[1], keys.shape[3]
    outputs = []
    for token in x.split(1, dim=1):
        t = norm(token)
        q, k, v = (torch.stack((t @ W).chunk(n_heads, dim=-1), dim=1) for W in (W_Q, W_K, W_V))
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        everywhere = torch.arange(keys.shape[2])
        scores = (rotate(q, everywhere[-1:]) * rotate(keys, everywhere)).sum(-1) * d_head**-0.5
        mixed = (scores.softmax(-1)[..., None] * values).sum(2)
        h = token + (mixed.flatten(1) @ W_O)[:, None]
        outputs.append(h + (norm(h) @ W_up).clamp(min=0) @ W_down)
    return torch.cat(outputs, dim=1), keys, values


# ------------------------------------------------------------------------------------------------------------- rnn_step


def rnn_step__padding_to_zero(x, state, there, W_x, W_h, b):
    x = torch.where(there[:, None], x, 0.0)
    new = torch.tanh(x @ W_x + state @ W_h + b)  # here
    return new  # here


def rnn_step__a_text_that_is_over_is_zero(x, state, there, W_x, W_h, b):
    new_state = torch.tanh(x @ W_x + state @ W_h + b)
    return new_state.masked_fill(~there.unsqueeze(1), 0.0)  # here


def rnn_step__in_place(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h + b)
    state[there] = new[there]  # here
    return state  # here


def rnn_step__state_squashed_first(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + torch.tanh(state) @ W_h + b)  # here
    return torch.where(there[:, None], new, state)


@two
def rnn_step__bias_outside_and_the_step_for_the_others(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h) + b  # here
    return torch.where(there[:, None], state, new)  # here


@right
def rnn_step__one_matrix(x, state, there, W_x, W_h, b):
    both = torch.cat([x, state, torch.ones(len(x), 1)], dim=1)
    z = both @ torch.cat([W_x, W_h, b[None]])
    rows = [row if is_there else old for row, is_there, old in zip(2 * torch.sigmoid(2 * z) - 1, there, state)]
    return torch.stack(rows)


# ----------------------------------------------------------------------------------------------------- paired_bootstrap


def paired_bootstrap__sentence_scores_averaged(ours, theirs, draws):
    def score(counts):
        return 100 * (counts[..., 0] / counts[..., 1]).mean(-1)  # here

    differences = score(ours[draws]) - score(theirs[draws])
    low, high = torch.quantile(differences, torch.tensor([0.025, 0.975]))
    return score(ours) - score(theirs), low, high, (differences > 0).float().mean()


def paired_bootstrap__not_paired(ours, theirs, draws):
    def score(rows):
        matches, total = rows.sum(dim=-2).unbind(-1)
        return 100 * matches / total

    a = score(ours[draws])
    b = score(theirs[draws.roll(1, 0)])  # here
    diff = a - b
    low, high = diff.quantile(0.025), diff.quantile(0.975)
    return score(ours) - score(theirs), low, high, (diff > 0).float().mean()


def paired_bootstrap__as_if_normal(ours, theirs, draws):
    def score(rows):
        sums = rows.sum(dim=-2)
        return 100 * sums[..., 0] / sums[..., 1]

    diff = score(ours[draws]) - score(theirs[draws])
    centre, spread = diff.mean(), diff.std()
    low, high = centre - 1.96 * spread, centre + 1.96 * spread  # here
    return score(ours) - score(theirs), low, high, (diff > 0).float().mean()


def paired_bootstrap__share_of_sentences(ours, theirs, draws):
    def score(rows):
        sums = rows.sum(dim=-2)
        return 100 * sums[..., 0] / sums[..., 1]

    observed = score(ours) - score(theirs)
    resampled = score(ours[draws]) - score(theirs[draws])
    low, high = resampled.quantile(torch.tensor([0.025, 0.975]))
    better = ours[:, 0] / ours[:, 1] > theirs[:, 0] / theirs[:, 1]  # here
    return observed, low, high, better.float().mean()  # here


@two
def paired_bootstrap__mean_of_the_draws_and_ties(ours, theirs, draws):
    a, b = ours[draws].sum(1), theirs[draws].sum(1)
    diff = 100 * (a[:, 0] / a[:, 1] - b[:, 0] / b[:, 1])
    low, high = diff.quantile(0.025), diff.quantile(0.975)
    share = (diff >= 0).float().mean()  # here
    return diff.mean(), low, high, share  # here


@right
def paired_bootstrap__by_counts(ours, theirs, draws):
    held = F.one_hot(draws, len(ours)).sum(1).to(ours.dtype)
    held = torch.cat([torch.ones(1, len(ours), dtype=ours.dtype), held])
    (a, m), (c, n) = (held @ ours).T, (held @ theirs).T
    diff = 100 * a / m - 100 * c / n
    first, rest = diff[0], diff[1:].sort().values

    def at(q):
        place = q * (len(rest) - 1)
        below = int(place)
        above = min(below + 1, len(rest) - 1)
        return rest[below] + (place - below) * (rest[above] - rest[below])

    return first, at(0.025), at(0.975), (a * n > c * m)[1:].double().mean().to(ours.dtype)


# ------------------------------------------------------------------------------------------------------ structural_test


def structural_test__the_loss_must_fall(block, x, losses):
    def same(a, b):
        return bool((a - b).abs().max() <= 1e-3 * b.abs().max())

    attended, fed = block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    if losses[-1] >= losses[0]:  # here
        return False  # here
    if not same(block(x, 0.0, 0.0), x):
        return False
    for a, f, out in ((1.0, 0.0, attended), (0.0, 1.0, fed)):
        if same(out, x) or not same(block(10 * x, a, f), 10 * x + out - x):
            return False
    if not same(block(x, 1.0, 1.0), block(attended, 0.0, 1.0)):
        return False
    if not same(torch.cat([block(t[None], 1.0, 1.0) for t in x]), block(x, 1.0, 1.0)):
        return False
    n = x.shape[1]
    for j in range(n):
        y = x.clone()
        y[:, j] = -y[:, j].flip(-1)
        moved = ((block(y, 1.0, 0.0) - y) - (attended - x)).abs().amax(-1).amax(0)
        if j and not same(block(y, 1.0, 1.0)[:, :j], block(x, 1.0, 1.0)[:, :j]):
            return False
        if (moved[j + 1 :] < 1e-4).any():
            return False
        z = x[:, :1].repeat(1, n, 1)
        z[:, j] = -z[:, j].flip(-1)
        own = block(z, 1.0, 0.0) - z
        if j and same(own[:, j], own[:, 0]):
            return False
        if j == 0 and same(own[:, 0], block(x, 1.0, 0.0)[:, 0] - x[:, 0]):
            return False
    return True


def structural_test__to_the_last_bit(block, x, losses):
    def same(a, b):
        return torch.equal(a, b)  # here

    n = x.shape[1]
    whole, attended, fed = block(x, 1.0, 1.0), block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    ok = same(block(x, 0.0, 0.0), x)
    ok = ok and same(block(10 * x, 1.0, 0.0) - 10 * x, attended - x)
    ok = ok and same(block(10 * x, 0.0, 1.0) - 10 * x, fed - x)
    ok = ok and not same(attended, x) and not same(fed, x)
    ok = ok and same(block(attended, 0.0, 1.0), whole)
    ok = ok and same(torch.cat([block(t[None], 1.0, 1.0) for t in x]), whole)
    for j in range(n):
        y = x.clone()
        y[:, j] = -y[:, j].flip(-1)
        change = (block(y, 1.0, 0.0) - y) - (attended - x)
        ok = ok and same(block(y, 1.0, 1.0)[:, :j], whole[:, :j])
        ok = ok and bool((change[:, j + 1 :].abs().amax(-1) > 1e-4).all())
        z = x[:, :1].repeat(1, n, 1)
        z[:, j] = -z[:, j].flip(-1)
        own = block(z, 1.0, 0.0) - z
        ok = ok and not same(own[:, j], own[:, 0] if j else attended[:, 0] - x[:, 0])
    return ok


def structural_test__only_a_layernorm(block, x, losses):
    def same(a, b):
        return bool((a - b).abs().max() <= 1e-3 * b.abs().max())

    attended, fed = block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    if not same(block(x, 0.0, 0.0), x):
        return False
    for a, f, out in ((1.0, 0.0, attended), (0.0, 1.0, fed)):
        if same(out, x):
            return False
        if not same(block(10 * x + 5, a, f), 10 * x + 5 + out - x):  # here
            return False
    if not same(block(x, 1.0, 1.0), block(attended, 0.0, 1.0)):
        return False
    if not same(torch.cat([block(t[None], 1.0, 1.0) for t in x]), block(x, 1.0, 1.0)):
        return False
    n = x.shape[1]
    for j in range(n):
        y = x.clone()
        y[:, j] = -y[:, j].flip(-1)
        moved = ((block(y, 1.0, 0.0) - y) - (attended - x)).abs().amax(-1).amax(0)
        if j and not same(block(y, 1.0, 1.0)[:, :j], block(x, 1.0, 1.0)[:, :j]):
            return False
        if (moved[j + 1 :] < 1e-4).any():
            return False
        z = x[:, :1].repeat(1, n, 1)
        z[:, j] = -z[:, j].flip(-1)
        own = block(z, 1.0, 0.0) - z
        if same(own[:, j], own[:, 0] if j else attended[:, 0] - x[:, 0]):
            return False
    return True


def structural_test__nothing_about_the_past(block, x, losses):
    def same(a, b):
        return bool((a - b).abs().max() <= 1e-3 * b.abs().max())

    attended, fed = block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    if not same(block(x, 0.0, 0.0), x):
        return False
    if same(attended, x) or same(fed, x):
        return False
    if not same(block(10 * x, 1.0, 0.0), 9 * x + attended):
        return False
    if not same(block(10 * x, 0.0, 1.0), 9 * x + fed):
        return False
    if not same(block(x, 1.0, 1.0), block(attended, 0.0, 1.0)):
        return False
    if not same(torch.cat([block(t[None], 1.0, 1.0) for t in x]), block(x, 1.0, 1.0)):
        return False
    for j in range(1, x.shape[1]):
        y = x.clone()
        y[:, j:] = -y[:, j:].flip(-1)
        if not same(block(y, 1.0, 1.0)[:, :j], block(x, 1.0, 1.0)[:, :j]):  # here
            return False
    return True  # here


@two
def structural_test__the_last_loss_and_no_batch(block, x, losses):
    def same(a, b):
        return bool((a - b).abs().max() <= 1e-3 * b.abs().max())

    attended, fed = block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    checks = [
        losses[-1] < losses[0],  # here
        same(block(x, 0.0, 0.0), x),
        not same(attended, x),
        not same(fed, x),
        same(block(10 * x, 1.0, 0.0), 9 * x + attended),
        same(block(10 * x, 0.0, 1.0), 9 * x + fed),
        same(block(x, 1.0, 1.0), block(attended, 0.0, 1.0)),  # here
    ]
    n = x.shape[1]
    for j in range(n):
        y = x.clone()
        y[:, j] = -y[:, j].flip(-1)
        moved = ((block(y, 1.0, 0.0) - y) - (attended - x)).abs().amax(-1).amax(0)
        checks.append(bool((moved[j + 1 :] > 1e-4).all()))
        if j:
            checks.append(same(block(y, 1.0, 1.0)[:, :j], block(x, 1.0, 1.0)[:, :j]))
        z = x[:, :1].repeat(1, n, 1)
        z[:, j] = -z[:, j].flip(-1)
        own = block(z, 1.0, 0.0) - z
        checks.append(not same(own[:, j], own[:, 0] if j else attended[:, 0] - x[:, 0]))
    return all(checks)


@right
def structural_test__a_list_of_questions(block, x, losses):
    n = x.shape[1]

    def off(got, expected):
        return float((got - expected).abs().max() / expected.abs().max())

    def attention(z):
        return block(z, 1.0, 0.0) - z

    def other(z, j):
        z = z.clone()
        z[:, j] = -z[:, j].flip(-1)
        return z

    def must_agree():
        yield block(x, 0.0, 0.0), x
        for a, f in ((1.0, 0.0), (0.0, 1.0)):
            yield block(10 * x, a, f), 9 * x + block(x, a, f)
        yield block(x, 1.0, 1.0), block(block(x, 1.0, 0.0), 0.0, 1.0)
        for i in range(len(x)):
            yield block(x[i : i + 1], 1.0, 1.0), block(x, 1.0, 1.0)[i : i + 1]
        for j in range(1, n):
            yield block(other(x, j), 1.0, 1.0)[:, :j], block(x, 1.0, 1.0)[:, :j]

    def must_differ():
        yield block(x, 1.0, 0.0), x
        yield block(x, 0.0, 1.0), x
        yield attention(other(x, 0))[:, 0], attention(x)[:, 0]
        for j in range(n):
            was, now = attention(x), attention(other(x, j))
            for i in range(j + 1, n):
                yield now[:, i], was[:, i]
            alike = x[:, :1].expand_as(x)
            got = attention(other(alike, j))
            if j:
                yield got[:, j], got[:, 0]

    agree = all(off(got, expected) < 1e-3 for got, expected in must_agree())
    return agree and all(off(got, expected) > 1e-4 for got, expected in must_differ())


# ------------------------------------------------------------------------------------------------------ local_attention


def local_attention__normalised_again(weights, centers, sigma):
    i = torch.arange(weights.shape[-1])
    window = torch.exp(-((i - centers[..., None]) ** 2) / (2 * sigma**2))
    out = weights * window
    return out / out.sum(-1, keepdim=True)  # here


def local_attention__centres_rounded(weights, centers, sigma):
    positions = torch.arange(weights.size(-1), dtype=weights.dtype)
    distance = positions - centers.round().unsqueeze(-1)  # here
    return weights * torch.exp(-(distance**2) / (2 * sigma**2))


def local_attention__a_density(weights, centers, sigma):
    i = torch.arange(weights.shape[-1], dtype=weights.dtype)
    normal = torch.distributions.Normal(centers.unsqueeze(-1), sigma)
    return weights * normal.log_prob(i).exp()  # here


def local_attention__a_window_of_the_targets(weights, centers, sigma):
    batch, n_target, n_source = weights.shape
    i = torch.arange(n_source)
    t = torch.arange(n_target)[:, None]
    gauss = torch.exp(-((i - t) ** 2) / (2 * sigma**2))  # here
    return weights * gauss


@two
def local_attention__sigma_not_squared_and_normalised(weights, centers, sigma):
    i = torch.arange(weights.shape[-1])
    out = weights * torch.exp(-((i - centers[..., None]) ** 2) / (2 * sigma))  # here
    return out / out.sum(-1, keepdim=True)  # here


@right
def local_attention__row_by_row(weights, centers, sigma):
    rows = []
    for row, centre in zip(weights.flatten(0, 1), centers.flatten()):
        z = (torch.arange(len(row)) - centre).div(sigma)
        rows.append(row / torch.exp(z * z / 2))
    return torch.stack(rows).view_as(weights)


# ------------------------------------------------------------------------------------------------------------- patchify


def patchify__channels_last(images, patch):
    b, c, h, w = images.shape
    x = images.reshape(b, c, h // patch, patch, w // patch, patch)
    x = x.permute(0, 2, 4, 3, 5, 1)  # here
    return x.reshape(b, -1, c * patch * patch)


def patchify__columns_of_patches_first(images, patch):
    b, c, h, w = images.shape
    x = images.unfold(2, patch, patch).unfold(3, patch, patch)
    x = x.permute(0, 3, 2, 1, 4, 5)  # here
    return x.reshape(b, -1, c * patch * patch)


def patchify__every_place(images, patch):
    windows = images.unfold(2, patch, 1).unfold(3, patch, 1)  # here
    windows = windows.permute(0, 2, 3, 1, 4, 5)
    return windows.flatten(3).flatten(1, 2)


def patchify__read_on_as_it_lies(images, patch):
    b, c, h, w = images.shape
    n_patches = (h // patch) * (w // patch)
    return images.reshape(b, c, n_patches, patch * patch).transpose(1, 2).flatten(2)  # here


@two
def patchify__channels_last_and_columns_first(images, patch):
    b, c, h, w = images.shape
    x = images.view(b, c, h // patch, patch, w // patch, patch)
    return x.permute(0, 4, 2, 3, 5, 1).flatten(3).flatten(1, 2)  # here


@right
def patchify__slices(images, patch):
    height, width = images.shape[2:]
    found = []
    for top in range(0, height, patch):
        for left in range(0, width, patch):
            found.append(images[:, :, top : top + patch, left : left + patch].flatten(1))
    return torch.stack(found, dim=1)
