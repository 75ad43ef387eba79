"""Wrong answers with one mistake each, for benchmarks/repair.py: written from the notebooks' text alone.

The ten exercises were drawn by `random.Random("where is it").sample(names, 10)` from the names in alphabetical order.
Nobody had looked at the exercises' modules, their known mistakes or their solutions when these were written.
"""

import math

import torch
import torch.nn.functional as F

# ruff: noqa: B007, RUF005, RUF007  (as learners write)

# ---------------------------------------------------------------------------------------------------------- hard_lookup


def hard_lookup__argmax_over_the_queries(query, keys, values):
    match = query @ keys.T
    best = match.argmax(dim=0)  # here
    return values[best]


def hard_lookup__the_worst_key(query, keys, values):
    scores = torch.einsum("qd,kd->qk", query, keys)
    index = torch.argmin(scores, dim=1)  # here
    return values[index]


def hard_lookup__hands_back_the_key(query, keys, values):
    result = []
    for q in query:
        dots = (keys * q).sum(dim=1)
        result.append(keys[dots.argmax()])  # here
    return torch.stack(result)


def hard_lookup__nearest_by_distance(query, keys, values):
    distance = ((query[:, None, :] - keys[None, :, :]) ** 2).sum(-1)  # here
    return values[distance.argmin(dim=-1)]  # here


def hard_lookup__cosine(query, keys, values):
    k = F.normalize(keys, dim=-1)  # here
    s = query @ k.transpose(0, 1)
    return values[s.max(dim=-1).indices]


# ---------------------------------------------------------------------------------------------------------- soft_lookup


def soft_lookup__softmax_over_queries(query, keys, values, temperature):
    scores = query @ keys.T / temperature
    weights = torch.softmax(scores, dim=0)  # here
    return weights @ values, weights


def soft_lookup__multiplied_by_temperature(query, keys, values, temperature):
    logits = torch.matmul(query, keys.transpose(0, 1))
    logits = logits * temperature  # here
    alpha = logits.softmax(-1)
    return torch.matmul(alpha, values), alpha


def soft_lookup__temperature_after_softmax(query, keys, values, temperature):
    w = (query @ keys.T).softmax(dim=-1)  # here
    w = w / temperature  # here
    return w @ values, w


def soft_lookup__the_maximum_is_added(query, keys, values, temperature):
    scores = query @ keys.T / temperature
    top = scores.amax(dim=1, keepdim=True)
    e = torch.exp(scores + top)  # here
    weights = e / e.sum(dim=1, keepdim=True)
    return weights @ values, weights


def soft_lookup__summed_over_the_queries(query, keys, values, temperature):
    scores = query @ keys.T / temperature
    e = torch.exp(scores - scores.max(dim=1, keepdim=True).values)
    weights = e / e.sum(dim=0, keepdim=True)  # here
    return weights @ values, weights


def soft_lookup__weights_before_the_softmax(query, keys, values, temperature):
    sim = (query @ keys.T) / temperature
    p = F.softmax(sim, dim=-1)
    out = p @ values
    return out, sim  # here


# --------------------------------------------------------------------------------------------------------- shifted_loss


def shifted_loss__not_shifted(logits, tokens, pad):
    log_p = logits.log_softmax(-1)
    predicted = log_p[:, :-1]
    target = tokens[:, :-1]  # here
    picked = predicted.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    real = tokens[:, 1:] != pad
    return -(picked[real]).mean()


def shifted_loss__padding_counts_in_the_divisor(logits, tokens, pad):
    log_p = F.log_softmax(logits[:, :-1], dim=-1)
    nxt = tokens[:, 1:]
    nll = -log_p.gather(2, nxt[..., None])[..., 0]
    mask = (nxt != pad).float()
    return (nll * mask).sum() / mask.numel()  # here


def shifted_loss__padding_by_zero(logits, tokens, pad):
    inputs = logits[:, :-1].reshape(-1, logits.shape[-1])
    goals = tokens[:, 1:].reshape(-1)
    return F.cross_entropy(inputs, goals, ignore_index=0)  # here


def shifted_loss__mean_of_the_texts_means(logits, tokens, pad):
    losses = []
    for row, ids in zip(logits, tokens, strict=True):
        n = int((ids != pad).sum())
        if n < 2:
            continue
        logp = torch.log_softmax(row[: n - 1], dim=-1)
        losses.append(-logp[torch.arange(n - 1), ids[1:n]].mean())  # here
    return torch.stack(losses).mean()  # here


def shifted_loss__bits(logits, tokens, pad):
    p = logits[:, :-1].log_softmax(dim=-1)
    y = tokens[:, 1:]
    chosen = torch.gather(p, 2, y.unsqueeze(2)).squeeze(2)
    keep = y != pad
    return -chosen[keep].mean() / math.log(2)  # here


def shifted_loss__mask_not_shifted(logits, tokens, pad):
    p = logits[:, :-1].log_softmax(dim=-1)
    y = tokens[:, 1:]
    chosen = torch.gather(p, 2, y.unsqueeze(2)).squeeze(2)
    keep = tokens[:, :-1] != pad  # here
    return -chosen[keep].mean()


# ----------------------------------------------------------------------------------------------------------- layer_cost


def layer_cost__no_projections(kind, n, d, width=None):
    if kind == "self-attention":
        return n * n * d + n * n * d, 1, 1  # here
    if kind == "recurrent":
        return 2 * n * d * d, n, n
    window = min(2 * width + 1, n)
    layers = max(1, math.ceil((n - 1) / width))
    if kind == "restricted":
        return 3 * n * d * d + 2 * n * window * d, 1, layers
    return n * window * d * d, 1, layers


def layer_cost__one_way_window(kind, n, d, width=None):
    if width is not None:
        w = min(width + 1, n)  # here
        path = max(1, -(-(n - 1) // width))
    if kind == "self-attention":
        cost, steps, path = 3 * n * d**2 + 2 * n**2 * d, 1, 1
    elif kind == "restricted":
        cost, steps = 3 * n * d**2 + 2 * n * w * d, 1
    elif kind == "recurrent":
        cost, steps, path = 2 * n * d**2, n, n
    else:
        cost, steps = n * w * d**2, 1
    return cost, steps, path


def layer_cost__path_rounded_down(kind, n, d, width=None):
    if kind == "self-attention":
        return 3 * n * d * d + 2 * n * n * d, 1, 1
    if kind == "recurrent":
        return 2 * n * d * d, n, n
    window = min(2 * width + 1, n)
    path = max((n - 1) // width, 1)  # here
    if kind == "restricted":
        return 3 * n * d * d + 2 * n * window * d, 1, path
    return n * window * d * d, 1, path


def layer_cost__recurrent_in_one_step(kind, n, d, width=None):
    costs = {"self-attention": 3 * n * d * d + 2 * n * n * d, "recurrent": 2 * n * d * d}
    steps = 1  # here
    path = n if kind == "recurrent" else 1
    if width:
        window = min(n, 1 + 2 * width)
        costs["restricted"] = 3 * n * d * d + 2 * n * window * d
        costs["convolution"] = n * window * d * d
        path = max(1, math.ceil((n - 1) / width))
    return costs[kind], steps, path  # here


def layer_cost__window_longer_than_the_sequence(kind, n, d, width=None):
    if kind == "self-attention":
        return 3 * n * d * d + 2 * n * n * d, 1, 1
    if kind == "recurrent":
        return 2 * n * d * d, n, n
    seen = 2 * width + 1  # here
    stacked = max(1, math.ceil((n - 1) / width))
    madds = n * seen * d * d if kind == "convolution" else 3 * n * d * d + 2 * n * seen * d
    return madds, 1, stacked


# ----------------------------------------------------------------------------------------------------------------- rope


def rope__value_turned_too(query, key, value, start):
    d = query.shape[-1]
    freq = 1.0 / 10000 ** (torch.arange(0, d, 2) / d)
    pos = torch.arange(start, start + query.shape[1])
    theta = pos[:, None] * freq[None, :]
    cos, sin = theta.cos(), theta.sin()

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    return turn(query), turn(key), turn(value)  # here


def rope__start_ignored(query, key, value, start):
    n, d = query.shape[1:]
    i = torch.arange(d // 2)
    angle = torch.arange(n).unsqueeze(1) / 10000 ** (2 * i / d)  # here
    out = []
    for x in (query, key):
        even, odd = x[:, :, ::2], x[:, :, 1::2]
        turned = torch.empty_like(x)
        turned[:, :, ::2] = even * angle.cos() - odd * angle.sin()
        turned[:, :, 1::2] = even * angle.sin() + odd * angle.cos()
        out.append(turned)
    return out[0], out[1], value


def rope__turned_backwards(query, key, value, start):
    def rotate(x):
        _, n, d = x.shape
        p = torch.arange(start, start + n, dtype=x.dtype)
        i = torch.arange(d // 2, dtype=x.dtype)
        theta = p[:, None] / 10000 ** (2 * i / d)
        a, b = x[..., ::2], x[..., 1::2]
        new_a = a * torch.cos(theta) + b * torch.sin(theta)  # here
        new_b = -a * torch.sin(theta) + b * torch.cos(theta)  # here
        return torch.stack((new_a, new_b), -1).reshape(x.shape)

    return rotate(query), rotate(key), value


def rope__halves_as_pairs(query, key, value, start):
    n, d = query.shape[-2:]
    theta = torch.arange(start, start + n)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    c, s = theta.cos(), theta.sin()

    def turn(x):
        a = x[..., 0::2]
        b = x[..., 1::2]
        return torch.cat([a * c - b * s, a * s + b * c], dim=-1)  # here

    return turn(query), turn(key), value


def rope__exponent_without_the_two(query, key, value, start):
    batch, n, d = query.shape
    positions = torch.arange(start, start + n).float()
    pairs = torch.arange(d // 2).float()
    theta = torch.outer(positions, 10000 ** (-pairs / d))  # here
    turn = torch.polar(torch.ones_like(theta), theta)

    def turned(x):
        z = torch.view_as_complex(x.reshape(batch, n, d // 2, 2).contiguous())
        return torch.view_as_real(z * turn).reshape(batch, n, d)

    return turned(query), turned(key), value


def rope__sine_of_b_added(query, key, value, start):
    d = query.shape[-1]
    theta = torch.arange(start, start + query.shape[1]).unsqueeze(-1) * 10000.0 ** (-torch.arange(0, d, 2) / d)
    sin, cos = torch.sin(theta), torch.cos(theta)

    def turn(x):
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        first = a * cos + b * sin  # here
        second = a * sin + b * cos
        return torch.stack([first, second], -1).flatten(-2)

    return turn(query), turn(key), value


# -------------------------------------------------------------------------------------------- restricted_self_attention


def restricted_self_attention__not_scaled(x, W_Q, W_K, W_V, width):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.transpose(-2, -1)  # here
    i = torch.arange(x.shape[1])
    near = (i[:, None] - i[None, :]).abs() <= width
    weights = scores.masked_fill(~near, float("-inf")).softmax(-1)
    return weights @ v, weights


def restricted_self_attention__only_the_past(x, W_Q, W_K, W_V, width):
    n = x.size(1)
    queries = x @ W_Q
    keys = x @ W_K
    values = x @ W_V
    scores = queries @ keys.mT / math.sqrt(keys.size(-1))
    position = torch.arange(n)
    distance = position.unsqueeze(1) - position.unsqueeze(0)  # here
    far = distance > width  # here
    scores = scores.masked_fill(far, -torch.inf)
    attention = torch.softmax(scores, dim=-1)
    return attention @ values, attention


def restricted_self_attention__strictly_nearer(x, W_Q, W_K, W_V, width):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    s = torch.einsum("bid,bjd->bij", q, k) / k.shape[-1] ** 0.5
    i = torch.arange(x.shape[1])
    mask = (i.view(-1, 1) - i.view(1, -1)).abs() < width  # here
    w = torch.softmax(torch.where(mask, s, torch.tensor(-1e30)), dim=-1)
    return w @ v, w


def restricted_self_attention__masked_after_softmax(x, W_Q, W_K, W_V, width):
    n = x.shape[1]
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores, dim=-1)  # here
    band = torch.ones(n, n).tril(width).triu(-width)
    weights = weights * band  # here
    return weights @ v, weights


def restricted_self_attention__keys_from_the_query_table(x, W_Q, W_K, W_V, width):
    q = x @ W_Q
    k = x @ W_Q  # here
    v = x @ W_V
    scores = q @ k.transpose(1, 2) / math.sqrt(W_K.shape[1])
    idx = torch.arange(x.shape[1])
    allowed = torch.abs(idx[None] - idx[:, None]) <= width
    weights = scores.masked_fill(allowed.logical_not(), -math.inf).softmax(dim=-1)
    return weights @ v, weights


def restricted_self_attention__the_mask_upside_down(x, W_Q, W_K, W_V, width):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    i = torch.arange(x.shape[1])
    mask = (i[:, None] - i).abs() <= width  # here
    scores = scores.masked_fill(mask, float("-inf"))  # here
    weights = scores.softmax(-1)
    return weights @ v, weights


# ----------------------------------------------------------------------------------------------------------- layer_norm


def layer_norm__unbiased(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, keepdim=True)  # here
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


def layer_norm__eps_outside_the_root(x, weight, bias, eps):
    mu = x.mean(-1, keepdim=True)
    sigma = ((x - mu) ** 2).mean(-1, keepdim=True).sqrt()  # here
    normed = (x - mu) / (sigma + eps)  # here
    return normed * weight + bias


def layer_norm__no_root(x, weight, bias, eps):
    mu = x.mean(-1, keepdim=True)
    var = (x - mu).pow(2).mean(-1, keepdim=True)
    return weight * (x - mu) / (var + eps) + bias  # here


def layer_norm__over_the_sentence(x, weight, bias, eps):
    m = x.mean(dim=0, keepdim=True)  # here
    v = x.var(dim=-1, keepdim=True, unbiased=False)
    x_hat = (x - m) * (v + eps).rsqrt()
    return x_hat * weight + bias


def layer_norm__bias_before_the_gain(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return (centred * scale + bias) * weight  # here


def layer_norm__not_centred(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    var = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    normal = x / torch.sqrt(var + eps)  # here
    return normal * weight + bias


# ---------------------------------------------------------------------------------------------------------- beam_search


def beam_search__penalty_counts_bos(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    open_ones = [([bos], 0.0)]
    ended = []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_ones]))
        candidates = []
        for (tokens, total), row in zip(open_ones, log_p, strict=True):
            for token, value in enumerate(row.tolist()):
                candidates.append((tokens + [token], total + value))
        candidates.sort(key=lambda pair: pair[1], reverse=True)
        kept = candidates[:n_beams]
        ended += [c for c in kept if c[0][-1] == eos]
        open_ones = [c for c in kept if c[0][-1] != eos]
        if not open_ones:
            break

    def score(candidate):
        tokens, total = candidate
        return total / ((5 + len(tokens)) / 6) ** length_penalty  # here

    best = max(ended + open_ones, key=score)
    return torch.tensor(best[0][1:]), score(best)


def beam_search__open_ones_do_not_compete(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    tokens = torch.tensor([[bos]])
    totals = torch.zeros(1)
    done = []
    for _ in range(max_length):
        all_totals = totals[:, None] + next_log_p(tokens)
        vocab = all_totals.shape[1]
        best, index = all_totals.flatten().topk(n_beams)
        rows, new = index // vocab, index % vocab
        tokens = torch.cat([tokens[rows], new[:, None]], dim=1)
        ends = new == eos
        for hypothesis, total in zip(tokens[ends], best[ends], strict=True):
            done.append((hypothesis[1:], total.item()))
        tokens, totals = tokens[~ends], best[~ends]
        if len(tokens) == 0:
            break
    if not done:  # here
        done = [(t[1:], s.item()) for t, s in zip(tokens, totals, strict=True)]  # here
    scored = [(t, s / ((5 + len(t)) / 6) ** length_penalty) for t, s in done]
    return max(scored, key=lambda pair: pair[1])


def beam_search__beams_of_each_hypothesis(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    alive = [([bos], 0.0)]
    finished = []
    while alive and len(alive[0][0]) <= max_length:
        scores = next_log_p(torch.tensor([h for h, _ in alive]))
        grown = []
        for i, (h, s) in enumerate(alive):
            values, ids = scores[i].topk(n_beams)
            grown += [(h + [t], s + v) for v, t in zip(values.tolist(), ids.tolist(), strict=True)]
        grown = sorted(grown, key=lambda g: g[1])[:n_beams]  # here
        alive = [g for g in grown if g[0][-1] != eos]
        finished += [g for g in grown if g[0][-1] == eos]
    pool = [(h[1:], s / ((5 + len(h) - 1) / 6) ** length_penalty) for h, s in finished + alive]
    h, s = max(pool, key=lambda p: p[1])
    return torch.tensor(h), s


def beam_search__no_penalty_power(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    beams = [(0.0, [bos])]
    complete = []
    for _ in range(max_length):
        if not beams:
            break
        log_p = next_log_p(torch.tensor([b for _, b in beams]))
        total = torch.tensor([s for s, _ in beams]).unsqueeze(1) + log_p
        top = torch.topk(total.view(-1), n_beams)
        new_beams = []
        for s, flat in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            sentence = beams[flat // total.size(1)][1] + [flat % total.size(1)]
            if sentence[-1] == eos:
                complete.append((s, sentence))
            else:
                new_beams.append((s, sentence))
        beams = new_beams
    best_score, best = -float("inf"), None
    for s, sentence in complete + beams:
        n = len(sentence) - 1
        normed = s / ((5 + n) / 6) * length_penalty  # here
        if normed > best_score:
            best_score, best = normed, sentence
    return torch.tensor(best[1:]), best_score


def beam_search__old_total_forgotten(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    beams = [(0.0, [bos])]
    complete = []
    for _ in range(max_length):
        if not beams:
            break
        log_p = next_log_p(torch.tensor([b for _, b in beams]))
        pool = []
        for (old, sentence), row in zip(beams, log_p.tolist(), strict=True):
            for token, value in enumerate(row):
                pool.append((value, sentence + [token]))  # here
        pool = sorted(pool, reverse=True)[:n_beams]
        complete.extend(p for p in pool if p[1][-1] == eos)
        beams = [p for p in pool if p[1][-1] != eos]
    final = [(s / ((len(t) + 4) / 6) ** length_penalty, t[1:]) for s, t in complete + beams]
    score, tokens = max(final)
    return torch.tensor(tokens), score


# ------------------------------------------------------------------------------------------------------- test_for_leaks


def test_for_leaks__only_the_last_position(model, x):
    before = model(x)
    n = x.shape[1]
    for size in (1.0, 100.0):
        generator = torch.Generator().manual_seed(0)
        for i in range(n - 1, n):  # here
            changed = x.clone()
            changed[:, i:] = size * torch.randn(x[:, i:].shape, generator=generator)
            after = model(changed)
            a, b = before[:, :i], after[:, :i]
            if not torch.allclose(a, b, rtol=1e-6, atol=1e-5, equal_nan=True):
                return True
    return False


def test_for_leaks__the_position_itself_is_future(model, x):
    base = model(x)
    torch.manual_seed(1)
    for scale in [1, 10, 100]:
        for _ in range(3):
            noise = torch.randn_like(x) * scale
            for t in range(1, x.size(1)):
                other = torch.cat([x[:, :t], noise[:, t:]], dim=1)
                out = model(other)
                diff = (out[:, : t + 1] - base[:, : t + 1]).abs().nan_to_num(0)  # here
                if diff.max() > 5e-5:
                    return True
    return False


def test_for_leaks__small_changes_alone(model, x):
    y = model(x)
    torch.manual_seed(0)
    for cut in range(1, x.shape[1]):
        for _ in range(4):
            z = x.clone()
            z[:, cut:] = torch.randn_like(z[:, cut:])  # here
            moved = (model(z)[:, :cut] - y[:, :cut]).abs()
            if bool((moved > 5e-5).any()):
                return True
    return False


def test_for_leaks__the_other_way_round(model, x):
    y = model(x)
    torch.manual_seed(0)
    for cut in range(1, x.shape[1]):
        for size in (1.0, 100.0):
            z = x.clone()
            z[:, cut:] = size * torch.randn_like(z[:, cut:])
            a, b = y[:, :cut], model(z)[:, :cut]
            same = torch.isclose(a, b, atol=3e-5, rtol=1e-6, equal_nan=True).all()
            if same:  # here
                return True
    return False


# ----------------------------------------------------------------------------------------------------------- told_apart


def told_apart__divided_by_n(printed, repaired):
    difference = printed - repaired
    mean = difference.mean()
    error = difference.std() / len(difference)  # here
    return mean.item(), (mean / error).item()


def told_apart__standard_deviation_with_n(printed, repaired):
    d = printed - repaired
    n = d.numel()
    s = ((d - d.mean()) ** 2).sum() / n  # here
    se = torch.sqrt(s / n)
    return float(d.mean()), float(d.mean() / se)


def told_apart__not_paired(printed, repaired):
    n = len(printed)
    gap = printed.mean() - repaired.mean()
    spread = torch.sqrt(printed.var() + repaired.var())  # here
    return gap.item(), (gap / (spread / math.sqrt(n))).item()


def told_apart__repaired_minus_printed(printed, repaired):
    diffs = [b - a for a, b in zip(printed.tolist(), repaired.tolist(), strict=True)]  # here
    n = len(diffs)
    mean = sum(diffs) / n
    var = sum((x - mean) ** 2 for x in diffs) / (n - 1)
    return mean, mean / math.sqrt(var / n)


def told_apart__variance_for_deviation(printed, repaired):
    d = printed - repaired
    se = d.var() / math.sqrt(d.shape[0])  # here
    return d.mean().item(), (d.mean() / se).item()


# ======================================================================================================================
# A second set, of five more exercises, written when the search was finished: nothing was changed in it afterwards.


def logsumexp__maximum_not_added_back(scores):
    m, _ = scores.max(dim=-1, keepdim=True)
    total = torch.exp(scores - m).sum(dim=-1)
    return torch.log(total)  # here


def logsumexp__over_the_first_axis(scores):
    top = scores.amax(-1)
    shifted = (scores - top.unsqueeze(-1)).exp()
    return shifted.sum(0).log() + top  # here


def logsumexp__the_largest_of_all_rows(scores):
    top = scores.max()  # here
    return torch.log(torch.exp(scores - top).sum(dim=-1)) + top


def padding_mask__one_too_many(lengths, n, in_front=False):
    positions = torch.arange(n).view(1, 1, n)
    if in_front:
        return positions >= n - lengths.view(-1, 1, 1)
    return positions <= lengths.view(-1, 1, 1)  # here


def padding_mask__true_for_padding(lengths, n, in_front=False):
    where_words_end = lengths[:, None, None]
    mask = where_words_end <= torch.arange(n)  # here
    return mask.flip(-1) if in_front else mask


def padding_mask__no_query_axis(lengths, n, in_front=False):
    row = torch.arange(n)[None]
    row = row.flip(-1) if in_front else row
    return row < lengths[:, None]  # here


def byte_pairs__test_words_teach(train, test, n_merges):
    def merge(word, pair):
        out, i = [], 0
        while i < len(word):
            if tuple(word[i : i + 2]) == pair:
                out.append(word[i] + word[i + 1])
                i += 2
            else:
                out.append(word[i])
                i += 1
        return out

    learned = [list(w) for w in train]
    cut = [list(w) for w in test]
    for _ in range(n_merges):
        counts = {}
        for word in learned + cut:  # here
            for pair in zip(word, word[1:], strict=False):
                counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda p: (-counts[p], p))
        learned = [merge(w, best) for w in learned]
        cut = [merge(w, best) for w in cut]
    return cut


def byte_pairs__ties_to_the_last(train, test, n_merges):
    words, others = [list(w) for w in train], [list(w) for w in test]
    for _ in range(n_merges):
        pairs = [(a, b) for w in words for a, b in zip(w[:-1], w[1:], strict=True)]
        best = max(set(pairs), key=lambda pair: (pairs.count(pair), pair))  # here
        for group in (words, others):
            for w in group:
                i = 0
                while i + 1 < len(w):
                    if (w[i], w[i + 1]) == best:
                        w[i : i + 2] = [w[i] + w[i + 1]]
                    i += 1
    return others


def byte_pairs__one_merge_a_word(train, test, n_merges):
    def join(pieces, a, b):
        i = 0
        while i < len(pieces) - 1:
            if pieces[i] == a and pieces[i + 1] == b:
                pieces = pieces[:i] + [a + b] + pieces[i + 2 :]
                break  # here
            i += 1
        return pieces

    training = [list(w) for w in train]
    result = [list(w) for w in test]
    for _ in range(n_merges):
        table = {}
        for w in training:
            for i in range(len(w) - 1):
                table[w[i], w[i + 1]] = table.get((w[i], w[i + 1]), 0) + 1
        a, b = sorted(table, key=lambda k: (-table[k], k))[0]
        training = [join(w, a, b) for w in training]
        result = [join(w, a, b) for w in result]
    return result


def adamw_step__eps_in_the_root(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    b1, b2 = betas
    m = b1 * m + (1 - b1) * gradient
    v = b2 * v + (1 - b2) * gradient.square()
    m_hat, v_hat = m / (1 - b1**step), v / (1 - b2**step)
    update = m_hat / torch.sqrt(v_hat + eps)  # here
    if parameter.dim() >= 2:
        update = update + weight_decay * parameter
    return parameter - lr * update, m, v


def adamw_step__everything_decays(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    new_m = betas[0] * m + (1 - betas[0]) * gradient
    new_v = betas[1] * v + (1 - betas[1]) * gradient**2
    first = new_m / (1 - betas[0] ** step)
    second = new_v / (1 - betas[1] ** step)
    decay = weight_decay * parameter if parameter.ndim > 0 else 0.0  # here
    return parameter - lr * (first / (second.sqrt() + eps) + decay), new_m, new_v


def adamw_step__the_square_forgotten(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    beta1, beta2 = betas
    m = m * beta1 + gradient * (1 - beta1)
    v = v * beta2 + gradient.abs() * (1 - beta2)  # here
    corrected_m = m / (1 - beta1**step)
    corrected_v = v / (1 - beta2**step)
    new = parameter - lr * corrected_m / (corrected_v**0.5 + eps)
    if len(parameter.shape) > 1:
        new = new - lr * weight_decay * parameter
    return new, m, v


def contrastive_loss__multiplied_by_the_temperature(context, targets, negatives, temperature):
    everything = torch.cat([targets[:, None], negatives], dim=1)
    similar = F.cosine_similarity(context[:, None, :], everything, dim=-1)
    logits = similar * temperature  # here
    return F.cross_entropy(logits, torch.zeros(len(context), dtype=torch.long))


def contrastive_loss__the_target_left_out_below(context, targets, negatives, temperature):
    c = F.normalize(context, dim=-1)
    right = (c * F.normalize(targets, dim=-1)).sum(-1) / temperature
    wrong = torch.einsum("nd,nkd->nk", c, F.normalize(negatives, dim=-1)) / temperature
    return (torch.logsumexp(wrong, dim=-1) - right).mean()  # here


def contrastive_loss__a_sum_over_rows(context, targets, negatives, temperature):
    candidates = torch.cat([targets.unsqueeze(1), negatives], dim=1)
    cos = torch.cosine_similarity(context.unsqueeze(1), candidates, dim=2)
    log_share = torch.log_softmax(cos / temperature, dim=1)
    return -log_share[:, 0].sum()  # here
