"""More wrong answers to exercises drawn at random: four with one mistake each, two with two, and a right one each.

Twelve exercises drawn by `random.Random(27)` from the names in alphabetical order, without those of `unseen_1.py`,
and six of the others by `random.Random(28)`.
"""

import math
from collections import Counter
from functools import reduce

import torch
import torch.nn.functional as F
from unseen import right, two

# ruff: noqa: B905, RUF007, RUF059, SIM108  (as learners write)

# ------------------------------------------------------------------------------------------------------- test_for_leaks


def test_for_leaks__gradients_alone(model, x):
    x = x.clone().requires_grad_(True)
    out = model(x)
    for i in range(x.shape[1] - 1):
        (grad,) = torch.autograd.grad(out[:, i].sum(), x, retain_graph=True, allow_unused=True)  # here
        if grad is not None and (grad[:, i + 1 :].abs() > 0).any():  # here
            return True
    return False


def test_for_leaks__nan_is_a_difference(model, x):
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            other = x.clone()
            other[:, i + 1 :] = size * torch.randn_like(other[:, i + 1 :])
            after = model(other)
            if not torch.allclose(before[:, : i + 1], after[:, : i + 1], rtol=1e-5, atol=1e-5):  # here
                return True
    return False


def test_for_leaks__usual_sizes_only(model, x):
    before = model(x)
    for i in range(x.shape[1] - 1):
        other = x.clone()
        other[:, i + 1 :] = torch.randn_like(other[:, i + 1 :])  # here
        after = model(other)
        close = torch.isclose(before, after, rtol=1e-5, atol=1e-5, equal_nan=True)
        if not close[:, : i + 1].all():
            return True
    return False


def test_for_leaks__position_itself_is_changed(model, x):
    before = model(x)
    for i in range(x.shape[1]):
        for size in (1.0, 100.0):
            other = x.clone()
            other[:, i:] += size * torch.randn_like(other[:, i:])  # here
            after = model(other)
            same = torch.isclose(before, after, rtol=1e-5, atol=1e-5, equal_nan=True)[:, : i + 1]  # here
            if not same.all():
                return True
    return False


@two
def test_for_leaks__last_position_of_usual_size(model, x):
    other = x.clone()
    other[:, -1] = torch.randn_like(other[:, -1])
    a, b = model(x)[:, :-1], model(other)[:, :-1]
    return not torch.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)


@two
def test_for_leaks__exactly_equal_and_nan(model, x):
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            other = torch.cat([x[:, : i + 1], size * torch.randn_like(x[:, i + 1 :])], dim=1)
            if not torch.equal(model(other)[:, : i + 1], before[:, : i + 1]):
                return True
    return False


@right
def test_for_leaks__any_of_all_changes(model, x):
    batch, n, _ = x.shape
    before = model(x.clone())

    def moved(other, i):
        old, new = before[:, : i + 1], model(other)[:, : i + 1]
        apart = torch.where(old.isnan() & new.isnan(), torch.zeros_like(old), new - old).abs()
        return not bool((apart <= 5e-5 + 2e-6 * old.nan_to_num().abs()).all())

    def futures(i):
        for size in (1, 100):
            for _ in range(3):
                yield torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :]) * size], 1)
            for b in range(batch):
                other = x.clone()
                other[b, i + 1 :] = torch.randn_like(other[b, i + 1 :]) * size
                yield other
            for j in range(i + 1, n):
                other = x.clone()
                other[:, j] = torch.randn_like(other[:, j]) * size
                yield other

    return any(moved(other, i) for i in range(n - 1) for other in futures(i))


# -------------------------------------------------------------------------------------------- restricted_self_attention


def restricted_self_attention__strictly_within(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    i = torch.arange(x.shape[1])
    near = (i[:, None] - i[None, :]).abs() < width  # here
    near = near | torch.eye(x.shape[1], dtype=torch.bool)
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
    return weights @ V, weights


def restricted_self_attention__only_behind(x, W_Q, W_K, W_V, width):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = torch.einsum("bid,bjd->bij", q, k) / k.shape[-1] ** 0.5
    n = x.size(1)
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    allowed = (distance >= 0) & (distance <= width)  # here
    scores = scores.masked_fill(~allowed, float("-inf"))
    w = torch.softmax(scores, dim=-1)
    return w @ v, w


def restricted_self_attention__zero_as_a_score(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    n, d_k = x.shape[1], Q.shape[-1]
    scores = Q @ K.transpose(1, 2) / math.sqrt(d_k)
    band = torch.ones(n, n).tril(width).triu(-width)
    weights = torch.softmax(scores * band, dim=-1)  # here
    return weights @ V, weights


def restricted_self_attention__scaled_by_the_model(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.mT / math.sqrt(x.shape[-1])  # here
    pos = torch.arange(x.shape[1])
    far = (pos.unsqueeze(0) - pos.unsqueeze(1)).abs() > width
    weights = scores.masked_fill(far, -torch.inf).softmax(-1)
    return weights @ V, weights


@two
def restricted_self_attention__zeroed_afterwards_and_not_scaled(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    weights = (Q @ K.mT).softmax(dim=-1)
    pos = torch.arange(x.shape[1])
    weights = weights * ((pos[:, None] - pos).abs() <= width)
    return weights @ V, weights


@two
def restricted_self_attention__one_more_and_over_the_queries(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.mT / math.sqrt(K.shape[-1])
    pos = torch.arange(x.shape[1])
    near = (pos[:, None] - pos).abs() <= width + 1
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-2)
    return weights @ V, weights


@right
def restricted_self_attention__token_by_token(x, W_Q, W_K, W_V, width):
    b, n, _ = x.shape
    rows, outputs = [], []
    for i in range(n):
        low, high = max(0, i - width), min(n, i + width + 1)
        seen = x[:, low:high]
        e = ((x[:, i : i + 1] @ W_Q) * (seen @ W_K)).sum(-1) * W_K.shape[1] ** -0.5
        w = F.softmax(e, dim=1)
        outputs.append(torch.bmm(w[:, None], seen @ W_V)[:, 0])
        rows.append(F.pad(w, (low, n - high)))
    return torch.stack(outputs, dim=1), torch.stack(rows, dim=1)


# --------------------------------------------------------------------------------------------------------------- warmup


def warmup__max_for_min(step, d_model, warmup_steps):
    return d_model**-0.5 * max(step**-0.5, step * warmup_steps**-1.5)  # here


def warmup__times_the_root_of_the_model(step, d_model, warmup_steps):
    scale = math.sqrt(d_model)  # here
    return scale * min(1 / math.sqrt(step), step / warmup_steps**1.5)


def warmup__steps_counted_from_zero(step, d_model, warmup_steps):
    step = step + 1  # here
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@right
def warmup__a_tensor_comes_back(step, d_model, warmup_steps):
    step = torch.tensor(float(step))  # written as wrong: the contract asked for a plain number at the time
    rising = step * warmup_steps**-1.5
    falling = step**-0.5
    return d_model**-0.5 * torch.minimum(rising, falling)


@two
def warmup__falls_as_one_over_step_without_the_model(step, d_model, warmup_steps):
    return min(step**-1, step * warmup_steps**-1.5)


@two
def warmup__max_and_not_inverted(step, d_model, warmup_steps):
    return d_model**0.5 * max(step**-0.5, step * warmup_steps**-1.5)


@right
def warmup__in_logarithms(step, d_model, warmup_steps):
    falling = -math.log(step) / 2
    rising = math.log(step) - 3 * math.log(warmup_steps) / 2
    if step < warmup_steps:
        return math.exp(rising - math.log(d_model) / 2)
    else:
        return math.exp(falling - math.log(d_model) / 2)


# ----------------------------------------------------------------------------------------------------------- layer_norm


def layer_norm__unbiased(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    var = x.var(dim=-1, keepdim=True)  # here
    return (x - mean) / torch.sqrt(var + eps) * weight + bias


def layer_norm__eps_outside_the_root(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    std = torch.sqrt((centred**2).mean(-1, keepdim=True))
    return weight * centred / (std + eps) + bias  # here


def layer_norm__over_the_second_axis(x, weight, bias, eps):
    mu = x.mean(dim=1, keepdim=True)  # here
    sigma2 = ((x - mu) ** 2).mean(dim=1, keepdim=True)  # here
    return (x - mu) / torch.sqrt(sigma2 + eps) * weight + bias


def layer_norm__bias_inside_the_gain(x, weight, bias, eps):
    mu = x.mean(dim=-1, keepdim=True)
    var = x.var(dim=-1, keepdim=True, correction=0)
    normed = (x - mu) * torch.rsqrt(var + eps)
    return weight * (normed + bias)  # here


@two
def layer_norm__unbiased_and_no_bias(x, weight, bias, eps):
    mu = x.mean(dim=-1, keepdim=True)
    var = x.var(dim=-1, keepdim=True)
    return (x - mu) / (var + eps).sqrt() * weight


@two
def layer_norm__not_centred_and_no_root(x, weight, bias, eps):
    mu = x.mean(dim=-1, keepdim=True)
    var = ((x - mu) ** 2).mean(dim=-1, keepdim=True)
    return x / (var + eps) * weight + bias


@right
def layer_norm__by_a_centring_matrix(x, weight, bias, eps):
    d = x.shape[-1]
    centre = torch.eye(d, dtype=x.dtype) - torch.full((d, d), 1 / d, dtype=x.dtype)
    y = torch.einsum("cd,...d->...c", centre, x)
    length = torch.einsum("...c,...c->...", y, y)
    return torch.addcmul(bias, y, weight * (length / d + eps).pow(-0.5).unsqueeze(-1))


# ----------------------------------------------------------------------------------------------------- linear_attention


def features(x):
    """What the notebook gives."""
    return F.elu(x) + 1


def linear_attention__not_itself(query, key, value, causal):
    q, k = features(query), features(key)
    kv = k.unsqueeze(-1) * value.unsqueeze(-2)
    if causal:
        s = kv.cumsum(dim=1) - kv  # here
        z = k.cumsum(dim=1) - k  # here
        z = z + 1e-9
        return torch.einsum("bnk,bnkv->bnv", q, s) / (q * z).sum(-1, keepdim=True)
    s, z = kv.sum(dim=1), k.sum(dim=1)
    return q @ s / (q @ z[..., None])


def linear_attention__divided_by_all_keys(query, key, value, causal):
    q, k = features(query), features(key)
    kv = torch.einsum("bnk,bnv->bnkv", k, value)
    if causal:
        numerator = torch.einsum("bnk,bnkv->bnv", q, kv.cumsum(1))
    else:
        numerator = torch.einsum("bnk,bkv->bnv", q, kv.sum(1))
    denominator = torch.einsum("bnk,bk->bn", q, k.sum(1))  # here
    return numerator / denominator[..., None]


def linear_attention__key_without_features(query, key, value, causal):
    q = features(query)
    scores = q @ key.transpose(1, 2)  # here
    if causal:
        scores = scores.tril()
    weights = scores / scores.sum(dim=-1, keepdim=True)
    return weights @ value


def linear_attention__scaled_queries(query, key, value, causal):
    q, k = features(query / math.sqrt(query.shape[-1])), features(key)  # here
    scores = q @ k.mT
    if causal:
        scores = torch.tril(scores)
    return scores @ value / scores.sum(-1, keepdim=True)


@two
def linear_attention__not_divided_and_key_without_features(query, key, value, causal):
    q = features(query)
    weights = q @ key.mT
    if causal:
        weights = weights.tril()
    return weights @ value


@two
def linear_attention__future_and_softmax(query, key, value, causal):
    scores = features(query) @ features(key).mT
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril(-1).bool(), -torch.inf)
    return scores.softmax(dim=-1) @ value


@right
def linear_attention__step_by_step(query, key, value, causal):
    q, k = features(query), features(key)
    one = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)  # the last column counts
    memory = torch.zeros(k.shape[0], k.shape[-1], one.shape[-1])
    if not causal:
        memory = k.mT @ one
    rows = []
    for i in range(q.shape[1]):
        if causal:
            memory = memory + k[:, i, :, None] * one[:, i, None, :]
        both = (q[:, i, :, None] * memory).sum(1)
        rows.append(both[:, :-1] / both[:, -1:])
    return torch.stack(rows, 1)


# ------------------------------------------------------------------------------------------------------- draw_negatives


def draw_negatives__not_moved_past_itself(lot):
    n = lot.shape[0]
    return torch.floor(lot * (n - 1)).long()  # here


def draw_negatives__strictly_above(lot):
    n, k = lot.shape
    index = (lot * (n - 1)).long()
    own = torch.arange(n).unsqueeze(1)
    return torch.where(index > own, index + 1, index)  # here


def draw_negatives__rounded(lot):
    n = lot.shape[0]
    picked = (lot * (n - 1)).round().long()  # here
    i = torch.arange(n)[:, None]
    return picked + (picked >= i)


def draw_negatives__own_number_by_columns(lot):
    n, k = lot.shape
    index = torch.floor(lot * (n - 1)).long()
    own = torch.arange(k)[None, :]  # here
    index[index >= own] += 1
    return index


@two
def draw_negatives__of_all_and_as_floats(lot):
    n = lot.shape[0]
    index = torch.floor(lot * n)
    own = torch.arange(n)[:, None]
    return torch.where(index >= own, index + 1, index)


@two
def draw_negatives__rounded_and_strictly_above(lot):
    n = lot.shape[0]
    index = torch.round(lot * (n - 1)).long()
    return index + (index > torch.arange(n)[:, None]).long()


@right
def draw_negatives__from_a_table_of_others(lot):
    n = len(lot)
    table = [[j for j in range(n) if j != i] for i in range(n)]
    return torch.tensor([[table[i][int(u * (n - 1))] for u in row] for i, row in enumerate(lot)])


# ----------------------------------------------------------------------------------------------------- attention_output


def attention_output__softmax_once_more(weights, encoder_states):
    alpha = torch.softmax(weights, dim=-1)  # here
    return torch.bmm(alpha, encoder_states)


def attention_output__mean_over_the_source(weights, encoder_states):
    product = weights.unsqueeze(-1) * encoder_states.unsqueeze(1)
    return product.mean(dim=2)  # here


def attention_output__states_of_the_first_sentence(weights, encoder_states):
    return weights @ encoder_states[0]  # here


def attention_output__the_heaviest_alone(weights, encoder_states):
    best = weights.argmax(dim=-1)  # here
    return torch.stack([encoder_states[b, best[b]] for b in range(len(best))])  # here


@two
def attention_output__softmax_and_mean(weights, encoder_states):
    alpha = F.softmax(weights, dim=-1)
    return alpha @ encoder_states / encoder_states.shape[1]


@two
def attention_output__mean_of_the_first_sentence(weights, encoder_states):
    return torch.einsum("bts,sd->btd", weights, encoder_states[0]) / weights.shape[-1]


@right
def attention_output__added_up(weights, encoder_states):
    total = 0
    for column, state in zip(weights.unbind(dim=2), encoder_states.unbind(dim=1)):
        total = total + torch.vmap(torch.outer)(column, state)
    return total


# ----------------------------------------------------------------------------------------------- attention_distribution


@right
def attention_distribution__nan_mended_afterwards(scores, mask):
    scores = scores.masked_fill(~mask, float("-inf"))  # whose gradient is 0 where it fills: no NaN goes through
    return torch.softmax(scores, dim=-1).nan_to_num(0.0)


def attention_distribution__exponentials_as_they_are(scores, mask):
    e = torch.exp(scores)  # here
    e = torch.where(mask, e, torch.zeros_like(e))
    total = e.sum(dim=-1, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def attention_distribution__over_the_targets(scores, mask):
    filled = scores.masked_fill(~mask, -1e30)
    weights = filled.softmax(dim=1)  # here
    return weights * mask


def attention_distribution__zero_as_a_score(scores, mask):
    scores = scores * mask  # here
    weights = torch.softmax(scores, dim=-1)
    return weights * mask.any(dim=-1, keepdim=True)


@two
def attention_distribution__upside_down_and_empty_rows_uniform(scores, mask):
    return scores.masked_fill(mask, -1e9).softmax(dim=-1)


@two
def attention_distribution__over_the_targets_and_not_shared_out_again(scores, mask):
    return F.softmax(scores, dim=-2) * mask


@right
def attention_distribution__by_logsumexp(scores, mask):
    mask = mask.expand_as(scores)
    low = torch.where(mask, scores, torch.finfo(scores.dtype).min / 4)
    log_total = low.logsumexp(dim=-1, keepdim=True)
    return torch.where(mask, low - log_total, -torch.inf).exp()


# ---------------------------------------------------------------------------------------------------------- hard_lookup


def hard_lookup__largest_in_size(query, keys, values):
    match = (query @ keys.T).abs()  # here
    return values[match.argmax(dim=-1)]


def hard_lookup__the_place_of_it(query, keys, values):
    scores = query @ keys.T
    return scores.argmax(dim=1)  # here


def hard_lookup__one_place_for_all(query, keys, values):
    scores = query @ keys.T
    best = scores.sum(dim=0).argmax()  # here
    return values[best].expand(len(query), -1)  # here


def hard_lookup__a_soft_one(query, keys, values):
    scores = torch.einsum("qd,kd->qk", query, keys)
    weights = scores.softmax(dim=-1)  # here
    return weights @ values


@two
def hard_lookup__size_and_keys(query, keys, values):
    scores = torch.abs(query @ keys.T)
    return keys[scores.argmax(dim=1)]


@two
def hard_lookup__smallest_over_the_queries(query, keys, values):
    scores = query @ keys.T
    return values[scores.argmin(dim=0)]


@right
def hard_lookup__key_after_key(query, keys, values):
    best = torch.full((len(query), 1), -math.inf)
    found = torch.zeros(len(query), values.shape[1])
    for k, v in zip(keys, values):
        match = torch.mv(query, k)[:, None]
        found = torch.where(match > best, v, found)
        best = torch.maximum(best, match)
    return found


# ---------------------------------------------------------------------------------------------------------- scaled_step


def scaled_step__brought_back_in_half(weights, loss_of, scale, good_steps, growth_interval, lr):
    half = weights.detach().half().requires_grad_(True)
    (grad,) = torch.autograd.grad(loss_of(half) * scale, half)
    grad = (grad / scale).float()  # here
    if not torch.isfinite(grad).all():
        return weights, scale / 2, 0
    good_steps += 1
    if good_steps == growth_interval:
        scale, good_steps = scale * 2, 0
    return weights - lr * grad, scale, good_steps


def scaled_step__infinity_alone(weights, loss_of, scale, good_steps, growth_interval, lr):
    half = weights.half().detach().requires_grad_()
    (scale * loss_of(half)).backward()
    grad = half.grad.float() / scale
    if grad.isinf().any():  # here
        return weights, scale * 0.5, 0
    new = weights - lr * grad
    good_steps = good_steps + 1
    if good_steps >= growth_interval:
        return new, scale * 2, 0
    return new, scale, good_steps


def scaled_step__one_step_late(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().to(torch.float16).requires_grad_(True)
    (loss_of(copy) * scale).backward()
    grad = copy.grad.to(torch.float32) / scale
    if grad.isfinite().all():
        weights = weights - lr * grad
        if good_steps == growth_interval:  # here
            scale, good_steps = 2 * scale, 0
        else:
            good_steps += 1
    else:
        scale, good_steps = scale / 2, 0
    return weights, scale, good_steps


def scaled_step__good_steps_stay_at_an_overflow(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().half().requires_grad_(True)
    (g,) = torch.autograd.grad(scale * loss_of(copy), copy)
    g = g.float() / scale
    if g.isnan().any() or g.isinf().any():
        return weights, scale / 2, good_steps  # here
    weights = weights - lr * g
    good_steps += 1
    if good_steps == growth_interval:
        good_steps = 0
        scale = scale * 2
    return weights, scale, good_steps


@two
def scaled_step__not_brought_back_and_counting_on(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().half().requires_grad_(True)
    (g,) = torch.autograd.grad(scale * loss_of(copy), copy)
    g = g.float()
    if not g.isfinite().all():
        return weights, scale / 2, 0
    good_steps += 1
    if good_steps == growth_interval:
        scale = scale * 2
    return weights - lr * g, scale, good_steps


@two
def scaled_step__infinity_alone_and_late(weights, loss_of, scale, good_steps, growth_interval, lr):
    copy = weights.detach().half().requires_grad_(True)
    (g,) = torch.autograd.grad(scale * loss_of(copy), copy)
    g = g.float() / scale
    if torch.isinf(g).any():
        return weights, scale / 2, 0
    good_steps += 1
    if good_steps > growth_interval:
        scale, good_steps = scale * 2, 0
    return weights - lr * g, scale, good_steps


@right
def scaled_step__as_a_vector_jacobian_product(weights, loss_of, scale, good_steps, growth_interval, lr):
    _, gradient = torch.autograd.functional.vjp(loss_of, weights.detach().half(), torch.tensor(float(scale)))
    gradient = gradient.double() / scale
    good = math.isfinite(gradient.abs().sum().item())
    count = (good_steps + 1) * good
    grown, count = divmod(count, growth_interval)
    stepped = torch.sub(weights, gradient.float(), alpha=lr) if good else weights.clone()
    return stepped, scale * (2.0**grown if good else 0.5), count


# ---------------------------------------------------------------------------------------------------------- masked_mean


def masked_mean__times_the_mask(values, mask):
    m = mask.unsqueeze(-1).float()
    total = (values * m).sum(dim=1)  # here
    return total / m.sum(dim=1).clamp(min=1)


def masked_mean__nothing_by_nothing(values, mask):
    values = values.masked_fill(~mask[..., None], 0.0)
    return values.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # here


def masked_mean__divided_by_the_width(values, mask):
    kept = torch.where(mask[:, :, None], values, torch.zeros_like(values))
    return kept.mean(dim=1)  # here


def masked_mean__count_of_the_batch(values, mask):
    kept = torch.where(mask[:, :, None], values, 0.0)
    return kept.sum(dim=1) / mask.sum().clamp(min=1)  # here


@two
def masked_mean__times_the_mask_by_the_width(values, mask):
    return (values * mask[..., None]).sum(1) / values.shape[1]


@two
def masked_mean__upside_down_and_nothing_by_nothing(values, mask):
    values = values.masked_fill(mask[..., None], 0.0)
    return values.sum(dim=1) / (~mask).sum(dim=1)[:, None]


@right
def masked_mean__real_rows_added_where_they_belong(values, mask):
    of, at = mask.nonzero(as_tuple=True)
    total = torch.zeros(values.shape[0], values.shape[2], dtype=values.dtype).index_add(0, of, values[of, at])
    count = torch.bincount(of, minlength=len(mask))
    return total / count.clamp_min(1)[:, None]


# ------------------------------------------------------------------------------------------------ padded_self_attention


def padded_self_attention__keys_ask(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = K @ Q.mT / math.sqrt(Q.shape[-1])  # here
    scores = scores.masked_fill(~real[:, None, :], -1e9)
    return scores.softmax(dim=-1) @ V * real[:, :, None]


def padded_self_attention__upside_down(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    scores = scores.masked_fill(real[:, None, :], -1e9)  # here
    return scores.softmax(dim=-1) @ V * real[:, :, None]


def padded_self_attention__padding_keeps_its_answer(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.transpose(-2, -1) / W_K.shape[-1] ** 0.5
    scores = scores.masked_fill(~real.unsqueeze(1), float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights @ V  # here


def padded_self_attention__zero_as_a_score(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])
    scores = scores * real[:, None, :]  # here
    return scores.softmax(dim=-1) @ V * real[:, :, None]


@two
def padded_self_attention__keys_ask_by_the_model(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = K @ Q.mT / math.sqrt(x.shape[-1])
    scores = scores.masked_fill(~real[:, None, :], -1e9)
    return scores.softmax(dim=-1) @ V * real[:, :, None]


@two
def padded_self_attention__not_scaled_and_padding_keeps_its_answer(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    scores = (Q @ K.mT).masked_fill(~real[:, None, :], -1e9)
    return scores.softmax(dim=-1) @ V


@right
def padded_self_attention__sentence_by_sentence(x, real, W_Q, W_K, W_V):
    outputs = []
    for sentence, here in zip(x, real):
        tokens = sentence[here]
        e = (tokens @ W_Q @ W_K.T @ tokens.T / math.sqrt(W_Q.shape[1])).exp()
        received = torch.diag(1 / e.sum(1)) @ e @ (tokens @ W_V)
        outputs.append(torch.zeros(len(sentence), W_V.shape[1]).index_put((here.nonzero()[:, 0],), received))
    return torch.stack(outputs)

# ----------------------------------------------------------------------------------------------------------- byte_pairs


def byte_pairs__last_of_equals(train, test, n_merges):
    def merge(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == pair:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    words = [list(word) for word in train]
    cut = [list(word) for word in test]
    for _ in range(n_merges):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda pair: (counts[pair], pair))  # here
        words = [merge(word, best) for word in words]
        cut = [merge(word, best) for word in cut]
    return cut


def byte_pairs__first_seen_of_equals(train, test, n_merges):
    def merge(pieces, pair):
        out, joined = [], False
        for piece in pieces:
            if out and (out[-1], piece) == pair and not joined:
                out[-1] += piece
                joined = True
            else:
                out.append(piece)
                joined = False
        return out

    words = [list(word) for word in train]
    merges = []
    for _ in range(n_merges):
        counts = Counter()
        for word in words:
            counts.update(zip(word, word[1:]))
        pair = counts.most_common(1)[0][0]  # here
        merges.append(pair)
        words = [merge(word, pair) for word in words]
    result = []
    for word in test:
        pieces = list(word)
        for pair in merges:
            pieces = merge(pieces, pair)
        result.append(pieces)
    return result


def byte_pairs__every_word_counts_once(train, test, n_merges):
    def merge(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if tuple(pieces[i : i + 2]) == pair:
                out.append("".join(pair))
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    words = [list(word) for word in set(train)]  # here
    cut = [list(word) for word in test]
    for _ in range(n_merges):
        counts = Counter(pair for word in words for pair in zip(word, word[1:]))
        most = max(counts.values())
        pair = min(p for p in counts if counts[p] == most)
        words = [merge(word, pair) for word in words]
        cut = [merge(word, pair) for word in cut]
    return cut


def byte_pairs__each_word_has_a_pair_once(train, test, n_merges):
    def merge(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if tuple(pieces[i : i + 2]) == pair:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    words, cut = [list(w) for w in train], [list(w) for w in test]
    for _ in range(n_merges):
        counts = Counter()
        for word in words:
            counts.update(set(zip(word, word[1:])))  # here
        pair = min(counts, key=lambda p: (-counts[p], p))
        words = [merge(w, pair) for w in words]
        cut = [merge(w, pair) for w in cut]
    return cut


@two
def byte_pairs__first_seen_and_every_word_once(train, test, n_merges):
    def merge(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if tuple(pieces[i : i + 2]) == pair:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    words, cut = [list(w) for w in dict.fromkeys(train)], [list(w) for w in test]
    for _ in range(n_merges):
        counts = Counter(pair for word in words for pair in zip(word, word[1:]))
        pair = max(counts, key=counts.get)
        words = [merge(w, pair) for w in words]
        cut = [merge(w, pair) for w in cut]
    return cut


@two
def byte_pairs__last_of_equals_and_a_merge_short(train, test, n_merges):
    def merge(pieces, pair):
        out, i = [], 0
        while i < len(pieces):
            if tuple(pieces[i : i + 2]) == pair:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        return out

    words, cut = [list(w) for w in train], [list(w) for w in test]
    for _ in range(n_merges - 1):
        counts = Counter(pair for word in words for pair in zip(word, word[1:]))
        pair = max(counts, key=lambda p: (counts[p], p))
        words = [merge(w, pair) for w in words]
        cut = [merge(w, pair) for w in cut]
    return cut


@right
def byte_pairs__words_as_tuples_with_their_counts(train, test, n_merges):
    def merged(pieces, pair):
        if len(pieces) < 2:
            return pieces
        if pieces[:2] == pair:
            return (pieces[0] + pieces[1], *merged(pieces[2:], pair))
        return (pieces[0], *merged(pieces[1:], pair))

    known = Counter(tuple(word) for word in train)
    unknown = [tuple(word) for word in test]
    for _ in range(n_merges):
        pairs = Counter()
        for word, often in known.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += often
        (_, pair) = sorted((-often, pair) for pair, often in pairs.items())[0]
        again = Counter()
        for word, often in known.items():
            again[merged(word, pair)] += often
        known = again
        unknown = [merged(word, pair) for word in unknown]
    return [list(word) for word in unknown]


# ---------------------------------------------------------------------------------------------------------- cached_step


def cached_step__new_in_front(query, key, value, key_cache, value_cache):
    keys = torch.cat([key[:, :, None], key_cache], dim=2)  # here
    values = torch.cat([value[:, :, None], value_cache], dim=2)  # here
    group = query.shape[1] // key.shape[1]
    k = keys.repeat_interleave(group, dim=1)
    v = values.repeat_interleave(group, dim=1)
    scores = (query[:, :, None] @ k.mT) / math.sqrt(query.shape[-1])
    return (scores.softmax(-1) @ v).squeeze(2), keys, values


def cached_step__heads_tiled(query, key, value, key_cache, value_cache):
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // keys.shape[1]
    k = keys.repeat(1, group, 1, 1)  # here
    v = values.repeat(1, group, 1, 1)  # here
    scores = torch.einsum("bhd,bhnd->bhn", query, k) / math.sqrt(query.shape[-1])
    output = torch.einsum("bhn,bhnd->bhd", scores.softmax(dim=-1), v)
    return output, keys, values


def cached_step__not_scaled(query, key, value, key_cache, value_cache):
    keys = torch.cat([key_cache, key[:, :, None]], dim=2)
    values = torch.cat([value_cache, value[:, :, None]], dim=2)
    b, h, d = query.shape
    q = query.reshape(b, key.shape[1], -1, d)
    weights = torch.softmax(q @ keys.mT, dim=-1)  # here
    return (weights @ values).reshape(b, h, d), keys, values


def cached_step__many_heads_in_the_caches(query, key, value, key_cache, value_cache):
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    keys = keys.repeat_interleave(group, dim=1)  # here
    values = values.repeat_interleave(group, dim=1)  # here
    scores = (keys @ query[..., None])[..., 0] / query.shape[-1] ** 0.5
    output = (scores.softmax(-1)[..., None] * values).sum(dim=2)
    return output, keys, values


@two
def cached_step__tiled_and_not_scaled(query, key, value, key_cache, value_cache):
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // keys.shape[1]
    k, v = keys.repeat(1, group, 1, 1), values.repeat(1, group, 1, 1)
    scores = torch.einsum("bhd,bhnd->bhn", query, k)
    return torch.einsum("bhn,bhnd->bhd", scores.softmax(dim=-1), v), keys, values


@two
def cached_step__the_old_alone_and_not_scaled(query, key, value, key_cache, value_cache):
    group = query.shape[1] // key.shape[1]
    k = key_cache.repeat_interleave(group, dim=1)
    v = value_cache.repeat_interleave(group, dim=1)
    weights = torch.einsum("bhd,bhnd->bhn", query, k).softmax(dim=-1)
    output = torch.einsum("bhn,bhnd->bhd", weights, v)
    return output, torch.cat([key_cache, key[:, :, None]], 2), torch.cat([value_cache, value[:, :, None]], 2)


@right
def cached_step__head_after_head(query, key, value, key_cache, value_cache):
    keys = F.pad(key_cache, (0, 0, 0, 1)).index_copy(2, torch.tensor([key_cache.shape[2]]), key[:, :, None])
    values = F.pad(value_cache, (0, 0, 0, 1)).index_copy(2, torch.tensor([key_cache.shape[2]]), value[:, :, None])
    heads = []
    for h in range(query.shape[1]):
        mine = h * key.shape[1] // query.shape[1]
        scores = (keys[:, mine] * query[:, h, None]).sum(-1) / query.shape[-1] ** 0.5
        heads.append((F.softmax(scores, -1)[..., None] * values[:, mine]).sum(1))
    return torch.stack(heads, dim=1), keys, values


# ---------------------------------------------------------------------------------------------------------- split_heads


def split_heads__viewed_at_once(x, n_heads):
    batch, n, d_model = x.shape
    return x.reshape(batch, n_heads, n, d_model // n_heads)  # here


def split_heads__every_so_many_numbers(x, n_heads):
    batch, n, d_model = x.shape
    x = x.view(batch, n, d_model // n_heads, n_heads)  # here
    return x.permute(0, 3, 1, 2)  # here


def split_heads__words_in_front_of_the_heads(x, n_heads):
    batch, n, d_model = x.shape
    return x.reshape(batch, n, n_heads, d_model // n_heads)  # here


def split_heads__heads_in_front_of_the_batch(x, n_heads):
    pieces = x.chunk(n_heads, dim=-1)
    return torch.stack(pieces, dim=0)  # here


@two
def split_heads__every_so_many_and_heads_first(x, n_heads):
    batch, n, d_model = x.shape
    return x.view(batch, n, d_model // n_heads, n_heads).permute(3, 0, 1, 2)


@two
def split_heads__every_so_many_and_words_first(x, n_heads):
    batch, n, d_model = x.shape
    return x.view(batch, n, d_model // n_heads, n_heads).transpose(2, 3)


@right
def split_heads__by_indices(x, n_heads):
    d_head = x.shape[-1] // n_heads
    column = torch.arange(n_heads)[:, None] * d_head + torch.arange(d_head)
    return torch.movedim(x[..., column], -2, -3)


# -------------------------------------------------------------------------------------------------------- decoder_block


def decoder_block__masks_exchanged(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    h = norm_1(x + attention(x, x, memory_mask))  # here
    h = norm_2(h + cross_attention(h, memory, mask))  # here
    return norm_3(h + feed_forward(h))


def decoder_block__the_second_norm_twice(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    return norm_2(x + feed_forward(x))  # here


def decoder_block__added_to_the_first_x(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    a = norm_1(x + attention(x, x, mask))
    c = norm_2(x + cross_attention(a, memory, memory_mask))  # here
    return norm_3(c + feed_forward(c))


def decoder_block__the_last_norm_inside(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    x = x + norm_3(feed_forward(x))  # here
    return x


@two
def decoder_block__no_residual_at_the_memory_and_one_norm(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    x = norm_1(x + attention(x, x, mask))
    x = norm_1(cross_attention(x, memory, memory_mask))
    return norm_1(x + feed_forward(x))


@two
def decoder_block__no_memory_mask_and_no_last_residual(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, None))
    return norm_3(feed_forward(x))


@right
def decoder_block__as_a_list_of_sublayers(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    sublayers = [
        (lambda h: attention(h, h, mask), norm_1),
        (lambda h: cross_attention(h, memory, memory_mask), norm_2),
        (feed_forward, norm_3),
    ]
    return reduce(lambda h, sublayer: sublayer[1](torch.add(sublayer[0](h), h)), sublayers, x)


# ------------------------------------------------------------------------------------------------------------- gru_step


def gru_step__old_and_new_exchanged(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return (1 - z) * state + z * candidate  # here


def gru_step__reset_before_the_matrix(x, state, W_x, W_h, b):
    reset = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    update = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    new = torch.tanh(x @ W_x[2] + (reset * state) @ W_h[2] + b[2])  # here
    return update * state + (1 - update) * new


def gru_step__update_first(x, state, W_x, W_h, b):
    z, r = (torch.sigmoid(x @ W_x[i] + state @ W_h[i] + b[i]) for i in (0, 1))  # here
    h = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * h


def gru_step__the_input_is_reset_too(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    h = torch.tanh(r * (x @ W_x[2] + state @ W_h[2]) + b[2])  # here
    return z * state + (1 - z) * h


@two
def gru_step__exchanged_and_reset_before_the_matrix(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    h = torch.tanh(x @ W_x[2] + (r * state) @ W_h[2] + b[2])
    return (1 - z) * state + z * h


@two
def gru_step__sigmoid_of_the_candidate_and_no_biases(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1])
    h = torch.sigmoid(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * h


@right
def gru_step__all_products_at_once(x, state, W_x, W_h, b):
    from_x = torch.einsum("bi,gih->gbh", x, W_x) + b.unsqueeze(1)
    from_h = torch.einsum("bi,gih->gbh", state, W_h)
    gates = 1 / (1 + (-(from_x[:2] + from_h[:2])).exp())
    candidate = 2 * torch.sigmoid(2 * torch.addcmul(from_x[2], gates[0], from_h[2])) - 1
    return torch.lerp(candidate, state, gates[1])


# ---------------------------------------------------------------------------------------------------------- vit_forward


def vit_forward__class_at_the_end(patches, embed, class_token, positions, stack, head):
    x = embed(patches)
    cls = class_token.expand(x.shape[0], 1, -1)
    x = torch.cat([x, cls], dim=1)  # here
    x = stack(x + positions)
    return head(x[:, -1])  # here


def vit_forward__class_without_a_position(patches, embed, class_token, positions, stack, head):
    x = embed(patches) + positions[1:]  # here
    cls = class_token.reshape(1, 1, -1).repeat(len(x), 1, 1)
    x = torch.cat((cls, x), dim=1)  # here
    return head(stack(x)[:, 0])


def vit_forward__mean_of_the_rows(patches, embed, class_token, positions, stack, head):
    x = embed(patches)
    cls = class_token[None, None].expand(x.size(0), -1, -1)
    x = torch.cat([cls, x], dim=1) + positions
    return head(stack(x).mean(dim=1))  # here


def vit_forward__no_positions(patches, embed, class_token, positions, stack, head):
    tokens = embed(patches)
    first = class_token.expand(tokens.shape[0], 1, tokens.shape[2])
    x = torch.cat([first, tokens], dim=1)  # here
    return head(stack(x)[:, 0])


@two
def vit_forward__no_positions_and_mean(patches, embed, class_token, positions, stack, head):
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head(stack(x).mean(1))


@two
def vit_forward__class_without_a_position_and_the_last_row(patches, embed, class_token, positions, stack, head):
    x = embed(patches) + positions[1:]
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head(stack(x)[:, -1])


@right
def vit_forward__written_into_the_table_of_positions(patches, embed, class_token, positions, stack, head):
    batch = patches.shape[0]
    first = (class_token + positions[0]).repeat(batch, 1)
    others = torch.stack([row + p for row, p in zip(embed(patches).unbind(1), positions[1:])], dim=1)
    seen = stack(torch.column_stack([first.unsqueeze(1), others]))
    return head(seen.select(1, 0))
