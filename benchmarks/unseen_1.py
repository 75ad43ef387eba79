"""Wrong answers to exercises drawn at random: five with one mistake each, and one with two, for each exercise.

Drawn by `random.Random(23).sample(names, 10)` from the names in alphabetical order (one of the ten is no longer set, so
nine are left).
"""

import math

import torch
import torch.nn.functional as F
from unseen import two

# ruff: noqa: B905, RUF059  (as learners write)

# -------------------------------------------------------------------------------------------------------- leave_one_out


def leave_one_out__product_with_the_temperature(keys, values, temperature):
    n = keys.shape[0]
    scores = keys @ keys.T * temperature  # here
    scores[torch.arange(n), torch.arange(n)] = float("-inf")
    return torch.softmax(scores, dim=1) @ values


def leave_one_out__not_shared_out_again(keys, values, temperature):
    scores = keys @ keys.mT / temperature
    weights = scores.softmax(dim=1)
    weights = weights * (1 - torch.eye(len(keys)))  # here
    return weights @ values


def leave_one_out__the_queries_compete(keys, values, temperature):
    scores = (keys @ keys.T) / temperature
    scores = scores.masked_fill(torch.eye(len(keys), dtype=torch.bool), -torch.inf)
    return scores.softmax(dim=0) @ values  # here


def leave_one_out__small_temperature_underflows(keys, values, temperature):
    e = torch.exp(keys @ keys.T / temperature)  # here
    e = e - torch.diag(torch.diagonal(e))
    return e @ values / e.sum(dim=1, keepdim=True)


def leave_one_out__a_zero_for_oneself(keys, values, temperature):
    scores = keys @ keys.T / temperature
    scores = scores.masked_fill(torch.eye(len(keys)).bool(), 0.0)  # here
    return torch.softmax(scores, dim=-1) @ values


@two
def leave_one_out__product_and_not_shared_out_again(keys, values, temperature):
    scores = keys @ keys.T * temperature
    weights = scores.softmax(dim=-1)
    weights = weights.masked_fill(torch.eye(len(keys)).bool(), 0)
    return weights @ values


# ---------------------------------------------------------------------------------------------------- attention_rollout


def attention_rollout__no_residual(weights):
    a = weights.mean(dim=2)  # here
    result = a[:, 0]
    for layer in range(1, a.shape[1]):
        result = a[:, layer] @ result
    return result


def attention_rollout__in_the_other_order(weights):
    batch, layers, heads, n, _ = weights.shape
    eye = torch.eye(n)
    rollout = eye.expand(batch, n, n)
    for layer in range(layers):
        a = (weights[:, layer].mean(dim=1) + eye) / 2
        rollout = rollout @ a  # here
    return rollout


def attention_rollout__one_layer_short(weights):
    n = weights.shape[-1]
    a = 0.5 * (weights.mean(dim=2) + torch.eye(n))
    r = a[:, 0]
    for i in range(1, a.shape[1] - 1):  # here
        r = torch.bmm(a[:, i], r)
    return r


def attention_rollout__largest_head(weights):
    n = weights.shape[-1]
    a = 0.5 * weights.max(dim=2).values + 0.5 * torch.eye(n)  # here
    a = a / a.sum(dim=-1, keepdim=True)
    r = a[:, 0]
    for i in range(1, a.shape[1]):
        r = a[:, i] @ r
    return r


def attention_rollout__not_halved(weights):
    n = weights.shape[-1]
    a = weights.mean(dim=2) + torch.eye(n)  # here
    r = torch.eye(n).expand_as(a[:, 0])
    for layer in a.unbind(dim=1):
        r = layer @ r
    return r


@two
def attention_rollout__other_order_and_no_residual(weights):
    a = weights.mean(dim=2)
    r = a[:, 0]
    for i in range(1, a.shape[1]):
        r = r @ a[:, i]
    return r


# --------------------------------------------------------------------------------------------------- MultiHeadAttention


def MultiHeadAttention__scaled_by_the_model(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    b, n, d = x.shape
    q = self.query(x).view(b, n, self.n_heads, -1).transpose(1, 2)
    k = self.key(memory).view(b, memory.shape[1], self.n_heads, -1).transpose(1, 2)
    v = self.value(memory).view(b, memory.shape[1], self.n_heads, -1).transpose(1, 2)
    scores = q @ k.mT / math.sqrt(d)  # here
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    heads = scores.softmax(-1) @ v
    return self.output(heads.transpose(1, 2).reshape(b, n, d))


def MultiHeadAttention__values_of_x(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    b, n, d = x.shape
    h = self.n_heads

    def split(t):
        return t.reshape(b, -1, h, d // h).permute(0, 2, 1, 3)

    q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(x))  # here
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / (d // h) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -torch.inf)
    out = scores.softmax(dim=-1) @ v
    return self.output(out.permute(0, 2, 1, 3).flatten(2))


def MultiHeadAttention__mask_upside_down(self, x, memory=None, mask=None):
    source = memory if memory is not None else x
    b, n, d = x.shape
    m = source.shape[1]
    d_head = d // self.n_heads
    q = self.query(x).reshape(b, n, self.n_heads, d_head).transpose(1, 2)
    k = self.key(source).reshape(b, m, self.n_heads, d_head).transpose(1, 2)
    v = self.value(source).reshape(b, m, self.n_heads, d_head).transpose(1, 2)
    s = q @ k.transpose(-2, -1) / math.sqrt(d_head)
    if mask is not None:
        s = s.masked_fill(mask.unsqueeze(1), -1e9)  # here
    o = torch.softmax(s, -1) @ v
    return self.output(o.transpose(1, 2).reshape(b, n, d))


def MultiHeadAttention__heads_not_put_back(self, x, memory=None, mask=None):
    source = memory if memory is not None else x
    b, n, d = x.shape
    d_head = d // self.n_heads
    q, k, v = (
        layer(t).unflatten(-1, (self.n_heads, d_head)).transpose(1, 2)
        for layer, t in ((self.query, x), (self.key, source), (self.value, source))
    )
    s = q @ k.mT / math.sqrt(d_head)
    if mask is not None:
        s = s.masked_fill(~mask[:, None], -torch.inf)
    o = s.softmax(-1) @ v
    return self.output(o.reshape(b, n, d))  # here


def MultiHeadAttention__no_projection_at_the_end(self, x, memory=None, mask=None):
    source = memory if memory is not None else x
    b, n, d = x.shape
    d_head = d // self.n_heads
    q, k, v = (
        layer(t).unflatten(-1, (self.n_heads, d_head)).transpose(1, 2)
        for layer, t in ((self.query, x), (self.key, source), (self.value, source))
    )
    s = q @ k.mT / math.sqrt(d_head)
    if mask is not None:
        s = s.masked_fill(~mask[:, None], -torch.inf)
    o = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)
    return o  # here


@two
def MultiHeadAttention__mask_of_a_memory_alone_and_not_scaled(self, x, memory=None, mask=None):
    b, n, d = x.shape
    source = x if memory is None else memory
    d_head = d // self.n_heads
    q, k, v = (
        layer(t).unflatten(-1, (self.n_heads, d_head)).transpose(1, 2)
        for layer, t in ((self.query, x), (self.key, source), (self.value, source))
    )
    s = q @ k.mT
    if memory is not None and mask is not None:
        s = s.masked_fill(~mask[:, None], -torch.inf)
    return self.output((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


# ---------------------------------------------------------------------------------------------------------- linear_step


def linear_step__the_old_sums_answer(query, key, value, s, z):
    phi_q, phi_k = F.elu(query) + 1, F.elu(key) + 1
    new_s = s + phi_k[:, :, None] * value[:, None, :]
    new_z = z + phi_k
    numerator = torch.einsum("bk,bkv->bv", phi_q, s)  # here
    denominator = (phi_q * new_z).sum(dim=-1, keepdim=True)
    return numerator / denominator, new_s, new_z


def linear_step__not_divided(query, key, value, s, z):
    phi_q, phi_k = F.elu(query) + 1, F.elu(key) + 1
    s = s + torch.einsum("bk,bv->bkv", phi_k, value)
    z = z + phi_k
    output = (phi_q.unsqueeze(1) @ s).squeeze(1)  # here
    return output, s, z


def linear_step__key_without_features(query, key, value, s, z):
    q = F.elu(query) + 1
    k = key  # here
    s = s + k.unsqueeze(-1) * value.unsqueeze(-2)
    z = z + k
    output = torch.einsum("bk,bkv->bv", q, s) / torch.einsum("bk,bk->b", q, z)[:, None]
    return output, s, z


def linear_step__written_into_the_sums(query, key, value, s, z):
    q = F.elu(query) + 1
    k = F.elu(key) + 1
    s += k[:, :, None] * value[:, None, :]  # here
    z += k  # here
    return (q[:, None] @ s)[:, 0] / (q * z).sum(-1, keepdim=True), s, z


def linear_step__divided_by_the_whole_batch(query, key, value, s, z):
    q = F.elu(query) + 1
    k = F.elu(key) + 1
    s = s + k[:, :, None] * value[:, None, :]
    z = z + k
    return (q[:, None] @ s)[:, 0] / (q * z).sum(), s, z  # here


@two
def linear_step__relu_and_the_old_z(query, key, value, s, z):
    q = F.relu(query) + 1
    k = F.relu(key) + 1
    s = s + k[:, :, None] * value[:, None, :]
    output = (q[:, None] @ s)[:, 0] / (q * z).sum(-1, keepdim=True)
    return output, s, z + k


# ----------------------------------------------------------------------------------------------------------- perplexity


def perplexity__mean_of_the_texts(log_probabilities, mask):
    per_text = -(log_probabilities * mask).sum(dim=1) / mask.sum(dim=1)
    return per_text.mean().exp()  # here


def perplexity__padding_counts_as_tokens(log_probabilities, mask):
    total = (log_probabilities * mask).sum()
    return torch.exp(-total / log_probabilities.numel())  # here


def perplexity__mean_of_the_choices(log_probabilities, mask):
    choices = torch.exp(-log_probabilities[mask])  # here
    return choices.mean()  # here


def perplexity__two_to_the_power(log_probabilities, mask):
    nll = -log_probabilities[mask].mean()
    return 2**nll  # here


def perplexity__sign_forgotten(log_probabilities, mask):
    mean = (log_probabilities * mask.float()).sum() / mask.float().sum()
    return mean.exp()  # here


@two
def perplexity__padding_read_and_base_two(log_probabilities, mask):
    return 2 ** (-log_probabilities.mean())


# ------------------------------------------------------------------------------------------------------- online_softmax


def online_softmax__old_sum_not_rescaled(scores, largest, total):
    new = torch.maximum(largest, scores.max(dim=-1, keepdim=True).values)
    total = total + torch.exp(scores - new).sum(dim=-1, keepdim=True)  # here
    return new, total


def online_softmax__rescaled_the_other_way(scores, largest, total):
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    safe = new.clamp(min=-1e30)
    factor = torch.exp(safe - largest.clamp(min=-1e30))  # here
    return new, total * factor + torch.exp(scores - safe).sum(dim=-1, keepdim=True)


def online_softmax__largest_of_the_chunk(scores, largest, total):
    new = scores.amax(dim=-1, keepdim=True)  # here
    new = torch.where(new == -torch.inf, largest, new)
    safe = new.clamp(min=-1e30)
    rest = total * torch.exp(largest - safe)
    return new, rest + torch.exp(scores - safe).sum(dim=-1, keepdim=True)


def online_softmax__nan_while_nothing_came(scores, largest, total):
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    total = total * (largest - new).exp() + (scores - new).exp().sum(dim=-1, keepdim=True)  # here
    return new, total


def online_softmax__mean_of_the_exponentials(scores, largest, total):
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    safe = new.clamp(min=-1e30)
    old = total * torch.exp(largest - safe)
    return new, old + torch.exp(scores - safe).mean(dim=-1, keepdim=True)  # here


@two
def online_softmax__not_rescaled_and_mean(scores, largest, total):
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    safe = new.clamp(min=-1e30)
    return new, total + torch.exp(scores - safe).mean(dim=-1, keepdim=True)


# ----------------------------------------------------------------------------------------------------- repair_the_block


def repair_the_block__residual_from_the_norm(self, x, mask):
    h = self.norm_1(x)
    found, _ = self.attention(h, h, h, attn_mask=~mask)
    x = x + found
    h = self.norm_2(x)
    return h + self.down(self.up(h).relu())  # here


def repair_the_block__mask_as_it_is(self, x, mask):
    h = self.norm_1(x)
    found, _ = self.attention(h, h, h, attn_mask=mask)  # here
    x = x + found
    return x + self.down(torch.relu(self.up(self.norm_2(x))))


def repair_the_block__the_first_norm_twice(self, x, mask):
    h = self.norm_1(x)
    x = x + self.attention(h, h, h, attn_mask=~mask, need_weights=False)[0]
    h = self.norm_1(x)  # here
    return x + self.down(self.up(h).relu())


def repair_the_block__only_the_query_is_normalised(self, x, mask):
    h = self.norm_1(x)
    x = x + self.attention(h, x, x, attn_mask=~mask)[0]  # here
    return x + self.down(self.up(self.norm_2(x)).relu())


def repair_the_block__no_activation(self, x, mask):
    h = self.norm_1(x)
    x = x + self.attention(h, h, h, attn_mask=torch.logical_not(mask))[0]
    h = self.norm_2(x)
    return x + self.down(self.up(h))  # here


@two
def repair_the_block__no_mask_and_norm_from_before(self, x, mask):
    h = self.norm_1(x)
    found, _ = self.attention(h, h, h)
    return x + found + self.down(self.up(self.norm_2(x)).relu())


# ------------------------------------------------------------------------------------------------------------ mean_pool


def mean_pool__over_all_positions(states, lengths):
    return states.mean(dim=1)  # here


def mean_pool__one_word_too_many(states, lengths):
    n = states.shape[1]
    mask = torch.arange(n)[None, :] <= lengths[:, None]  # here
    return (states * mask[..., None]).sum(dim=1) / lengths[:, None]


def mean_pool__divided_by_the_width(states, lengths):
    mask = (torch.arange(states.size(1)).unsqueeze(0) < lengths.unsqueeze(1)).float()
    summed = torch.einsum("bnd,bn->bd", states, mask)
    return summed / states.size(1)  # here


def mean_pool__without_the_last_word(states, lengths):
    rows = []
    for sentence, length in zip(states, lengths):
        rows.append(sentence[: length - 1].sum(dim=0) / length)  # here
    return torch.stack(rows)


def mean_pool__median_length(states, lengths):
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    summed = (states * mask.unsqueeze(-1)).sum(dim=1)
    return summed / lengths.float().mean()  # here


@two
def mean_pool__last_word_missing_and_not_divided(states, lengths):
    mask = torch.arange(states.shape[1]) < lengths[:, None] - 1
    return (states * mask.unsqueeze(-1)).sum(dim=1)


# ------------------------------------------------------------------------------------------------------- bilinear_score


def bilinear_score__queries_against_all_sentences(query, key, W):
    return torch.einsum("bqd,de,ckd->bqk", query, W, key) if False else (query @ W) @ key[0].T  # here


def bilinear_score__scaled(query, key, W):
    scores = query @ W @ key.transpose(1, 2)
    return scores / math.sqrt(key.shape[-1])  # here


def bilinear_score__matrix_transposed(query, key, W):
    return query @ W.T @ key.mT  # here


def bilinear_score__softmax_at_once(query, key, W):
    scores = torch.einsum("bqx,xy,bky->bqk", query, W, key)
    return scores.softmax(dim=-1)  # here


def bilinear_score__keys_by_queries(query, key, W):
    return key @ W.mT @ query.mT  # here


@two
def bilinear_score__softmax_and_scaled(query, key, W):
    scores = query @ W @ key.mT / W.shape[0] ** 0.5
    return torch.softmax(scores, dim=-1)
