"""A fifth draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(31).sample(names, 103)` from the names in alphabetical order: the first ten that no earlier file
has and that are functions.
"""

import torch
import torch.nn.functional as F
from unseen import right, two

# ruff: noqa: B905, RUF059  (as learners write)

# ------------------------------------------------------------------------------------------------------ post_norm_block


def post_norm_block__the_factor_on_the_branch(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    x = norm_1(x + carry * attend(x))  # here
    return norm_2(carry * x + feed_forward(x))


def post_norm_block__norm_before_the_sum(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    h = carry * x + norm_1(attend(x))  # here
    return norm_2(carry * h + feed_forward(h))


def post_norm_block__the_network_reads_the_carried(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    y = norm_1(x * carry + attend(x))
    y = y * carry  # here
    return norm_2(y + feed_forward(y))


def post_norm_block__the_second_adds_the_block_input(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    h = norm_1(carry * x + attend(x))
    out = norm_2(carry * x + feed_forward(h))  # here
    return out


@two
def post_norm_block__one_norm_for_both_and_no_carry_at_first(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    h = norm_1(x + attend(x))  # here
    return norm_1(carry * h + feed_forward(h))  # here


@right
def post_norm_block__in_a_loop(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    for sublayer, norm in ((attend, norm_1), (feed_forward, norm_2)):
        x = norm(sublayer(x).add(x, alpha=carry))
    return x


# ------------------------------------------------------------------------------------------------------ batch_by_tokens


def batch_by_tokens__tokens_without_padding(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches, current, total = [], [], 0
    for i in order:
        if current and total + lengths[i] > batch_tokens:  # here
            batches.append(current)
            current, total = [], 0
        current.append(i)
        total += lengths[i]
    if current:
        batches.append(current)
    return batches


def batch_by_tokens__the_last_batch_lost(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches, current = [], []
    for i in order:
        if current and (len(current) + 1) * lengths[i] > batch_tokens:
            batches.append(current)
            current = []
        current.append(i)
    return batches  # here


def batch_by_tokens__full_where_equal(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    batches = []
    current = []
    for i in order:
        if current and (len(current) + 1) * lengths[i] >= batch_tokens:  # here
            batches.append(current)
            current = []
        current.append(i)
    if current:
        batches.append(current)
    return batches


def batch_by_tokens__not_sorted(lengths, batch_tokens):
    batches, current, longest = [], [], 0
    for i in range(len(lengths)):  # here
        new_longest = max(longest, lengths[i])
        if current and (len(current) + 1) * new_longest > batch_tokens:
            batches.append(current)
            current, new_longest = [], lengths[i]
        current.append(i)
        longest = new_longest
    if current:
        batches.append(current)
    return batches


@two
def batch_by_tokens__from_the_longest_and_one_too_many(lengths, batch_tokens):
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])  # here
    batches, current = [], []
    for i in order:
        if current and len(current) * lengths[current[0]] > batch_tokens:  # here
            batches.append(current)
            current = []
        current.append(i)
    if current:
        batches.append(current)
    return batches


@right
def batch_by_tokens__with_torch(lengths, batch_tokens):
    if not lengths:
        return []
    values, order = torch.tensor(lengths).sort(stable=True)
    batches = [[]]
    for size, index in zip(values.tolist(), order.tolist()):
        if batches[-1] and size * (1 + len(batches[-1])) > batch_tokens:
            batches += [[]]
        batches[-1] += [index]
    return batches


# --------------------------------------------------------------------------------------------------------- top_k_lookup


def top_k_lookup__zeros_for_the_others(query, keys, values, k):
    scores = query @ keys.T / keys.shape[-1] ** 0.5
    top, idx = scores.topk(k, dim=-1)
    kept = torch.zeros_like(scores).scatter(-1, idx, top)  # here
    return kept.softmax(-1) @ values


def top_k_lookup__cut_after_the_softmax(query, keys, values, k):
    scores = query @ keys.T / keys.shape[-1] ** 0.5
    weights = scores.softmax(-1)
    top, idx = weights.topk(k, dim=-1)
    return (top.unsqueeze(-1) * values[idx]).sum(1)  # here


def top_k_lookup__the_k_worst(query, keys, values, k):
    d_k = query.size(-1)
    scores = torch.matmul(query, keys.transpose(0, 1)) / d_k**0.5
    best, where = torch.topk(scores, k, largest=False)  # here
    w = torch.softmax(best, dim=-1)
    return torch.einsum("qk,qkd->qd", w, values[where])


def top_k_lookup__one_choice_for_all(query, keys, values, k):
    scores = query @ keys.T / keys.shape[-1] ** 0.5
    idx = scores.mean(0).topk(k).indices  # here
    return scores[:, idx].softmax(-1) @ values[idx]


@two
def top_k_lookup__unscaled_and_the_first_values(query, keys, values, k):
    scores = query @ keys.T  # here
    top, idx = scores.topk(k, dim=-1)
    return top.softmax(-1) @ values[:k]  # here


@right
def top_k_lookup__by_a_threshold(query, keys, values, k):
    scores = query @ keys.mT * query.shape[-1] ** -0.5
    threshold = scores.sort(-1, descending=True).values[:, k - 1 : k]
    scores = torch.where(scores < threshold, float("-inf"), scores)
    return F.softmax(scores, -1) @ values


# -------------------------------------------------------------------------------------------------------- branch_ratios


def branch_ratios__over_what_comes_out(x, branches, real):
    ratios = []
    for f in branches:
        out = f(x)
        x = x + out
        r = out.norm(dim=-1) / x.norm(dim=-1)  # here
        ratios.append(r[real].mean())
    return torch.stack(ratios)


def branch_ratios__always_the_first_x(x, branches, real):
    ratios = []
    for f in branches:
        out = f(x)
        ratio = out.norm(dim=-1) / x.norm(dim=-1)
        ratios.append(ratio[real].mean())
    return torch.stack(ratios)  # here


def branch_ratios__padding_counted(x, branches, real):
    result = torch.zeros(len(branches))
    for i, branch in enumerate(branches):
        f = branch(x)
        ratio = f.norm(dim=-1) / x.norm(dim=-1)
        result[i] = (ratio * real).mean()  # here
        x = x + f
    return result


def branch_ratios__mean_length_by_mean_length(x, branches, real):
    ratios = []
    for f in branches:
        out = f(x)
        ratios.append(out.norm(dim=-1)[real].mean() / x.norm(dim=-1)[real].mean())  # here
        x = x + out
    return torch.stack(ratios)


@two
def branch_ratios__squares_and_by_sentence(x, branches, real):
    ratios = []
    for f in branches:
        out = f(x)
        r = out.square().sum(-1) / x.square().sum(-1)  # here
        r = (r * real).sum(1) / real.sum(1)
        ratios.append(r.mean())  # here
        x = x + out
    return torch.stack(ratios)


@right
def branch_ratios__with_squares(x, branches, real):
    weight = real.float() / real.sum()
    found = []
    for branch in branches:
        added = branch(x)
        found.append(((added.pow(2).sum(-1) / x.pow(2).sum(-1)).sqrt().masked_fill(~real, 0) * weight).sum())
        x = added + x
    return torch.stack(found)


# ----------------------------------------------------------------------------------------------------------- repair_row


def repair_row__four_matrices_alone(n_layers, d_model, n_heads, d_head, parameters):
    def count(d):
        return n_layers * 4 * d * d  # here

    a, b = d_model, n_heads * d_head
    d = a if abs(count(a) - parameters) < abs(count(b) - parameters) else b
    return d, d // d_head


def repair_row__always_the_width(n_layers, d_model, n_heads, d_head, parameters):
    return n_heads * d_head, n_heads  # here


def repair_row__the_worse_of_the_two(n_layers, d_model, n_heads, d_head, parameters):
    by_width = 12 * n_layers * d_model**2
    by_heads = 12 * n_layers * (n_heads * d_head) ** 2
    if abs(by_width - parameters) > abs(by_heads - parameters):  # here
        return d_model, d_model // d_head
    return n_heads * d_head, n_heads


def repair_row__from_the_parameters(n_layers, d_model, n_heads, d_head, parameters):
    d = round((parameters / (12 * n_layers)) ** 0.5)  # here
    return d, d // d_head


@two
def repair_row__layers_forgotten_and_heads_as_printed(n_layers, d_model, n_heads, d_head, parameters):
    a, b = d_model, n_heads * d_head
    if abs(12 * a * a - parameters) < abs(12 * b * b - parameters):  # here
        return a, n_heads  # here
    return b, n_heads


@right
def repair_row__the_nearer(n_layers, d_model, n_heads, d_head, parameters):
    width = min((d_model, n_heads * d_head), key=lambda d: abs(n_layers * (4 * d * d + 2 * d * 4 * d) / parameters - 1))
    return width, width // d_head


# -------------------------------------------------------------------------------------------------------- encoder_block


def encoder_block__norm_after_the_sum(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    h = norm_1(x)
    x = norm_2(x + attention(h, h, mask))  # here
    return x + norm_4(feed_forward(norm_3(x)))


def encoder_block__memory_not_normed(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    x = x + norm_2(attention(norm_1(x), x, mask))  # here
    x = x + norm_4(feed_forward(norm_3(x)))
    return x


def encoder_block__norms_exchanged(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    a = norm_1(x)
    x = x + norm_3(attention(a, a, mask))  # here
    x = x + norm_4(feed_forward(norm_2(x)))  # here
    return x


def encoder_block__the_network_beside_attention(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    a = norm_1(x)
    attended = norm_2(attention(a, a, mask))
    changed = norm_4(feed_forward(norm_3(x)))  # here
    return x + attended + changed


@two
def encoder_block__no_mask_and_one_residual(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    a = norm_1(x)
    x = x + norm_2(attention(a, a, torch.ones_like(mask)))  # here
    return norm_4(feed_forward(norm_3(x)))  # here


@right
def encoder_block__step_by_step(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    normed = norm_1(x)
    branch = attention(normed, memory=normed, mask=mask)
    after = norm_2(branch).add(x)
    return norm_4(feed_forward(norm_3(after))).add(after)


# --------------------------------------------------------------------------------------------------------------- swiglu


def swiglu__sigmoid_for_silu(x, W_gate, W_up, W_down):
    gate = torch.sigmoid(x @ W_gate)  # here
    return (gate * (x @ W_up)) @ W_down


def swiglu__the_other_is_activated(x, W_gate, W_up, W_down):
    return ((x @ W_gate) * F.silu(x @ W_up)) @ W_down  # here


def swiglu__exponentials_by_hand(x, W_gate, W_up, W_down):
    z = x @ W_gate
    silu = z * torch.exp(z) / (1 + torch.exp(z))  # here
    return (silu * (x @ W_up)) @ W_down


def swiglu__added(x, W_gate, W_up, W_down):
    g = F.silu(x @ W_gate)
    u = x @ W_up
    h = g + u  # here
    return h @ W_down


@two
def swiglu__gelu_and_the_gate_reads_the_other(x, W_gate, W_up, W_down):
    up = x @ W_up
    gate = F.gelu(x @ W_up)  # here
    return (gate * up) @ W_down


@right
def swiglu__by_einsum(x, W_gate, W_up, W_down):
    gate, up = torch.einsum("...d,kdf->k...f", x, torch.stack([W_gate, W_up]))
    return F.linear(gate * gate.sigmoid() * up, W_down.T)


# ---------------------------------------------------------------------------------------------------------- shift_right


def shift_right__eos_at_the_very_end(target, lengths, bos, eos, pad):
    B, n = target.shape
    real = torch.arange(n) < lengths[:, None]
    t = target.masked_fill(~real, pad)
    first = torch.full((B, 1), bos, dtype=target.dtype)
    last = torch.full((B, 1), eos, dtype=target.dtype)
    return torch.cat([first, t], 1), torch.cat([t, last], 1)  # here


def shift_right__the_rest_is_not_padded(target, lengths, bos, eos, pad):
    B, n = target.shape
    target_in = torch.full((B, n + 1), bos, dtype=target.dtype)
    target_in[:, 1:] = target  # here
    target_out = torch.full((B, n + 1), pad, dtype=target.dtype)
    for b in range(B):
        L = int(lengths[b])
        target_out[b, :L] = target[b, :L]
        target_out[b, L] = eos
    return target_in, target_out


def shift_right__exchanged(target, lengths, bos, eos, pad):
    B, n = target.shape
    target_in = target.new_full((B, n + 1), pad)
    target_out = target.new_full((B, n + 1), pad)
    for b, L in enumerate(lengths.tolist()):
        target_in[b, 0] = bos
        target_in[b, 1 : L + 1] = target[b, :L]
        target_out[b, :L] = target[b, :L]
        target_out[b, L] = eos
    return target_out, target_in  # here


def shift_right__the_last_token_unread(target, lengths, bos, eos, pad):
    B, n = target.shape
    position = torch.arange(n + 1)
    padded = F.pad(target, (0, 1), value=pad)
    target_out = torch.where(position < lengths[:, None], padded, pad)
    target_out[torch.arange(B), lengths] = eos
    target_in = F.pad(target, (1, 0), value=bos)
    target_in = torch.where(position < lengths[:, None], target_in, pad)  # here
    return target_in, target_out


@two
def shift_right__eos_read_and_no_pad_in_the_output(target, lengths, bos, eos, pad):
    B, n = target.shape
    padded = F.pad(target, (0, 1), value=eos)
    target_out = torch.where(torch.arange(n + 1) < lengths[:, None], padded, eos)  # here
    target_in = F.pad(target_out[:, :-1], (1, 0), value=bos)  # here
    return target_in, target_out


@right
def shift_right__with_lists(target, lengths, bos, eos, pad):
    n = target.shape[1]
    rows_in, rows_out = [], []
    for row, length in zip(target.tolist(), lengths.tolist()):
        rest = [pad] * (n - length)
        rows_in.append([bos, *row[:length], *rest])
        rows_out.append([*row[:length], eos, *rest])
    return torch.tensor(rows_in), torch.tensor(rows_out)


# ----------------------------------------------------------------------------------------------------------- alibi_bias


def alibi_bias__heads_from_zero(n_heads, n):
    h = torch.arange(n_heads)  # here
    slopes = 2.0 ** (-8 * h / n_heads)
    i = torch.arange(n)
    return -slopes[:, None, None] * (i[:, None] - i[None, :]).abs()


def alibi_bias__positive(n_heads, n):
    h = torch.arange(1, n_heads + 1)
    slopes = 2.0 ** (-8 * h / n_heads)
    i = torch.arange(n)
    distance = (i[None, :] - i[:, None]).abs()
    return slopes.view(-1, 1, 1) * distance  # here


def alibi_bias__with_sign(n_heads, n):
    slopes = torch.tensor([2 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)])
    pos = torch.arange(n)
    distance = pos[:, None] - pos[None, :]  # here
    return -slopes[:, None, None] * distance


def alibi_bias__slope_without_the_number_of_heads(n_heads, n):
    slopes = torch.tensor([2.0 ** (-8 / h) for h in range(1, n_heads + 1)])  # here
    pos = torch.arange(n).float()
    return -slopes[:, None, None] * torch.abs(pos[:, None] - pos[None])


@two
def alibi_bias__squared_and_eight_left_out(n_heads, n):
    h = torch.arange(1, n_heads + 1)
    slopes = 2.0 ** (-h / n_heads)  # here
    i = torch.arange(n)
    return -slopes[:, None, None] * (i[:, None] - i[None, :]) ** 2  # here


@right
def alibi_bias__one_head_after_the_other(n_heads, n):
    bias = torch.empty(n_heads, n, n)
    for h in range(n_heads):
        for i in range(n):
            for j in range(n):
                bias[h, i, j] = -abs(i - j) / 2 ** (8 * (h + 1) / n_heads)
    return bias


# ---------------------------------------------------------------------------------------------------- squared_distances


def squared_distances__not_squared(a, b):
    diff = a.unsqueeze(-2) - b.unsqueeze(-3)
    return diff.abs().sum(-1)  # here


def squared_distances__below_zero(a, b):
    aa = (a * a).sum(-1, keepdim=True)
    bb = (b * b).sum(-1).unsqueeze(-2)
    return aa - 2 * a @ b.mT + bb  # here


def squared_distances__the_root(a, b):
    return torch.cdist(a, b)  # here


def squared_distances__the_mean(a, b):
    difference = a[..., :, None, :] - b[..., None, :, :]
    return (difference**2).mean(dim=-1)  # here


@two
def squared_distances__exchanged_and_once(a, b):
    aa = a.square().sum(-1)[..., None, :]  # here
    bb = b.square().sum(-1)[..., :, None]  # here
    return (aa - b @ a.mT + bb).clamp(min=0)  # here


@right
def squared_distances__with_a_clamp(a, b):
    length = a.square().sum(-1)[..., None] + b.square().sum(-1)[..., None, :]
    return (length - 2 * torch.einsum("...if,...jf->...ij", a, b)).clamp_min(0)
