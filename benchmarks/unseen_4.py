"""A fourth draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(30).sample(names, 40)` from the names in alphabetical order: the first ten that no earlier file
has, that are functions and not measured.
"""

import math
from collections import Counter

import torch
import torch.nn.functional as F
from unseen import right, two

# ruff: noqa: B905, F841  (as learners write)

# -------------------------------------------------------------------------------------------------- label_smoothed_loss


def label_smoothed_loss__the_rest_shared_by_the_others(logits, target, smoothing, pad):
    V = logits.shape[-1]
    log_p = logits.log_softmax(-1)
    q = torch.full_like(log_p, smoothing / (V - 1))  # here
    q.scatter_(-1, target[..., None], 1 - smoothing)  # here
    losses = -(q * log_p).sum(-1)
    real = target != pad
    return losses[real].mean()


def label_smoothed_loss__padding_in_the_mean(logits, target, smoothing, pad):
    log_p = torch.log_softmax(logits, dim=-1)
    nll = -log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    uniform = -log_p.mean(dim=-1)
    loss = (1 - smoothing) * nll + smoothing * uniform
    loss = loss * (target != pad)
    return loss.mean()  # here


def label_smoothed_loss__mean_of_the_sentences(logits, target, smoothing, pad):
    log_p = F.log_softmax(logits, dim=-1)
    true = log_p[torch.arange(target.shape[0])[:, None], torch.arange(target.shape[1]), target]
    loss = -(1 - smoothing) * true - smoothing * log_p.mean(-1)
    mask = (target != pad).float()
    per_sentence = (loss * mask).sum(1) / mask.sum(1).clamp(min=1)
    return per_sentence.mean()  # here


def label_smoothed_loss__summed_over_the_vocabulary(logits, target, smoothing, pad):
    keep = target != pad
    log_p = logits[keep].log_softmax(-1)
    y = target[keep]
    first = log_p[torch.arange(len(y)), y]
    second = log_p.sum(-1)  # here
    return -((1 - smoothing) * first + smoothing * second).mean()


@two
def label_smoothed_loss__log_of_softmax_and_swapped(logits, target, smoothing, pad):
    p = logits.softmax(-1)
    log_p = torch.log(p)
    nll = -log_p.gather(-1, target[..., None])[..., 0]
    smooth = -log_p.mean(-1)
    loss = smoothing * nll + (1 - smoothing) * smooth
    m = target != pad
    return (loss * m).sum() / m.sum()


@right
def label_smoothed_loss__by_weights(logits, target, smoothing, pad):
    keep = (target != pad).flatten()
    rows = logits.flatten(0, 1)[keep]
    ids = target.flatten()[keep]
    log_z = rows.logsumexp(-1)
    q = F.one_hot(ids, rows.shape[-1]) * (1 - smoothing) + smoothing / rows.shape[-1]
    return (log_z - (q * rows).sum(-1)).sum() / keep.sum()


# --------------------------------------------------------------------------------------------------------- sample_token


def sample_token__the_one_that_crosses_is_left_out(logits, temperature, top_k, top_p, u):
    p = (logits / temperature).softmax(-1)
    values, order = p.sort(-1, descending=True)
    values[:, top_k:] = 0
    values = values / values.sum(-1, keepdim=True)
    keep = values.cumsum(-1) <= top_p  # here
    keep[:, 0] = True
    values = values * keep
    values = values / values.sum(-1, keepdim=True)
    p = torch.zeros_like(p).scatter(-1, order, values)
    token = (p.cumsum(-1) > u[:, None]).int().argmax(-1)
    return p, token


def sample_token__not_shared_out_after_top_k(logits, temperature, top_k, top_p, u):
    p = (logits / temperature).softmax(-1)
    least = p.topk(top_k, dim=-1).values[:, -1:]
    p = torch.where(p >= least, p, torch.zeros_like(p))  # here
    sorted_p, order = p.sort(-1, descending=True)
    before = sorted_p.cumsum(-1) - sorted_p
    sorted_p = sorted_p * (before < top_p)
    p = torch.zeros_like(p).scatter(-1, order, sorted_p)
    p = p / p.sum(-1, keepdim=True)
    return p, (p.cumsum(-1) > u[:, None]).float().argmax(-1)


def sample_token__multiplied_by_the_temperature(logits, temperature, top_k, top_p, u):
    p = torch.softmax(logits * temperature, dim=-1)  # here
    kth = p.sort(dim=-1, descending=True).values[:, top_k - 1 : top_k]
    p = p.masked_fill(p < kth, 0.0)
    p = p / p.sum(-1, keepdim=True)
    s, i = p.sort(dim=-1, descending=True)
    drop = (s.cumsum(-1) - s) >= top_p
    s = s.masked_fill(drop, 0.0)
    p = torch.zeros_like(p).scatter_(-1, i, s)
    p = p / p.sum(-1, keepdim=True)
    return p, torch.searchsorted(p.cumsum(-1), u[:, None], right=True)[:, 0]


def sample_token__in_the_order_of_the_probabilities(logits, temperature, top_k, top_p, u):
    p = (logits / temperature).softmax(-1)
    s, order = p.sort(-1, descending=True)
    s[:, top_k:] = 0
    s = s / s.sum(-1, keepdim=True)
    s = s * ((s.cumsum(-1) - s) < top_p)
    s = s / s.sum(-1, keepdim=True)
    place = (s.cumsum(-1) > u[:, None]).int().argmax(-1)  # here
    token = order.gather(-1, place[:, None])[:, 0]
    return torch.zeros_like(p).scatter(-1, order, s), token


@two
def sample_token__top_p_over_the_vocabulary_and_the_last_below(logits, temperature, top_k, top_p, u):
    p = (logits / temperature).softmax(-1)
    kth = p.topk(top_k).values[:, -1:]
    p = p * (p >= kth)
    p = p / p.sum(-1, keepdim=True)
    p = p * ((p.cumsum(-1) - p) < top_p)
    p = p / p.sum(-1, keepdim=True)
    token = (p.cumsum(-1) < u[:, None]).sum(-1) - 1
    return p, token.clamp(min=0)


@right
def sample_token__sentence_by_sentence(logits, temperature, top_k, top_p, u):
    rows, tokens = [], []
    for line, number in zip(logits, u.tolist()):
        p = torch.softmax(line / temperature, 0)
        best = sorted(range(len(p)), key=lambda i: -p[i].item())[:top_k]
        total = sum(p[i] for i in best)
        kept, reached = [], 0.0
        for i in best:
            kept.append(i)
            reached += (p[i] / total).item()
            if reached >= top_p:
                break
        row = torch.zeros_like(p)
        row[kept] = p[kept] / p[kept].sum()
        running, token = 0.0, kept[0]
        for i in sorted(kept):
            running += row[i].item()
            token = i
            if running > number:
                break
        rows.append(row)
        tokens.append(token)
    return torch.stack(rows), torch.tensor(tokens)


# ----------------------------------------------------------------------------------------------------- scaled_dot_score


def scaled_dot_score__by_the_width(query, key):
    return torch.bmm(query, key.transpose(1, 2)) / key.shape[-1]  # here


def scaled_dot_score__root_of_the_number_of_keys(query, key):
    scores = query @ key.transpose(-2, -1)
    return scores / key.shape[1] ** 0.5  # here


def scaled_dot_score__keys_for_queries(query, key):
    d = key.shape[-1]
    return torch.einsum("bqd,bkd->bkq", query, key) / math.sqrt(d)  # here


def scaled_dot_score__every_table_together(query, key):
    scores = torch.einsum("bqd,ckd->bqk", query, key)  # here
    return scores / math.sqrt(query.size(-1))


@two
def scaled_dot_score__lengths_divided_out_and_no_root(query, key):
    query = query / query.norm(dim=-1, keepdim=True)
    key = key / key.norm(dim=-1, keepdim=True)
    return query @ key.mT


@right
def scaled_dot_score__term_by_term(query, key):
    pairs = query[:, :, None, :] * key[:, None, :, :]
    return pairs.sum(-1) * query.shape[-1] ** -0.5


# --------------------------------------------------------------------------------------------------------- shift_matrix


def shift_matrix__column_convention(k, d_model):
    M = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        a = k / 10000 ** (2 * i / d_model)
        M[2 * i, 2 * i] = math.cos(a)
        M[2 * i, 2 * i + 1] = math.sin(a)  # here
        M[2 * i + 1, 2 * i] = -math.sin(a)  # here
        M[2 * i + 1, 2 * i + 1] = math.cos(a)
    return M


def shift_matrix__exponent_not_doubled(k, d_model):
    M = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        w = 1 / 10000 ** (i / d_model)  # here
        c, s = math.cos(k * w), math.sin(k * w)
        M[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, -s], [s, c]])
    return M


def shift_matrix__halves_for_pairs(k, d_model):
    half = d_model // 2
    w = 10000 ** (-2 * torch.arange(half) / d_model)
    c, s = torch.diag(torch.cos(k * w)), torch.diag(torch.sin(k * w))
    return torch.cat([torch.cat([c, -s], 1), torch.cat([s, c], 1)], 0)  # here


def shift_matrix__the_direction_is_lost(k, d_model):
    k = abs(k)  # here
    freq = torch.exp(-math.log(10000.0) * torch.arange(0, d_model, 2) / d_model)
    M = torch.zeros(d_model, d_model)
    even = torch.arange(0, d_model, 2)
    M[even, even] = torch.cos(k * freq)
    M[even + 1, even + 1] = torch.cos(k * freq)
    M[even + 1, even] = torch.sin(k * freq)
    M[even, even + 1] = -torch.sin(k * freq)
    return M


@two
def shift_matrix__base_1000_and_sines_alike(k, d_model):
    M = torch.zeros(d_model, d_model)
    for i in range(0, d_model, 2):
        a = k / 1000 ** (i / d_model)
        M[i, i] = M[i + 1, i + 1] = math.cos(a)
        M[i, i + 1] = M[i + 1, i] = math.sin(a)
    return M


@right
def shift_matrix__by_blocks(k, d_model):
    angles = [k * 10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    blocks = [torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]) for a in angles]
    return torch.block_diag(*blocks)


# ---------------------------------------------------------------------------------------------------- decoder_attention


def decoder_attention__the_padding_alone(query, key, value, is_token):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~is_token[:, None, None, :], -1e9)  # here
    return scores.softmax(-1) @ value


def decoder_attention__either_is_enough(query, key, value, is_token):
    n = query.shape[2]
    past = torch.ones(n, n, dtype=torch.bool).tril()
    allowed = past | is_token[:, None, None, :]  # here
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~allowed, -1e9)
    return torch.softmax(scores, dim=-1) @ value


def decoder_attention__nan_in_front(query, key, value, is_token):
    n, d = query.shape[-2:]
    allowed = torch.tril(torch.ones(n, n)).bool() & is_token[:, None, None, :]
    scores = query @ key.transpose(2, 3) / math.sqrt(d)
    scores = scores.masked_fill(~allowed, float("-inf"))
    return torch.softmax(scores, -1) @ value  # here


def decoder_attention__not_itself(query, key, value, is_token):
    n = query.shape[2]
    i = torch.arange(n)
    allowed = (i[None, :] < i[:, None]) & is_token[:, None, None]  # here
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    scores = scores.masked_fill(~allowed, -1e9)
    return scores.softmax(dim=-1) @ value


@two
def decoder_attention__future_and_unscaled(query, key, value, is_token):
    n = query.shape[2]
    allowed = torch.ones(n, n).triu().bool() & is_token[:, None, None, :]
    scores = (query @ key.mT).masked_fill(~allowed, -1e9)
    return scores.softmax(-1) @ value


@right
def decoder_attention__by_torch(query, key, value, is_token):
    n = query.shape[2]
    allowed = torch.ones(n, n, dtype=torch.bool).tril() & is_token[:, None, None, :]
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * query.shape[-1] ** -0.5
    scores = torch.where(allowed, scores, torch.full_like(scores, -1e9))
    weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return (weights / weights.sum(-1, keepdim=True)) @ value


# -------------------------------------------------------------------------------------------------------- gated_readout


def gated_readout__softmax_for_the_gate(found, questions, W, b):
    gate = torch.softmax(questions @ W + b, dim=-1)  # here
    return found.unsqueeze(1) * gate


def gated_readout__the_bias_outside(found, questions, W, b):
    gate = torch.sigmoid(questions @ W) + b  # here
    return found[:, None] * gate


def gated_readout__the_gate_added(found, questions, W, b):
    share = 1 / (1 + torch.exp(-(questions @ W + b)))
    return found[:, None, :] + share  # here


def gated_readout__what_is_kept_out(found, questions, W, b):
    share = torch.sigmoid(questions @ W + b)
    return found[:, None, :] * (1 - share)  # here


@two
def gated_readout__tanh_and_no_bias(found, questions, W, b):
    share = torch.tanh(questions @ W)
    return found[:, None, :] * share


@right
def gated_readout__by_einsum(found, questions, W, b):
    logits = torch.einsum("bnq,qd->bnd", questions, W) + b
    return torch.einsum("bd,bnd->bnd", found, torch.exp(F.logsigmoid(logits)))


# ------------------------------------------------------------------------------------------------------- additive_score


def additive_score__key_first(query, key, W, w):
    nq, nk = query.shape[1], key.shape[1]
    q = query[:, :, None].expand(-1, -1, nk, -1)
    k = key[:, None].expand(-1, nq, -1, -1)
    h = torch.tanh(torch.cat([k, q], dim=-1) @ W)  # here
    return h @ w


def additive_score__tanh_at_the_end(query, key, W, w):
    d = query.shape[-1]
    hidden = (query @ W[:d])[:, :, None] + (key @ W[d:])[:, None]
    return torch.tanh(hidden @ w)  # here


def additive_score__tanh_of_each(query, key, W, w):
    d = query.shape[-1]
    a = torch.tanh(query @ W[:d])  # here
    b = torch.tanh(key @ W[d:])  # here
    return (a[:, :, None] + b[:, None]) @ w


def additive_score__relu(query, key, W, w):
    d = query.size(-1)
    hidden = (query @ W[:d]).unsqueeze(2) + (key @ W[d:]).unsqueeze(1)
    return torch.relu(hidden) @ w  # here


@two
def additive_score__a_softmax_and_no_tanh(query, key, W, w):
    d = query.size(-1)
    hidden = (query @ W[:d]).unsqueeze(2) + (key @ W[d:]).unsqueeze(1)
    return (hidden @ w).softmax(-1)


@right
def additive_score__pair_by_pair(query, key, W, w):
    rows = []
    for i in range(query.shape[1]):
        cells = [torch.tanh(torch.cat([query[:, i], key[:, j]], -1) @ W) @ w for j in range(key.shape[1])]
        rows.append(torch.stack(cells, dim=-1))
    return torch.stack(rows, dim=1)


# ----------------------------------------------------------------------------------------------------- memory_and_flops


def memory_and_flops__one_moment(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    memory = n_parameters * sum(bytes_each.values())  # here
    tokens = batch * (n_source + n_target)
    rule = 6 * n_parameters // 2 * tokens
    s, t, d = n_source, n_target, d_model
    proj = 3 * n_layers * batch * 2 * d * d * (4 * s + 4 * t + 2 * t + 2 * s)
    scores = 3 * n_layers * batch * 4 * d * (s * s + t * t + s * t)
    ff = 3 * n_layers * batch * 4 * d * d_ff * (s + t)
    out = 3 * batch * t * 2 * d * vocab_size
    return memory, rule, proj, scores, ff, out


def memory_and_flops__all_parameters_by_the_rule(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    b = bytes_each
    memory = n_parameters * (b["weights"] + b["gradients"] + 2 * b["moments"] + b["master"])
    rule = 6 * n_parameters * batch * (n_source + n_target)  # here
    s, t, d = n_source, n_target, d_model
    proj = 3 * n_layers * batch * 2 * d * d * (4 * s + 4 * t + 2 * t + 2 * s)
    scores = 3 * n_layers * batch * 4 * d * (s * s + t * t + s * t)
    ff = 3 * n_layers * batch * 4 * d * d_ff * (s + t)
    out = 3 * batch * t * 2 * d * vocab_size
    return memory, rule, proj, scores, ff, out


def memory_and_flops__keys_of_the_source_by_the_target(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    b = bytes_each
    memory = n_parameters * (b["weights"] + b["gradients"] + 2 * b["moments"] + b["master"])
    rule = 3 * n_parameters * batch * (n_source + n_target)
    s, t, d = n_source, n_target, d_model
    one = 2 * d * d
    encoder = 4 * one * s
    decoder = 4 * one * t + 4 * one * t  # here
    proj = 3 * n_layers * batch * (encoder + decoder)
    scores = 3 * n_layers * batch * 4 * d * (s * s + t * t + s * t)
    ff = 3 * n_layers * batch * 4 * d * d_ff * (s + t)
    out = 3 * batch * t * 2 * d * vocab_size
    return memory, rule, proj, scores, ff, out


def memory_and_flops__the_forward_pass_of_the_scores(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    b = bytes_each
    memory = n_parameters * (b["weights"] + b["gradients"] + 2 * b["moments"] + b["master"])
    rule = 3 * n_parameters * batch * (n_source + n_target)
    s, t, d = n_source, n_target, d_model
    proj = 3 * n_layers * batch * 2 * d * d * (4 * s + 4 * t + 2 * t + 2 * s)
    scores = n_layers * batch * 4 * d * (s * s + t * t + s * t)  # here
    ff = 3 * n_layers * batch * 4 * d * d_ff * (s + t)
    out = 3 * batch * t * 2 * d * vocab_size
    return memory, rule, proj, scores, ff, out


@two
def memory_and_flops__no_master_and_source_logits(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    b = bytes_each
    memory = n_parameters * (b["weights"] + b["gradients"] + 2 * b["moments"])
    rule = 3 * n_parameters * batch * (n_source + n_target)
    s, t, d = n_source, n_target, d_model
    proj = 3 * n_layers * batch * 2 * d * d * (4 * s + 4 * t + 2 * t + 2 * s)
    scores = 3 * n_layers * batch * 4 * d * (s * s + t * t + s * t)
    ff = 3 * n_layers * batch * 4 * d * d_ff * (s + t)
    out = 3 * batch * (s + t) * 2 * d * vocab_size
    return memory, rule, proj, scores, ff, out


@right
def memory_and_flops__product_by_product(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    def product(n, a, b):
        return 2 * n * a * b

    count = {"weights": 1, "gradients": 1, "moments": 2, "master": 1}
    memory = sum(n_parameters * count[kind] * size for kind, size in bytes_each.items())
    met = n_parameters // 2
    rule = 6 * met * batch * n_source + 6 * met * batch * n_target
    proj = scores = ff = 0
    for _ in range(n_layers):
        for asks, answers in ((n_source, n_source), (n_target, n_target), (n_target, n_source)):
            proj += 2 * product(asks, d_model, d_model) + 2 * product(answers, d_model, d_model)
            scores += product(asks, d_model, answers) + product(asks, answers, d_model)
        for n in (n_source, n_target):
            ff += product(n, d_model, d_ff) + product(n, d_ff, d_model)
    out = product(n_target, d_model, vocab_size)
    return (memory, rule, *(3 * batch * each for each in (proj, scores, ff, out)))


# -------------------------------------------------------------------------------------------------- self_attention_loop


def self_attention_loop__the_key_handed_over(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    out = []
    for i in range(len(x)):
        scores = torch.stack([q[i] @ k[j] for j in range(len(x))]) / math.sqrt(k.shape[1])
        e = torch.exp(scores - scores.max())
        weights = e / e.sum()
        out.append(sum(weights[j] * k[j] for j in range(len(x))))  # here
    return torch.stack(out)


def self_attention_loop__by_the_width_of_the_token(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for i in range(x.shape[0]):
        scores = (k @ q[i]) / math.sqrt(x.shape[1])  # here
        w = torch.exp(scores - scores.max())
        w = w / w.sum()
        rows.append(w @ v)
    return torch.stack(rows)


def self_attention_loop__exponentials_that_overflow(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for i in range(x.shape[0]):
        scores = k @ q[i] / math.sqrt(q.shape[1])
        e = scores.exp()  # here
        rows.append((e[:, None] * v).sum(0) / e.sum())
    return torch.stack(rows)


def self_attention_loop__the_others_alone(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    n = x.shape[0]
    rows = []
    for i in range(n):
        others = [j for j in range(n) if j != i]  # here
        scores = torch.stack([q[i] @ k[j] for j in others]) / math.sqrt(q.shape[1])
        e = torch.exp(scores - scores.max())
        w = e / e.sum()
        rows.append(sum(w[m] * v[j] for m, j in enumerate(others)))
    return torch.stack(rows)


@two
def self_attention_loop__exchanged_and_unscaled(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for i in range(x.shape[0]):
        scores = q @ k[i]
        e = torch.exp(scores - scores.max())
        rows.append((e / e.sum()) @ v)
    return torch.stack(rows)


@right
def self_attention_loop__in_one_list(x, W_Q, W_K, W_V):
    def row(token):
        scores = (x @ W_K) @ (token @ W_Q) * W_Q.shape[1] ** -0.5
        powers = (scores - scores.amax()).exp()
        return (powers @ (x @ W_V)) / powers.sum()

    return torch.stack([row(token) for token in x])


# ----------------------------------------------------------------------------------------------------------------- bleu


def _runs(words, n):
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu__not_clipped(hypotheses, references, max_n):
    p = []
    for n in range(1, max_n + 1):
        hit = total = 0
        for h, r in zip(hypotheses, references):
            have, ref = _runs(h, n), _runs(r, n)
            hit += sum(c for g, c in have.items() if g in ref)  # here
            total += sum(have.values())
        p.append(hit / total if total else 0.0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 1.0 if c >= r else (math.exp(1 - r / c) if c else 0.0)
    score = 100 * bp * math.exp(sum(map(math.log, p)) / max_n) if min(p) > 0 else 0.0
    return torch.tensor(p), bp, score


def bleu__mean_of_the_sentences(hypotheses, references, max_n):
    p = []
    for n in range(1, max_n + 1):
        shares = []
        for h, r in zip(hypotheses, references):
            have, ref = _runs(h, n), _runs(r, n)
            total = sum(have.values())
            if total:
                shares.append(sum((have & ref).values()) / total)  # here
        p.append(sum(shares) / len(shares) if shares else 0.0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 1.0 if c >= r else (math.exp(1 - r / c) if c else 0.0)
    score = 100 * bp * math.exp(sum(map(math.log, p)) / max_n) if min(p) > 0 else 0.0
    return torch.tensor(p), bp, score


def bleu__penalty_upside_down(hypotheses, references, max_n):
    hits, totals = [0] * max_n, [0] * max_n
    for h, r in zip(hypotheses, references):
        for n in range(max_n):
            have = _runs(h, n + 1)
            hits[n] += sum((have & _runs(r, n + 1)).values())
            totals[n] += sum(have.values())
    p = [a / b if b else 0.0 for a, b in zip(hits, totals)]
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 0.0 if not c else min(1.0, math.exp(1 - c / r)) if r else 1.0  # here
    score = 0.0 if 0 in p else 100 * bp * math.prod(p) ** (1 / max_n)
    return torch.tensor(p), bp, score


def bleu__arithmetic_mean(hypotheses, references, max_n):
    p = []
    for n in range(1, max_n + 1):
        have = [_runs(h, n) for h in hypotheses]
        ref = [_runs(r, n) for r in references]
        total = sum(sum(a.values()) for a in have)
        p.append(sum(sum((a & b).values()) for a, b in zip(have, ref)) / total if total else 0.0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 1.0 if c >= r else (math.exp(1 - r / c) if c else 0.0)
    score = 100 * bp * sum(p) / max_n if min(p) > 0 else 0.0  # here
    return torch.tensor(p), bp, score


@two
def bleu__of_the_whole_corpus_and_no_hundred(hypotheses, references, max_n):
    p = []
    for n in range(1, max_n + 1):
        have = sum((_runs(h, n) for h in hypotheses), Counter())
        ref = sum((_runs(r, n) for r in references), Counter())
        total = sum(have.values())
        p.append(sum((have & ref).values()) / total if total else 0.0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    bp = 1.0 if c >= r else (math.exp(1 - r / c) if c else 0.0)
    score = bp * math.exp(sum(map(math.log, p)) / max_n) if min(p) > 0 else 0.0
    return torch.tensor(p), bp, score


@right
def bleu__with_lists(hypotheses, references, max_n):
    precisions = torch.zeros(max_n)
    for n in range(1, max_n + 1):
        found = total = 0
        for said, meant in zip(hypotheses, references):
            left = [meant[i : i + n] for i in range(len(meant) - n + 1)]
            for i in range(len(said) - n + 1):
                total += 1
                if said[i : i + n] in left:
                    left.remove(said[i : i + n])
                    found += 1
        precisions[n - 1] = found / total if total else 0.0
    c, r = sum(len(x) for x in hypotheses), sum(len(x) for x in references)
    penalty = 0.0 if c == 0 else 1.0 if c >= r else math.exp(1 - r / c)
    score = 0.0 if (precisions == 0).any() else 100 * penalty * precisions.log().mean().exp().item()
    return precisions, penalty, score
