"""A sixth draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(37).sample(names, 10)` from the forty functions, in alphabetical order, that no earlier file has
and whose modules had not been opened.
"""

import math

import torch
import torch.nn.functional as F
from unseen import right, two

# ruff: noqa: B905  (as learners write)

# ----------------------------------------------------------------------------------------------------------- told_apart


def told_apart__not_divided_by_root_n(printed, repaired):
    d = printed - repaired
    m = d.mean()
    return m.item(), (m / d.std()).item()  # here


def told_apart__with_n(printed, repaired):
    differences = printed - repaired
    n = len(differences)
    deviation = (differences - differences.mean()).pow(2).mean().sqrt()  # here
    return differences.mean(), differences.mean() / (deviation / n**0.5)


def told_apart__unpaired(printed, repaired):
    n = printed.shape[0]
    difference = printed.mean() - repaired.mean()
    error = torch.sqrt((printed.var() + repaired.var()) / n)  # here
    return float(difference), float(difference / error)


def told_apart__divided_by_n(printed, repaired):
    diff = printed - repaired
    se = diff.std() / len(diff)  # here
    return diff.mean(), diff.mean() / se


@two
def told_apart__the_other_way_and_with_n(printed, repaired):
    diff = repaired - printed  # here
    se = diff.std(unbiased=False) / math.sqrt(len(diff))  # here
    return diff.mean(), diff.mean() / se


@right
def told_apart__by_sums(printed, repaired):
    n = len(printed)
    diff = (printed - repaired).double()
    mean = diff.sum() / n
    variance = ((diff - mean) ** 2).sum() / (n - 1)
    return mean.item(), (mean / (variance / n).sqrt()).item()


# ----------------------------------------------------------------------------------------------------- contrastive_loss


def contrastive_loss__dot_products(context, targets, negatives, temperature):
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    scores = (candidates * context[:, None]).sum(-1) / temperature  # here
    return F.cross_entropy(scores, torch.zeros(len(context), dtype=torch.long))


def contrastive_loss__the_target_not_in_the_sum(context, targets, negatives, temperature):
    pos = F.cosine_similarity(context, targets, dim=-1) / temperature
    neg = F.cosine_similarity(context[:, None], negatives, dim=-1) / temperature
    return (torch.logsumexp(neg, dim=1) - pos).mean()  # here


def contrastive_loss__exponentials_by_hand(context, targets, negatives, temperature):
    pos = torch.exp(F.cosine_similarity(context, targets, dim=-1) / temperature)
    neg = torch.exp(F.cosine_similarity(context[:, None, :], negatives, dim=-1) / temperature)
    return -torch.log(pos / (pos + neg.sum(1))).mean()  # here


def contrastive_loss__summed(context, targets, negatives, temperature):
    c = F.normalize(context, dim=-1)
    all_q = F.normalize(torch.cat([targets.unsqueeze(1), negatives], 1), dim=-1)
    logits = torch.einsum("nd,nkd->nk", c, all_q) / temperature
    return -logits.log_softmax(1)[:, 0].sum()  # here


@two
def contrastive_loss__times_the_temperature_and_targets_detached(context, targets, negatives, temperature):
    q = torch.cat([targets.detach()[:, None], negatives], dim=1)  # here
    scores = F.cosine_similarity(context[:, None], q, dim=-1) * temperature  # here
    return -scores.log_softmax(dim=-1)[:, 0].mean()


@right
def contrastive_loss__row_by_row(context, targets, negatives, temperature):
    losses = []
    for c, q, others in zip(context, targets, negatives):
        everything = torch.vstack([others, q])
        cos = (everything @ c) / (everything.norm(dim=1) * c.norm())
        losses.append(torch.logsumexp(cos / temperature, 0) - cos[-1] / temperature)
    return torch.stack(losses).mean()


# ------------------------------------------------------------------------------------------------------- self_attention


def self_attention__softmax_over_the_queries(x, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    A = torch.softmax(Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-1]), dim=1)  # here
    return A @ V, A


def self_attention__root_of_d_model(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.mT / x.shape[-1] ** 0.5  # here
    weights = scores.softmax(-1)
    return weights @ v, weights


def self_attention__the_values_are_the_tokens(x, W_Q, W_K, W_V):
    scores = torch.einsum("bnd,dk,bme,ek->bnm", x, W_Q, x, W_K)
    weights = (scores / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ x, weights  # here


def self_attention__weights_first(x, W_Q, W_K, W_V):
    q = x @ W_Q
    k = x @ W_K
    v = x @ W_V
    w = torch.softmax(q @ k.mT / k.size(-1) ** 0.5, -1)
    return w, w @ v  # here


@two
def self_attention__keys_ask_and_no_root(x, W_Q, W_K, W_V):
    q, k, v = x @ W_K, x @ W_Q, x @ W_V  # here
    w = torch.softmax(q @ k.mT / k.shape[-1], dim=-1)  # here
    return w @ v, w


@right
def self_attention__one_product_for_all(x, W_Q, W_K, W_V):
    d_k = W_Q.shape[1]
    q, k, v = (x @ torch.cat([W_Q, W_K, W_V], dim=1)).split([d_k, d_k, W_V.shape[1]], dim=-1)
    w = torch.exp(torch.log_softmax(torch.bmm(q, k.transpose(1, 2)) * d_k**-0.5, dim=2))
    return torch.bmm(w, v), w


# ----------------------------------------------------------------------------------------------------- attention_scores


def attention_scores__divided_by_the_root(decoder_states, encoder_states):
    return decoder_states @ encoder_states.mT / math.sqrt(decoder_states.shape[-1])  # here


def attention_scores__the_other_way_round(decoder_states, encoder_states):
    return torch.einsum("btd,bsd->bst", decoder_states, encoder_states)  # here


def attention_scores__normalised(decoder_states, encoder_states):
    s = F.normalize(decoder_states, dim=-1)  # here
    return s @ encoder_states.transpose(1, 2)


def attention_scores__softmaxed(decoder_states, encoder_states):
    scores = torch.bmm(decoder_states, encoder_states.transpose(1, 2))
    return torch.softmax(scores, dim=-1)  # here


@two
def attention_scores__scaled_by_length_and_transposed(decoder_states, encoder_states):
    scores = encoder_states @ decoder_states.mT  # here
    return scores / encoder_states.shape[1]  # here


@right
def attention_scores__pair_by_pair(decoder_states, encoder_states):
    rows = [(decoder_states[:, t, None] * encoder_states).sum(-1) for t in range(decoder_states.shape[1])]
    return torch.stack(rows, dim=1)


# ---------------------------------------------------------------------------------------------------------- prefix_mask


def prefix_mask__the_prefix_sees_all(lengths, n):
    i = torch.arange(n)[:, None]
    j = torch.arange(n)[None, :]
    in_prefix = i < lengths[:, None, None]  # here
    return (j <= i) | in_prefix


def prefix_mask__only_within_the_prefix(lengths, n):
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    prefix = torch.arange(n) < lengths[:, None]
    both = prefix[:, :, None] & prefix[:, None, :]
    rest = ~prefix[:, :, None] & ~prefix[:, None, :]  # here
    return both | (rest & causal)


def prefix_mask__one_too_many(lengths, n):
    mask = torch.tril(torch.ones(n, n)).bool().repeat(len(lengths), 1, 1)
    for b, length in enumerate(lengths.tolist()):
        mask[b, :, : length + 1] = True  # here
    return mask


def prefix_mask__true_where_forbidden(lengths, n):
    j = torch.arange(n)
    future = j[None, :] > j[:, None]
    return future & (j >= lengths[:, None, None])  # here


@two
def prefix_mask__not_oneself_and_the_first_length(lengths, n):
    i = torch.arange(n)
    causal = i[None, :] < i[:, None]  # here
    return (causal | (i[None, :] < lengths[0])).expand(len(lengths), n, n)  # here


@right
def prefix_mask__the_furthest_that_is_seen(lengths, n):
    place = torch.arange(n)
    furthest = torch.maximum(place, lengths[:, None] - 1)
    return place <= furthest[:, :, None]


# ----------------------------------------------------------------------------------------------------- resize_positions


def resize_positions__rows_and_columns_exchanged(positions, old, new):
    grid = positions[1:].reshape(old[1], old[0], -1).permute(2, 0, 1)[None]  # here
    grid = F.interpolate(grid, size=new, mode="bilinear", align_corners=False)
    return torch.cat([positions[:1], grid[0].permute(1, 2, 0).reshape(new[0] * new[1], -1)])


def resize_positions__not_permuted(positions, old, new):
    d = positions.shape[1]
    grid = positions[1:].reshape(1, d, *old)  # here
    grid = F.interpolate(grid, size=new, mode="bilinear", align_corners=False)
    return torch.cat([positions[:1], grid.flatten(2)[0].T])


def resize_positions__corners_aligned(positions, old, new):
    d = positions.shape[1]
    grid = positions[1:].T.reshape(1, d, *old)
    grid = F.interpolate(grid, size=tuple(new), mode="bilinear", align_corners=True)  # here
    return torch.cat([positions[:1], grid.reshape(d, -1).T], dim=0)


def resize_positions__without_the_class_token(positions, old, new):
    grid = positions[1:].view(*old, -1).permute(2, 0, 1).unsqueeze(0)
    grid = F.interpolate(grid, new, mode="bilinear", align_corners=False)
    return grid.squeeze(0).flatten(1).T  # here


@two
def resize_positions__nearest_and_the_class_last(positions, old, new):
    cls, rest = positions[:1], positions[1:]
    grid = rest.T.reshape(1, -1, *old)
    grid = F.interpolate(grid, size=new, mode="nearest")  # here
    return torch.cat([grid[0].flatten(1).T, cls])  # here


@right
def resize_positions__axis_by_axis(positions, old, new):
    def mix(x, n_old, n_new):
        centre = (torch.arange(n_new) + 0.5) * n_old / n_new - 0.5
        low = centre.floor().clamp(0, n_old - 1)
        high = (low + 1).clamp(max=n_old - 1)
        share = (centre.clamp(0, n_old - 1) - low)[:, None]
        return (1 - share) * x[low.long()] + share * x[high.long()]

    d = positions.shape[1]
    grid = positions[1:].reshape(old[0], old[1] * d)
    grid = mix(grid, old[0], new[0]).reshape(new[0], old[1], d)
    rows = [mix(row, old[1], new[1]) for row in grid]
    return torch.cat([positions[:1], *rows])


# --------------------------------------------------------------------------------------------------------- shifted_loss


def shifted_loss__not_shifted(logits, tokens, pad):
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=pad)  # here


def shifted_loss__a_mean_of_means(logits, tokens, pad):
    target = tokens[:, 1:]
    log_p = logits[:, :-1].log_softmax(-1).gather(2, target[..., None])[..., 0]
    real = target != pad
    per_text = -(log_p * real).sum(1) / real.sum(1)  # here
    return per_text.mean()


def shifted_loss__padding_counted(logits, tokens, pad):
    target = tokens[:, 1:]
    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), target, reduction="none")
    return (loss * (target != pad)).mean()  # here


def shifted_loss__log_of_the_softmax(logits, tokens, pad):
    p = torch.softmax(logits[:, :-1], dim=-1)
    p = p.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    keep = tokens[:, 1:] != pad
    return -torch.log(p)[keep].mean()  # here


@two
def shifted_loss__padding_learned_and_bits(logits, tokens, pad):
    logits = logits[:, :-1]
    target = tokens[:, 1:]
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))  # here
    return loss / math.log(2)  # here


@right
def shifted_loss__text_by_text(logits, tokens, pad):
    losses = []
    for row, text in zip(logits, tokens):
        for t in range(1, len(text)):
            if text[t] != pad:
                losses.append(torch.logsumexp(row[t - 1], dim=0) - row[t - 1, text[t]])
    return torch.stack(losses).mean()


# -------------------------------------------------------------------------------------------------------- contributions


def contributions__rows_by_turns(heads, W_O):
    h, d_v = heads.shape[1], heads.shape[-1]
    W = W_O.view(d_v, h, -1).transpose(0, 1)  # here
    return heads @ W


def contributions__summed_already(heads, W_O):
    b, h, n, d_v = heads.shape
    W = W_O.view(h, d_v, -1)
    return torch.einsum("bhnv,hvd->bnd", heads, W).unsqueeze(1).expand(b, h, n, -1) / h  # here


def contributions__all_heads_by_the_first_rows(heads, W_O):
    d_v = heads.shape[-1]
    return torch.stack([heads[:, i] @ W_O[:d_v] for i in range(heads.shape[1])], dim=1)  # here


def contributions__heads_after_positions(heads, W_O):
    W = W_O.unflatten(0, (heads.shape[1], -1))
    return torch.einsum("bhnv,hvd->bnhd", heads, W)  # here


@two
def contributions__columns_and_transposed(heads, W_O):
    out = []
    d_v = heads.shape[-1]
    for i in range(heads.shape[1]):
        W = W_O[i * d_v : (i + 1) * d_v]
        out.append(heads[:, 0] @ W)  # here
    return torch.stack(out, dim=0)  # here


@right
def contributions__zeros_around(heads, W_O):
    b, h, n, d_v = heads.shape
    merged = heads.new_zeros(b, h, n, h, d_v)
    for i in range(h):
        merged[:, i, :, i] = heads[:, i]
    return merged.flatten(3) @ W_O


# ------------------------------------------------------------------------------------------------------------- rms_norm


def rms_norm__eps_outside(x, weight, eps):
    rms = x.pow(2).mean(-1, keepdim=True).sqrt()
    return x / (rms + eps) * weight  # here


def rms_norm__the_length(x, weight, eps):
    return x / torch.sqrt((x**2).sum(dim=-1, keepdim=True) + eps) * weight  # here


def rms_norm__the_mean_subtracted(x, weight, eps):
    centred = x - x.mean(-1, keepdim=True)  # here
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight


def rms_norm__over_everything(x, weight, eps):
    size = torch.sqrt(torch.mean(x * x) + eps)  # here
    return x / size * weight


@two
def rms_norm__no_root_and_one_plus_the_gain(x, weight, eps):
    size = x.square().mean(dim=-1, keepdim=True) + eps  # here
    return x / size * (1 + weight)  # here


@right
def rms_norm__by_the_norm(x, weight, eps):
    d = x.shape[-1]
    size = (x.norm(dim=-1) ** 2 / d + eps) ** 0.5
    return torch.einsum("...d,...,d->...d", x, 1 / size, weight)


# ------------------------------------------------------------------------------------------------------------ pad_batch


def pad_batch__mask_from_the_pad(sequences, pad):
    n = max(map(len, sequences))
    tokens = torch.tensor([s + [pad] * (n - len(s)) for s in sequences])
    return tokens, tokens != pad  # here


def pad_batch__filled_from_the_left(sequences, pad):
    n = max(len(s) for s in sequences)
    tokens = torch.full((len(sequences), n), pad)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, s in enumerate(sequences):
        tokens[i, n - len(s) :] = torch.tensor(s)  # here
        mask[i, n - len(s) :] = True  # here
    return tokens, mask


def pad_batch__filled_with_zero(sequences, pad):
    rows = [torch.tensor(s) for s in sequences]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # here
    lengths = torch.tensor([len(s) for s in sequences])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


def pad_batch__mask_of_the_padding(sequences, pad):
    longest = max(len(s) for s in sequences)
    tokens = torch.tensor([list(s) + (longest - len(s)) * [pad] for s in sequences])
    lengths = torch.tensor([len(s) for s in sequences])
    mask = torch.arange(longest)[None] >= lengths[:, None]  # here
    return tokens, mask


@two
def pad_batch__lists_changed_and_floats(sequences, pad):
    n = max(len(s) for s in sequences)
    mask = torch.zeros(len(sequences), n)  # here
    for i, s in enumerate(sequences):
        mask[i, : len(s)] = 1
        s += [pad] * (n - len(s))  # here
    return torch.tensor(sequences), mask


@right
def pad_batch__place_by_place(sequences, pad):
    n = len(max(sequences, key=len))
    tokens = [[s[j] if j < len(s) else pad for j in range(n)] for s in sequences]
    mask = [[j < len(s) for j in range(n)] for s in sequences]
    return torch.tensor(tokens), torch.tensor(mask)
