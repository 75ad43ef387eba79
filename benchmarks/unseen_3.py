"""A third draw of wrong answers: four with one mistake each, two with two, and a right one, to ten exercises.

Drawn by `random.Random(29).sample(names, 11)` from the names in alphabetical order, without those of `unseen_1.py`
and `unseen_2.py`; the first, `train_translator`, is measured and not compared, and is left out.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

from attncourse_lessons.l14_errata_lab.exercises.reviewed_lm import Attention, FeedForward

# ruff: noqa: B905, RUF005, RUF059, SIM300, SIM108  (as learners write)

# -------------------------------------------------------------------------------------------------------- average_heads


def average_heads__heads_that_lie_apart(weight, n_heads, n_kv_heads):
    d_head = weight.shape[0] // n_heads
    group = n_heads // n_kv_heads
    heads = weight.reshape(group, n_kv_heads, d_head, -1)  # here
    return heads.mean(dim=0).reshape(n_kv_heads * d_head, -1)  # here


def average_heads__summed(weight, n_heads, n_kv_heads):
    heads = weight.view(n_kv_heads, n_heads // n_kv_heads, -1, weight.shape[1])
    return heads.sum(dim=1).flatten(0, 1)  # here


def average_heads__the_first_of_each_group(weight, n_heads, n_kv_heads):
    d_head = weight.size(0) // n_heads
    per_group = n_heads // n_kv_heads
    heads = weight.view(n_kv_heads, per_group, d_head, weight.size(1))
    return heads[:, 0].reshape(-1, weight.size(1))  # here


def average_heads__rows_within_a_head(weight, n_heads, n_kv_heads):
    rows, d_model = weight.shape
    d_head = rows // n_heads
    group = n_heads // n_kv_heads
    new = weight.reshape(n_kv_heads * d_head, group, d_model)  # here
    return new.mean(1)


@two
def average_heads__apart_and_summed(weight, n_heads, n_kv_heads):
    d_head = weight.shape[0] // n_heads
    heads = weight.reshape(n_heads // n_kv_heads, n_kv_heads, d_head, -1)
    return heads.sum(dim=0).reshape(n_kv_heads * d_head, -1)


@two
def average_heads__over_the_groups_and_as_many_heads_as_before(weight, n_heads, n_kv_heads):
    d_head = weight.shape[0] // n_heads
    group = n_heads // n_kv_heads
    heads = weight.view(n_kv_heads, group, d_head, -1)
    mean = heads.mean(dim=0, keepdim=True).expand_as(heads)
    return mean.reshape(weight.shape)


@right
def average_heads__by_a_matrix(weight, n_heads, n_kv_heads):
    d_head, group = weight.shape[0] // n_heads, n_heads // n_kv_heads
    pool = torch.kron(torch.eye(n_kv_heads), torch.full((1, group), 1 / group))
    return torch.kron(pool, torch.eye(d_head)).to(weight.dtype) @ weight


# ----------------------------------------------------------------------------------------------- repair_cross_attention


def repair_cross_attention__not_scaled(Z, H, W_Q, W_K, W_V):
    scores = (Z @ W_Q) @ (H @ W_K).T  # here
    weights = torch.softmax(scores, dim=-1)  # here
    return weights @ (H @ W_V), weights


def repair_cross_attention__over_the_decoders_words(Z, H, W_Q, W_K, W_V):
    q, k, v = Z @ W_Q, H @ W_K, H @ W_V
    weights = torch.softmax(q @ k.mT / math.sqrt(k.shape[-1]), 0)  # here
    return weights @ v, weights


def repair_cross_attention__scaled_by_the_model(Z, H, W_Q, W_K, W_V):
    table = Z @ W_Q @ (H @ W_K).mT
    table = torch.softmax(table / math.sqrt(Z.shape[1]), -1)  # here
    return table @ (H @ W_V), table


def repair_cross_attention__values_of_the_decoder(Z, H, W_Q, W_K, W_V):
    Q = Z @ W_Q
    K = H @ W_K
    V = Z @ W_V  # here
    weights = F.softmax(Q @ K.transpose(-2, -1) / K.size(-1) ** 0.5, dim=-1)
    return weights @ V, weights


@two
def repair_cross_attention__not_scaled_and_over_the_decoders_words(Z, H, W_Q, W_K, W_V):
    weights = torch.softmax((Z @ W_Q) @ (H @ W_K).mT, dim=0)
    return weights @ (H @ W_V), weights


@two
def repair_cross_attention__no_root_and_scores_handed_back(Z, H, W_Q, W_K, W_V):
    scores = (Z @ W_Q) @ (H @ W_K).mT / W_K.shape[1]
    return scores.softmax(-1) @ (H @ W_V), scores


@right
def repair_cross_attention__one_matrix_and_word_by_word(Z, H, W_Q, W_K, W_V):
    M = W_Q @ W_K.T * W_Q.shape[1] ** -0.5
    rows = [torch.exp(s - torch.logsumexp(s, 0)) for s in torch.einsum("td,de,se->ts", Z, M, H)]
    table = torch.stack(rows)
    return (table @ H) @ W_V, table


# --------------------------------------------------------------------------------------------------------- padding_mask


def padding_mask__one_too_many(lengths, n, in_front=False):
    pos = torch.arange(n)
    if in_front:
        mask = pos >= (n - lengths).unsqueeze(1)
    else:
        mask = pos <= lengths.unsqueeze(1)  # here
    return mask.unsqueeze(1)


def padding_mask__in_front_not_from_the_end(lengths, n, in_front=False):
    index = torch.arange(n)[None, :]
    if in_front:
        mask = index >= lengths[:, None]  # here
    else:
        mask = index < lengths[:, None]
    return mask[:, None, :]


def padding_mask__true_at_the_padding(lengths, n, in_front=False):
    positions = torch.arange(n).view(1, 1, n)
    lengths = lengths.view(-1, 1, 1)
    if in_front:
        return positions < n - lengths  # here
    return positions >= lengths  # here


def padding_mask__as_wide_as_the_longest(lengths, n, in_front=False):
    n = int(lengths.max())  # here
    mask = torch.arange(n)[None, None] < lengths[:, None, None]
    return mask.flip(-1) if in_front else mask


@two
def padding_mask__one_too_many_and_never_in_front(lengths, n, in_front=False):
    return (torch.arange(n) <= lengths[:, None])[:, None, :]


@two
def padding_mask__no_axis_and_numbers(lengths, n, in_front=False):
    mask = torch.zeros(len(lengths), n)
    for b, length in enumerate(lengths.tolist()):
        if in_front:
            mask[b, n - length :] = 1
        else:
            mask[b, :length] = 1
    return mask


@right
def padding_mask__from_a_triangle(lengths, n, in_front=False):
    rows = torch.ones(n + 1, n).tril(-1).bool()[lengths.long()]
    return torch.stack([row.flip(0) if in_front else row for row in rows]).unsqueeze(-2)


# ---------------------------------------------------------------------------------------------------------- beam_search


def beam_search__score_not_by_length(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    open_, ended = [([bos], 0.0)], []
    for _ in range(max_length):
        if not open_:
            break
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_]))
        totals = torch.tensor([total for _, total in open_])[:, None] + log_p
        best, where = totals.flatten().topk(n_beams)
        kept = [
            (open_[w // log_p.shape[1]][0] + [w % log_p.shape[1]], t) for t, w in zip(best.tolist(), where.tolist())
        ]
        ended += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
    tokens, total = max(ended + open_, key=lambda h: h[1])  # here
    return torch.tensor(tokens[1:]), total / ((5 + len(tokens) - 1) / 6) ** length_penalty


def beam_search__open_ones_do_not_compete(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    beams = [([bos], 0.0)]
    done = []
    for _ in range(max_length):
        if not beams:
            break
        log_p = next_log_p(torch.tensor([b[0] for b in beams]))
        candidates = []
        for (tokens, total), row in zip(beams, log_p.tolist()):
            for token, lp in enumerate(row):
                candidates.append((tokens + [token], total + lp))
        candidates.sort(key=lambda c: c[1], reverse=True)
        beams = []
        for tokens, total in candidates[:n_beams]:
            if tokens[-1] == eos:
                done.append((tokens, total))
            else:
                beams.append((tokens, total))
    if not done:
        done = beams  # here
    scored = [(total / ((5 + len(t) - 1) / 6) ** length_penalty, t) for t, total in done]  # here
    score, tokens = max(scored)
    return torch.tensor(tokens[1:]), score


def beam_search__bos_is_counted(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    tokens, totals = torch.tensor([[bos]]), torch.zeros(1)
    finished = []
    for _ in range(max_length):
        log_p = next_log_p(tokens)
        vocab = log_p.shape[-1]
        totals, index = (totals[:, None] + log_p).reshape(-1).topk(n_beams)
        tokens = torch.cat([tokens[index // vocab], (index % vocab)[:, None]], dim=1)
        over = tokens[:, -1] == eos
        finished += list(zip(tokens[over], totals[over]))
        tokens, totals = tokens[~over], totals[~over]
        if len(tokens) == 0:
            break
    finished += list(zip(tokens, totals))
    scores = [float(t) / ((5 + len(h)) / 6) ** length_penalty for h, t in finished]  # here
    best = scores.index(max(scores))
    return finished[best][0][1:], scores[best]


def beam_search__each_beam_keeps_its_own_best(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    hypotheses, ended = [([bos], 0.0)], []
    for step in range(max_length):
        if not hypotheses:
            break
        log_p = next_log_p(torch.tensor([h for h, _ in hypotheses]))
        new = []
        for (h, total), row in zip(hypotheses, log_p):
            best, tokens = row.topk(n_beams if step == 0 else 1)  # here
            new += [(h + [int(t)], total + float(b)) for b, t in zip(best, tokens)]
        new = sorted(new, key=lambda pair: -pair[1])[:n_beams]
        ended += [pair for pair in new if pair[0][-1] == eos]
        hypotheses = [pair for pair in new if pair[0][-1] != eos]
    best, score = None, -math.inf
    for h, total in ended + hypotheses:
        s = total / ((5 + len(h) - 1) / 6) ** length_penalty
        if s > score:
            best, score = h, s
    return torch.tensor(best[1:]), score


@two
def beam_search__bos_comes_back_and_is_counted(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    beams, done = [([bos], 0.0)], []
    for _ in range(max_length):
        if not beams:
            break
        log_p = next_log_p(torch.tensor([b[0] for b in beams]))
        every = [(h + [t], total + lp) for (h, total), row in zip(beams, log_p.tolist()) for t, lp in enumerate(row)]
        kept = sorted(every, key=lambda c: c[1])[-n_beams:]
        done += [c for c in kept if c[0][-1] == eos]
        beams = [c for c in kept if c[0][-1] != eos]
    score, tokens = max((total / ((5 + len(h)) / 6) ** length_penalty, h) for h, total in done + beams)
    return torch.tensor(tokens), score


@two
def beam_search__no_penalty_and_open_ones_do_not_compete(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    beams, done = [([bos], 0.0)], []
    for _ in range(max_length):
        if not beams:
            break
        log_p = next_log_p(torch.tensor([b[0] for b in beams]))
        every = [(h + [t], total + lp) for (h, total), row in zip(beams, log_p.tolist()) for t, lp in enumerate(row)]
        kept = sorted(every, key=lambda c: c[1])[-n_beams:]
        done += [c for c in kept if c[0][-1] == eos]
        beams = [c for c in kept if c[0][-1] != eos]
    tokens, total = max(done or beams, key=lambda c: c[1])
    return torch.tensor(tokens[1:]), total


@right
def beam_search__with_a_heap_of_dictionaries(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    frontier = {(bos,): 0.0}
    pool = {}
    rounds = 0
    while frontier and rounds < max_length:
        rounds += 1
        prefixes = list(frontier)
        log_p = next_log_p(torch.as_tensor(prefixes, dtype=torch.long)).double()
        grown = {
            (*p, token): frontier[p] + log_p[i, token].item()
            for i, p in enumerate(prefixes)
            for token in range(log_p.shape[1])
        }
        frontier = {}
        for h in sorted(grown, key=grown.get, reverse=True)[:n_beams]:
            (pool if h[-1] == eos else frontier)[h] = grown[h]
    pool.update(frontier)
    best = max(pool, key=lambda h: pool[h] * ((4 + len(h)) / 6) ** -length_penalty)
    return torch.LongTensor(best[1:]), pool[best] * ((4 + len(best)) / 6) ** -length_penalty


# ------------------------------------------------------------------------------------------------------- stack_jacobian


def stack_jacobian__in_the_wrong_order(jacobians):
    d = jacobians.shape[-1]
    total = torch.eye(d)
    for J in jacobians:
        total = total @ (torch.eye(d) + J)  # here
    return total


def stack_jacobian__no_skip(jacobians):
    result = torch.eye(jacobians.shape[-1])
    for J in jacobians:
        result = J @ result  # here
    return result


def stack_jacobian__ones_for_the_identity(jacobians):
    d = jacobians.shape[-1]
    result = torch.eye(d)
    for J in jacobians:
        result = (J + 1) @ result  # here
    return result


def stack_jacobian__summed(jacobians):
    result = torch.eye(jacobians.shape[-1])
    for J in jacobians:
        result = result + J  # here
    return result


@two
def stack_jacobian__no_skip_in_the_wrong_order(jacobians):
    result = torch.eye(jacobians.shape[-1])
    for J in jacobians:
        result = result @ J
    return result


@two
def stack_jacobian__transposed_and_the_first_left_out(jacobians):
    eye = torch.eye(jacobians.shape[-1])
    result = eye
    for J in jacobians[1:]:
        result = (eye + J) @ result
    return result.T


@right
def stack_jacobian__by_vectors_from_the_left(jacobians):
    rows = torch.eye(jacobians.size(-1), dtype=jacobians.dtype)
    for J in reversed(jacobians.unbind()):
        rows = rows + torch.einsum("ij,jk->ik", rows, J)
    return rows


# -------------------------------------------------------------------------------------------------------- window_blocks


def window_blocks__width_is_out(x, width):
    batch, n, d = x.shape
    n_blocks = n // width
    padded = F.pad(x, (0, 0, width, width))
    blocks = torch.stack([padded[:, b * width : (b + 3) * width] for b in range(n_blocks)], dim=1)
    i = torch.arange(n).view(n_blocks, width, 1)
    j = torch.arange(n_blocks).view(-1, 1, 1) * width - width + torch.arange(3 * width)
    mask = ((i - j).abs() < width) & (j >= 0) & (j < n)  # here
    return blocks, mask


def window_blocks__padding_is_seen(x, width):
    batch, n, d = x.shape
    n_blocks = n // width
    padded = torch.cat([torch.zeros(batch, width, d), x, torch.zeros(batch, width, d)], dim=1)
    blocks = padded.unfold(1, 3 * width, width).transpose(2, 3)
    q = torch.arange(width).unsqueeze(1) + width
    k = torch.arange(3 * width).unsqueeze(0)
    mask = (q - k).abs() <= width
    return blocks, mask.expand(n_blocks, width, 3 * width)  # here


def window_blocks__all_of_three_blocks(x, width):
    batch, n, d = x.shape
    n_blocks = n // width
    padded = F.pad(x, (0, 0, width, width))
    blocks = torch.cat([padded[:, i * width : i * width + n].view(batch, n_blocks, width, d) for i in range(3)], dim=2)
    position = torch.arange(-width, 2 * width) + width * torch.arange(n_blocks)[:, None]
    exists = (position >= 0) & (position < n)
    return blocks, exists[:, None, :].repeat(1, width, 1)  # here


def window_blocks__goes_round_at_the_ends(x, width):
    batch, n, d = x.shape
    blocks = x.view(batch, n // width, width, d)
    before, after = blocks.roll(1, dims=1), blocks.roll(-1, dims=1)  # here
    rows = torch.cat([before, blocks, after], dim=2)
    start = torch.arange(n // width)[:, None, None] * width
    query = start + torch.arange(width)[:, None]
    key = start + torch.arange(3 * width) - width
    mask = ((query - key).abs() <= width) & (key >= 0) & (key < n)
    return rows, mask


@two
def window_blocks__width_is_out_and_padding_is_seen(x, width):
    batch, n, d = x.shape
    n_blocks = n // width
    padded = F.pad(x, (0, 0, width, width))
    blocks = torch.stack([padded[:, b * width : (b + 3) * width] for b in range(n_blocks)], dim=1)
    i = torch.arange(n).view(n_blocks, width, 1)
    j = torch.arange(n_blocks).view(-1, 1, 1) * width - width + torch.arange(3 * width)
    return blocks, (i - j).abs() < width


@two
def window_blocks__only_behind_and_in_another_order(x, width):
    batch, n, d = x.shape
    blocks = x.reshape(batch, n // width, width, d)
    nothing = torch.zeros_like(blocks[:, :1])
    before = torch.cat([nothing, blocks[:, :-1]], dim=1)
    after = torch.cat([blocks[:, 1:], nothing], dim=1)
    start = torch.arange(n // width)[:, None, None] * width
    query, key = start + torch.arange(width)[:, None], start + torch.arange(3 * width) - width
    mask = (query - key >= 0) & (query - key <= width) & (key >= 0) & (key < n)
    return torch.cat([blocks, before, after], dim=2), mask


@right
def window_blocks__by_an_index_with_a_row_of_nothing(x, width):
    n = x.shape[1]
    with_nothing = torch.cat((x, x.new_zeros(x.shape[0], 1, x.shape[2])), 1)
    index = torch.arange(-width, n + width).unfold(0, 3 * width, width)  # (n_blocks, 3 * width)
    inside = (0 <= index) * (index <= n - 1)
    rows = with_nothing[:, torch.where(inside, index, n)]
    queries = torch.arange(n).unflatten(0, (-1, width))
    low, high = queries[..., None] - width, queries[..., None] + width
    return rows, ~((index[:, None] < low) | (index[:, None] > high) | ~inside[:, None])


# ----------------------------------------------------------------------------------------------------------- rnn_states


def rnn_states__last_is_the_rectangles(x, lengths, W_x, W_h, b):
    batch, n, _ = x.shape
    h = torch.zeros(batch, W_h.shape[0])
    states = []
    for t in range(n):
        h = torch.tanh(x[:, t] @ W_x + h @ W_h + b)
        states.append(h)
    states = torch.stack(states, dim=1)
    inside = torch.arange(n)[None, :, None] < lengths[:, None, None]
    states = states.masked_fill(~inside, 0)
    return states, states[:, -1]  # here


def rnn_states__padding_is_kept(x, lengths, W_x, W_h, b):
    batch, n, d_in = x.shape
    h = x.new_zeros(batch, W_h.size(0))
    all_h = []
    for t in range(n):
        h = torch.tanh(x[:, t] @ W_x + h @ W_h + b)
        all_h.append(h)
    states = torch.stack(all_h, 1)
    last = states[torch.arange(batch), lengths - 1]
    return states, last  # here


def rnn_states__one_step_too_late(x, lengths, W_x, W_h, b):
    batch, n, _ = x.shape
    h = torch.zeros(batch, W_h.shape[1])
    last = torch.zeros(batch, W_h.shape[1])
    out = []
    for t in range(n):
        h = torch.tanh(x[:, t] @ W_x + h @ W_h + b)
        alive = (t <= lengths).unsqueeze(1)  # here
        last = torch.where(alive, h, last)
        out.append(torch.where(alive, h, torch.zeros_like(h)))
    return torch.stack(out, dim=1), last


def rnn_states__without_the_state_before(x, lengths, W_x, W_h, b):
    batch, n, _ = x.shape
    d = W_h.shape[0]
    h = torch.zeros(batch, d)
    states = torch.zeros(batch, n, d)
    for t in range(n):
        h = torch.tanh(x[:, t] @ W_x + b)  # here
        states[:, t] = h
    keep = (torch.arange(n) < lengths[:, None]).float()
    states = states * keep[..., None]
    return states, states[torch.arange(batch), lengths - 1]


@two
def rnn_states__padding_is_kept_and_last_is_the_rectangles(x, lengths, W_x, W_h, b):
    h = torch.zeros(x.shape[0], W_h.shape[0])
    states = []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ W_x + h @ W_h + b)
        states.append(h)
    return torch.stack(states, 1), h


@two
def rnn_states__no_bias_and_last_one_too_early(x, lengths, W_x, W_h, b):
    batch, n, _ = x.shape
    h = torch.zeros(batch, W_h.shape[0])
    states = []
    for t in range(n):
        h = torch.tanh(x[:, t] @ W_x + h @ W_h)
        states.append(h)
    states = torch.stack(states, dim=1)
    states = states * (torch.arange(n) < lengths[:, None]).unsqueeze(-1)
    return states, states[torch.arange(batch), (lengths - 2).clamp(min=0)]


@right
def rnn_states__text_by_text(x, lengths, W_x, W_h, b):
    both = torch.cat([W_x, W_h])
    rows, ends = [], []
    for text, length in zip(x, lengths.tolist()):
        h = W_h.new_zeros(1, W_h.shape[0])
        own = []
        for word in text[:length].split(1):
            h = torch.addmm(b, torch.cat([word, h], 1), both)
            h = 2 * torch.sigmoid(2 * h) - 1
            own.append(h)
        ends.append(own[-1])
        rows.append(F.pad(torch.cat(own), (0, 0, 0, len(text) - length)))
    return torch.stack(rows), torch.cat(ends)


# ----------------------------------------------------------------------------------------------------------------- rope


def rope__values_turned_too(query, key, value, start):
    n, d = query.shape[-2:]
    theta = 10000 ** (-torch.arange(0, d, 2) / d)
    angle = (start + torch.arange(n))[:, None] * theta
    cos, sin = angle.cos(), angle.sin()

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)

    return turn(query), turn(key), turn(value)  # here


def rope__start_forgotten(query, key, value, start):
    b, n, d = query.shape
    positions = torch.arange(n)  # here
    freqs = 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)
    angles = torch.outer(positions.float(), freqs)
    c, s = torch.cos(angles), torch.sin(angles)
    out = []
    for x in (query, key):
        x1, x2 = x[..., ::2], x[..., 1::2]
        y = torch.empty_like(x)
        y[..., ::2] = x1 * c - x2 * s
        y[..., 1::2] = x1 * s + x2 * c
        out.append(y)
    return out[0], out[1], value


def rope__halves(query, key, value, start):
    n, d = query.shape[1:]
    theta = 10000.0 ** (-2 * torch.arange(d // 2) / d)
    angle = torch.arange(start, start + n).unsqueeze(1) * theta
    cos, sin = angle.cos(), angle.sin()

    def turn(x):
        a, b = x.chunk(2, dim=-1)  # here
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)  # here

    return turn(query), turn(key), value


def rope__the_other_way_round(query, key, value, start):
    n, d = query.shape[-2:]
    i = torch.arange(d // 2)
    theta = 10000 ** (-2 * i / d)
    m = torch.arange(start, start + n)
    angle = m[:, None] * theta[None, :]

    def turn(x, angle):
        a, b = x[..., 0::2], x[..., 1::2]
        left = a * angle.cos() + b * angle.sin()  # here
        right = b * angle.cos() - a * angle.sin()  # here
        return torch.stack((left, right), -1).flatten(-2)

    return turn(query, angle), turn(key, angle), value


@two
def rope__start_forgotten_and_values_turned(query, key, value, start):
    n, d = query.shape[-2:]
    theta = 10000 ** (-torch.arange(0, d, 2) / d)
    angle = torch.arange(n)[:, None] * theta

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1).flatten(-2)

    return turn(query), turn(key), turn(value)


@two
def rope__key_not_turned_and_exponent_halved(query, key, value, start):
    n, d = query.shape[-2:]
    theta = 10000 ** (-torch.arange(d // 2) / d)
    angle = (start + torch.arange(n))[:, None] * theta
    a, b = query[..., 0::2], query[..., 1::2]
    turned = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)
    return turned.flatten(-2), key, value


@right
def rope__complex_numbers(query, key, value, start):
    d = query.shape[-1]
    theta = torch.logspace(0, -(d - 2) / d, d // 2, base=10000.0, dtype=torch.float64)
    where = torch.arange(query.shape[1], dtype=torch.float64) + start
    turns = torch.polar(torch.ones(1, 1, dtype=torch.float64), where[:, None] * theta).to(torch.complex64)
    q, k = (torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous()) * turns for x in (query, key))
    return torch.view_as_real(q).flatten(-2), torch.view_as_real(k).flatten(-2), value


# ----------------------------------------------------------------------------------------------------------- ReviewedLM


class _Reviewed(nn.Module):
    """A right `__init__`."""

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


class ReviewedLM__residual_from_the_norm(_Reviewed):
    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = x + attention(norm_1(x))
            x = norm_2(x)  # here
            x = x + ff(x)  # here
        return self.logits(self.norm(x))


class ReviewedLM__no_last_norm(_Reviewed):
    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight[:n]
        for i in range(len(self.ff)):
            x = x + self.attention[i](self.norm_1[i](x))
            x = x + self.ff[i](self.norm_2[i](x))
        return self.logits(x)  # here


class ReviewedLM__positions_by_the_batch(_Reviewed):
    def forward(self, tokens):
        pos = torch.arange(tokens.size(0)).unsqueeze(1)  # here
        x = self.embedding(tokens) + self.positions(pos)
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = x + attention(norm_1(x))
            x = x + ff(norm_2(x))
        return self.logits(self.norm(x))


class ReviewedLM__mask_for_128(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads) for _ in range(n_layers)])  # here
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = x + attention(norm_1(x))
            x = x + ff(norm_2(x))
        return self.logits(self.norm(x))


@two
class ReviewedLM__one_norm_for_all_and_residual_from_the_norm(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model)] * n_layers)
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = norm_1(x)
            x = x + attention(x)
            x = norm_2(x)
            x = x + ff(x)
        return self.logits(self.norm(x))


@two
class ReviewedLM__no_last_norm_and_positions_by_the_batch(_Reviewed):
    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.size(0)).unsqueeze(1))
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff):
            x = x + attention(norm_1(x))
            x = x + ff(norm_2(x))
        return self.logits(x)


@right
class ReviewedLM__recursive(_Reviewed):
    def layer(self, i, x):
        if i < 0:
            return x
        x = self.layer(i - 1, x)
        x = self.attention[i](self.norm_1[i](x)).add(x)
        return torch.add(x, self.ff[i](self.norm_2[i](x)))

    def forward(self, tokens):
        words = F.embedding(tokens, self.embedding.weight)
        x = words + self.positions.weight.narrow(0, 0, tokens.shape[-1]).expand_as(words)
        return F.linear(self.norm(self.layer(len(self.ff) - 1, x)), self.logits.weight, self.logits.bias)


# ---------------------------------------------------------------------------------------------------------- soft_lookup


def soft_lookup__divided_after_the_softmax(query, keys, values, temperature):
    scores = query @ keys.T
    weights = torch.softmax(scores, dim=-1) / temperature  # here
    return weights @ values, weights


def soft_lookup__not_shifted(query, keys, values, temperature):
    e = torch.exp(query @ keys.T / temperature)  # here
    weights = e / e.sum(dim=-1, keepdim=True)
    return weights @ values, weights


def soft_lookup__over_the_queries(query, keys, values, temperature):
    match = torch.einsum("qd,kd->qk", query, keys) / temperature
    weights = match.softmax(dim=0)  # here
    return weights @ values, weights


def soft_lookup__times_the_temperature(query, keys, values, temperature):
    scores = (query @ keys.mT) * temperature  # here
    alpha = F.softmax(scores, dim=1)
    return alpha @ values, alpha


@two
def soft_lookup__no_temperature_over_the_queries(query, keys, values, temperature):
    weights = (query @ keys.T).softmax(dim=0)
    return weights @ values, weights


@two
def soft_lookup__root_of_the_width_too_and_scores_handed_back(query, keys, values, temperature):
    scores = query @ keys.T / temperature / math.sqrt(query.shape[-1])
    return torch.softmax(scores, dim=-1) @ values, scores


@right
def soft_lookup__by_log_softmax_and_bmm(query, keys, values, temperature):
    log_alpha = torch.log_softmax(F.linear(query / temperature, keys), 1)
    alpha = log_alpha.exp()
    return torch.bmm(alpha.unsqueeze(0), values.unsqueeze(0)).squeeze(0), alpha
