"""A twelfth draw: seven wrong answers with one mistake each, two with two, and a right one, to ten exercises.

Written from the released notebooks alone (assignments 01, 02, 04, 06, 07, 10, 11 and 14): the exercises' modules, the
solutions, the lectures and the tests stayed closed. No check and no search for the line was run on the answers. They
were only compared with one another and with the formulas of the notebooks, on small inputs.
"""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

from attncourse_lessons.l14_errata_lab.exercises.reviewed_lm import Attention, FeedForward

# ------------------------------------------------------------------------------------------------------------ mean_pool


def mean_pool__padding_summed_with_the_words(states, lengths):
    total = states.sum(dim=1)  # here
    return total / lengths[:, None]


def mean_pool__divided_by_the_width_of_the_batch(states, lengths):
    width = states.shape[1]
    is_word = torch.arange(width, device=states.device).lt(lengths.unsqueeze(1))
    words = torch.where(is_word.unsqueeze(2), states, 0.0)
    return words.mean(dim=1)  # here


def mean_pool__a_state_of_the_padding_among_the_words(states, lengths):
    pooled = []
    for sentence, n_words in zip(states, lengths, strict=True):
        last = n_words + 1  # here
        pooled.append(sentence[:last].mean(dim=0))  # here
    return torch.stack(pooled)


def mean_pool__state_of_the_last_word(states, lengths):
    last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.size(-1))  # here
    return states.gather(1, last).squeeze(1)  # here


def mean_pool__every_sentence_taken_for_one_of_average_length(states, lengths):
    m = (torch.arange(states.shape[1])[None] < lengths[:, None]).to(states.dtype)
    n = m.sum() / len(m)  # here
    return torch.einsum("bt,btd->bd", m, states) / n


def mean_pool__copied_into_a_tensor_without_history(states, lengths):
    means = [h[:n].mean(0).tolist() for h, n in zip(states, lengths, strict=True)]  # here
    return torch.tensor(means, dtype=states.dtype)  # here


def mean_pool__words_hidden_and_padding_kept(states, lengths):
    place = torch.arange(states.shape[1], device=lengths.device)
    hidden = place < lengths[:, None]  # here
    return states.masked_fill(hidden[..., None], 0).sum(1) / lengths[:, None]  # here


@two
def mean_pool__last_word_left_out_and_divided_by_the_root(states, lengths):
    number = torch.arange(1, states.shape[1] + 1)
    mask = (number < lengths[:, None]).unsqueeze(-1)  # here
    total = (states * mask).sum(-2)
    return total / lengths.sqrt().unsqueeze(-1)  # here


@two
def mean_pool__read_from_the_right_and_one_word_too_few_counted(states, lengths):
    out = []
    for b in range(len(states)):
        words = states[b, states.shape[1] - lengths[b] :]  # here
        count = (lengths[b] - 1).clamp(min=1)  # here
        out.append(words.sum(0) / count)
    return torch.stack(out, 0)


@right
def mean_pool__every_word_sent_to_its_sentence(states, lengths):
    batch, n, d = states.shape
    # One long list of words, and beside each word the number of its sentence.
    owner = torch.arange(batch, device=states.device).repeat_interleave(lengths)
    words = states[torch.arange(n, device=states.device) < lengths[:, None]]
    return states.new_zeros(batch, d).index_add(0, owner, words) / lengths[:, None]


# -------------------------------------------------------------------------------------------------------- contributions


def contributions__rows_dealt_out_to_the_heads_in_turn(heads, W_O):
    _, h, _, d_v = heads.shape
    W = W_O.view(d_v, h, -1)  # here
    return torch.einsum("bhnv,vhd->bhnd", heads, W)  # here


def contributions__matrix_as_a_linear_layer_stores_it(heads, W_O):
    n_heads, d_v = heads.shape[1], heads.shape[3]
    per_head = W_O.T.reshape(n_heads, d_v, W_O.shape[1])  # here
    return heads @ per_head


def contributions__heads_merged_without_changing_places(heads, W_O):
    batch, n_heads, n, d_v = heads.shape
    terms = []
    for i in range(n_heads):
        alone = torch.zeros_like(heads)
        alone[:, i] = heads[:, i]
        merged = alone.reshape(batch, n, n_heads * d_v)  # here
        terms.append(merged @ W_O)
    return torch.stack(terms, dim=1)


def contributions__what_all_the_other_heads_add(heads, W_O):
    blocks = W_O.unflatten(0, (heads.shape[1], -1))
    own = torch.matmul(heads, blocks)
    everything = own.sum(dim=1, keepdim=True)  # here
    return everything - own  # here


def contributions__each_head_gets_its_stretch_of_the_output(heads, W_O):
    n_heads = heads.size(1)
    output = heads.transpose(1, 2).flatten(2) @ W_O
    owner = torch.arange(W_O.size(1)) * n_heads // W_O.size(1)  # here
    mine = owner == torch.arange(n_heads)[:, None]  # here
    return output[:, None] * mine[:, None].to(output)


def contributions__all_heads_up_to_this_one(heads, W_O):
    d_v = heads.shape[-1]
    so_far, written = 0, []
    for i, head in enumerate(heads.unbind(1)):
        so_far = so_far + head @ W_O[i * d_v : (i + 1) * d_v]  # here
        written.append(so_far)  # here
    return torch.stack(written, dim=1)


def contributions__tokens_in_front_of_the_heads(heads, W_O):
    n_heads, d_v = heads.shape[1], heads.shape[-1]
    O = W_O.reshape(n_heads, d_v, -1)
    return torch.einsum("bhtv,hvm->bthm", heads, O)  # here


@two
def contributions__first_rows_for_all_heads_and_averaged(heads, W_O):
    d_v = heads.shape[-1]
    written = heads @ W_O[:d_v]  # here
    return written / heads.shape[1]  # here


@two
def contributions__equal_shares_and_no_gradient_for_the_matrix(heads, W_O):
    n_heads = heads.shape[1]
    merged = heads.permute(0, 2, 1, 3).flatten(start_dim=2)
    output = merged @ W_O.detach()  # here
    share = output / n_heads  # here
    return torch.stack([share] * n_heads, dim=1)


@right
def contributions__as_a_convolution_in_groups(heads, W_O):
    batch, n_heads, n, d_v = heads.shape
    d_model = W_O.shape[1]
    channels = heads.mT.reshape(batch, n_heads * d_v, n)
    filters = W_O.reshape(n_heads, d_v, d_model).mT.reshape(n_heads * d_model, d_v, 1)
    written = F.conv1d(channels, filters, groups=n_heads)
    return written.view(batch, n_heads, d_model, n).mT


# -------------------------------------------------------------------------------------------- restricted_self_attention


def restricted_self_attention__token_at_the_edge_of_the_window_not_seen(x, W_Q, W_K, W_V, width):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = torch.einsum("bid,bjd->bij", q, k) / math.sqrt(k.shape[-1])
    i = torch.arange(x.shape[1], device=x.device)
    distance = (i[:, None] - i[None, :]).abs()
    far = (distance >= width) & (distance > 0)  # here
    weights = scores.masked_fill(far, -torch.inf).softmax(-1)
    return weights @ v, weights


def restricted_self_attention__only_the_neighbours_on_the_left(x, W_Q, W_K, W_V, width):
    n, d_k = x.size(1), W_Q.size(1)
    behind = torch.arange(n).unsqueeze(1) - torch.arange(n)
    visible = (behind >= 0) & (behind <= width)  # here
    E = (x @ W_Q) @ (x @ W_K).transpose(-2, -1) / d_k**0.5
    A = torch.softmax(torch.where(visible, E, float("-inf")), dim=-1)
    return A @ (x @ W_V), A


def restricted_self_attention__weights_cut_after_the_softmax(x, W_Q, W_K, W_V, width):
    scores = (x @ W_Q) @ (x @ W_K).mT * W_K.shape[-1] ** -0.5
    band = torch.ones_like(scores).triu(-width).tril(width)
    weights = scores.softmax(dim=-1)  # here
    weights = weights * band  # here
    return weights @ (x @ W_V), weights


def restricted_self_attention__zeros_beyond_the_ends_get_weight(x, W_Q, W_K, W_V, width):
    batch, n, _ = x.shape
    x_wide = F.pad(x, (0, 0, width, width))  # here
    query, key, value = x @ W_Q, x_wide @ W_K, x_wide @ W_V
    near = key.unfold(1, 2 * width + 1, 1)  # (batch, n, d_k, window)
    a = torch.einsum("bnd,bndw->bnw", query, near).div(math.sqrt(W_K.shape[1])).softmax(-1)  # here
    table = x.new_zeros(batch, n, n + 2 * width)
    columns = torch.arange(n)[:, None] + torch.arange(2 * width + 1)
    table = table.scatter(2, columns.expand(batch, -1, -1), a)
    return table @ value, table[:, :, width : width + n]


def restricted_self_attention__window_that_begins_before_the_text(x, W_Q, W_K, W_V, width):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    n = x.shape[1]
    outputs, rows = [], []
    for i in range(n):
        start, stop = i - width, min(i + width + 1, n)  # here
        e = (K[:, start:stop] @ Q[:, i, :, None])[..., 0] / math.sqrt(Q.shape[-1])  # here
        a = e.softmax(dim=-1)
        row = torch.zeros(len(x), n, dtype=x.dtype)
        row[:, start:stop] = a
        rows.append(row)
        outputs.append((row[..., None] * V).sum(dim=1))
    return torch.stack(outputs, dim=1), torch.stack(rows, dim=1)


def restricted_self_attention__window_of_this_width_in_all(x, W_Q, W_K, W_V, width):
    place = torch.arange(x.shape[-2])
    half = width // 2  # here
    near = (place[:, None] <= place + half) & (place[:, None] >= place - half)  # here
    queries, keys, values = (x @ W for W in (W_Q, W_K, W_V))
    scores = queries @ keys.mT / keys.shape[-1] ** 0.5
    attention = scores.masked_fill(~near, -1e30).softmax(-1)
    return torch.bmm(attention, values), attention


def restricted_self_attention__first_token_beside_the_last(x, W_Q, W_K, W_V, width):
    n = x.shape[1]
    allowed = torch.zeros(n, n, dtype=torch.bool)
    for shift in range(-width, width + 1):
        allowed |= torch.eye(n, dtype=torch.bool).roll(shift, dims=1)  # here
    scores = torch.baddbmm(x.new_zeros(1, 1, 1), x @ W_Q, (x @ W_K).mT, alpha=1 / math.sqrt(W_Q.shape[1]))
    scores = scores + torch.zeros(n, n).masked_fill(~allowed, -math.inf)
    weights = F.softmax(scores, dim=2)
    return weights @ x @ W_V, weights


@two
def restricted_self_attention__weights_first_and_scores_not_divided(x, W_Q, W_K, W_V, width):
    s = x @ W_Q @ W_K.mT @ x.mT  # here
    i, j = torch.meshgrid(torch.arange(x.shape[1]), torch.arange(x.shape[1]), indexing="ij")
    s = s.masked_fill((i - j).abs() > width, -torch.inf)
    p = s.softmax(dim=-1)
    return p, p @ x @ W_V  # here


@two
def restricted_self_attention__far_scores_zero_and_softmax_over_the_queries(x, W_Q, W_K, W_V, width):
    n = x.shape[1]
    scores = (x @ W_Q).matmul((x @ W_K).mT) / math.sqrt(W_Q.shape[1])
    near = torch.ones(n, n).tril(width).triu(-width)
    scores = scores * near  # here
    weights = scores.softmax(dim=1)  # here
    return weights.matmul(x @ W_V), weights


@right
def restricted_self_attention__each_token_with_a_slice_of_its_own(x, W_Q, W_K, W_V, width):
    n = x.shape[1]
    V = x @ W_V
    rows = []
    for i in range(n):
        first, after = max(0, i - width), min(n, i + width + 1)
        q = x[:, i : i + 1] @ W_Q
        k = x[:, first:after] @ W_K
        near = torch.softmax(q @ k.mT / math.sqrt(k.shape[-1]), dim=-1)
        rows.append(F.pad(near, (first, n - after)))
    weights = torch.cat(rows, dim=1)
    return weights @ V, weights


# ------------------------------------------------------------------------------------------------ padded_self_attention


def padded_self_attention__padding_does_not_ask_but_answers(x, real, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    e = torch.einsum("bik,bjk->bij", q, k) / math.sqrt(q.size(-1))
    e = torch.where(real.unsqueeze(2), e, torch.finfo(e.dtype).min)  # here
    o = torch.einsum("bij,bjv->biv", e.softmax(2), v)
    return torch.where(real.unsqueeze(2), o, 0.0)


def padded_self_attention__divided_by_the_root_of_the_model_width(x, real, W_Q, W_K, W_V):
    batch, n, d = x.shape
    Q, K, V = (x @ torch.cat([W_Q, W_K, W_V], dim=1)).split([W_Q.shape[1], W_K.shape[1], W_V.shape[1]], dim=-1)
    bias = torch.zeros(batch, 1, n, dtype=x.dtype).masked_fill(~real[:, None], -math.inf)
    weights = (Q @ K.mT / d**0.5 + bias).softmax(dim=-1)  # here
    return (weights @ V).masked_fill(~real[:, :, None], 0)


def padded_self_attention__keys_ask_and_queries_answer(x, real, W_Q, W_K, W_V):
    sentences = []
    for tokens, is_token in zip(x, real, strict=True):
        query, key, value = tokens @ W_Q, tokens @ W_K, tokens @ W_V
        scores = key @ query.T / key.shape[-1] ** 0.5  # here
        scores = scores.masked_fill(~is_token, -torch.inf)
        sentences.append(scores.softmax(dim=1) @ value * is_token[:, None])
    return torch.stack(sentences)


def padded_self_attention__padding_receives_something(x, real, W_Q, W_K, W_V):
    scores = (x @ W_Q) @ (x @ W_K).transpose(1, 2) / math.sqrt(W_K.shape[-1])
    scores = scores.masked_fill(~real[:, None, :], float("-inf"))
    return torch.softmax(scores, dim=-1) @ (x @ W_V)  # here


def padded_self_attention__weights_of_the_padding_dropped_after_the_softmax(x, real, W_Q, W_K, W_V):
    keep = real.to(x.dtype)
    alpha = ((x @ W_Q) @ (x @ W_K).mT / math.sqrt(W_Q.shape[1])).softmax(-1)  # here
    alpha = alpha * keep[:, None, :] * keep[:, :, None]  # here
    return alpha @ (x @ W_V)


def padded_self_attention__a_tiny_score_is_not_a_low_one(x, real, W_Q, W_K, W_V):
    Q, K, V = [torch.tensordot(x, W, dims=1) for W in (W_Q, W_K, W_V)]
    scores = Q.matmul(K.mT).div(math.sqrt(K.shape[2]))
    scores = scores.masked_fill(real.logical_not()[:, None, :], 1e-9)  # here
    out = scores.softmax(dim=-1).matmul(V)
    return out * real[..., None]


def padded_self_attention__nan_in_the_rows_of_the_padding(x, real, W_Q, W_K, W_V):
    both = real[:, :, None] & real[:, None, :]  # here
    scores = (x @ W_Q @ W_K.T @ x.mT) / math.sqrt(W_K.shape[1])
    weights = torch.where(both, scores, -math.inf).softmax(dim=-1)  # here
    return weights @ (x @ W_V) * real[:, :, None]


@two
def padded_self_attention__shares_of_each_key_and_one_mask_for_all_sentences(x, real, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    scores = q @ k.mT / math.sqrt(k.shape[-1])
    scores = scores.masked_fill(~real[0], -1e9)  # here
    return scores.softmax(dim=-2) @ v * real.unsqueeze(-1)  # here


@two
def padded_self_attention__scores_multiplied_by_the_mask_and_no_root(x, real, W_Q, W_K, W_V):
    mask = real.float()
    s = torch.einsum("bid,dk,ek,bje->bij", x, W_Q, W_K, x)  # here
    s = s * mask[:, None, :]  # here
    return torch.einsum("bij,bjd,bi->bid", F.softmax(s, -1), x @ W_V, mask)


@right
def padded_self_attention__padding_taken_out_and_put_back(x, real, W_Q, W_K, W_V):
    outputs = []
    for sentence, mask in zip(x, real, strict=True):
        words = sentence[mask]
        scores = words @ W_Q @ (words @ W_K).T / math.sqrt(W_K.shape[1])
        received = scores.softmax(dim=1) @ (words @ W_V)
        empty = received.new_zeros(len(sentence), W_V.shape[1])
        outputs.append(empty.index_put((mask.nonzero().squeeze(1),), received))
    return torch.stack(outputs)


# ----------------------------------------------------------------------------------------------------------- ReviewedLM


class ReviewedLM__always_128_positions(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(128, d_model)  # here
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True):
            x = x + attention(norm_1(x))
            x = x + ff(norm_2(x))
        return self.logits(self.norm(x))


class ReviewedLM__positions_do_not_learn(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        layers = range(n_layers)
        self.embedding, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList(nn.LayerNorm(d_model) for _ in layers)
        self.attention = nn.ModuleList(Attention(d_model, n_heads, max_length) for _ in layers)
        self.norm_2 = nn.ModuleList(nn.LayerNorm(d_model) for _ in layers)
        self.ff = nn.ModuleList(FeedForward(d_model) for _ in layers)
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        where = self.positions.weight.data[:n]  # here
        x = self.embedding(tokens) + where
        for i in range(len(self.ff)):
            h = x + self.attention[i](self.norm_1[i](x))
            x = h + self.ff[i](self.norm_2[i](h))
        return self.logits(self.norm(x))


class ReviewedLM__last_rows_of_the_table(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()

        def each(make):
            return nn.ModuleList([make() for _ in range(n_layers)])

        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = each(lambda: nn.LayerNorm(d_model))
        self.attention = each(lambda: Attention(d_model, n_heads, max_length))
        self.norm_2 = each(lambda: nn.LayerNorm(d_model))
        self.ff = each(lambda: FeedForward(d_model))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n, size = tokens.shape[1], self.positions.num_embeddings
        number = torch.arange(size - n, size, device=tokens.device)  # here
        x = self.embedding(tokens) + self.positions(number)
        for n1, a, n2, f in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True):
            x = x + a(n1(x))
            x = x + f(n2(x))
        return self.logits(self.norm(x))


class ReviewedLM__one_second_norm_for_all_layers(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1, self.norm_2 = nn.ModuleList(), nn.ModuleList()
        self.attention, self.ff = nn.ModuleList(), nn.ModuleList()
        second = nn.LayerNorm(d_model)  # here
        for _ in range(n_layers):
            self.norm_1.append(nn.LayerNorm(d_model))
            self.attention.append(Attention(d_model, n_heads, max_length))
            self.norm_2.append(second)  # here
            self.ff.append(FeedForward(d_model))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.positions.weight[: x.size(1)]
        for layer, attention in enumerate(self.attention):
            x = attention(self.norm_1[layer](x)) + x
            x = self.ff[layer](self.norm_2[layer](x)) + x
        x = self.norm(x)
        return self.logits(x)


class ReviewedLM__last_layer_without_its_network(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(1, n_layers)])  # here
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        _, n = tokens.shape
        stream = self.embedding(tokens) + self.positions.weight[:n]
        for layer in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=False):
            norm_1, attention, norm_2, ff = layer
            stream = stream + attention(norm_1(stream))
            stream = stream + ff(norm_2(stream))
        return self.logits(self.norm(stream))


class ReviewedLM__what_attention_added_is_left_behind(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.n_layers = n_layers
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def one_layer(self, i, x):
        h = x + self.attention[i](self.norm_1[i](x))
        return x + self.ff[i](self.norm_2[i](h))  # here

    def forward(self, tokens):
        place = torch.arange(tokens.shape[-1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(place)
        for i in range(self.n_layers):
            x = self.one_layer(i, x)
        return self.logits(self.norm(x))


class ReviewedLM__last_layers_norm_at_the_end(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.norm_2 = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(n_layers)])
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length=max_length) for _ in range(n_layers)])
        self.ff = nn.ModuleList([FeedForward(d_model) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight[:n]
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True):
            h = x + attention(norm_1(x))
            x = h + ff(norm_2(h))
        return self.logits(norm_2(x))  # here


@two
class ReviewedLM__mask_of_the_default_size_and_sublayers_side_by_side(nn.Module):
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
        x = self.embedding(tokens) + self.positions.weight[: tokens.size(1)]
        for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True):
            h = x + attention(norm_1(x))
            x = h + ff(norm_2(x))  # here
        return self.logits(self.norm(x))


@two
class ReviewedLM__one_attention_for_all_layers_and_probabilities(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.norm_1 = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.attention = nn.ModuleList([Attention(d_model, n_heads, max_length)] * n_layers)  # here
        self.norm_2 = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.ff = nn.ModuleList(FeedForward(d_model) for _ in range(n_layers))
        self.norm, self.logits = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        positions = self.positions.weight[None, : tokens.size(1)]
        x = self.embedding(tokens) + positions
        for i, ff in enumerate(self.ff):
            x = x + self.attention[i](self.norm_1[i](x))
            x = x + ff(self.norm_2[i](x))
        return self.logits(self.norm(x)).softmax(dim=-1)  # here


@right
class ReviewedLM__one_list_of_sublayers_folded(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, max_length=128):
        super().__init__()
        parts = {
            "norm_1": lambda: nn.LayerNorm(d_model),
            "attention": lambda: Attention(d_model, n_heads, max_length),
            "norm_2": lambda: nn.LayerNorm(d_model),
            "ff": lambda: FeedForward(d_model),
        }
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        for name, make in parts.items():
            self.add_module(name, nn.ModuleList(make() for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, vocab_size)

    def forward(self, tokens):
        number = torch.ones_like(tokens).cumsum(dim=1) - 1
        x = self.embedding(tokens) + self.positions(number)
        # Attention, network, attention, network …: each reads a normed copy of the stream and adds to it.
        steps = [
            step
            for norm_1, attention, norm_2, ff in zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=True)
            for step in ((norm_1, attention), (norm_2, ff))
        ]
        return self.logits(self.norm(reduce(lambda stream, step: stream + step[1](step[0](stream)), steps, x)))


# -------------------------------------------------------------------------------------------------------- greedy_decode


def greedy_decode__end_forgotten_after_one_step(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    ended = torch.zeros(n_sentences, dtype=torch.bool)
    while tokens.shape[1] <= max_length and not ended.all():
        chosen = next_logits(tokens).argmax(dim=-1)
        chosen = torch.where(ended, pad, chosen)
        ended = chosen == eos  # here
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
    rest = max_length + 1 - tokens.shape[1]
    return F.pad(tokens, (0, rest), value=pad)[:, 1:]


def greedy_decode__model_gets_the_whole_buffer(next_logits, n_sentences, bos, eos, pad, max_length):
    buffer = torch.full((n_sentences, max_length + 1), pad, dtype=torch.long)
    buffer[:, 0] = bos
    active = torch.ones(n_sentences, dtype=torch.bool)
    for t in range(max_length):
        if not active.any():
            break
        best = next_logits(buffer).max(dim=1).indices  # here
        buffer[active, t + 1] = best[active]
        active &= best != eos
    return buffer[:, 1:]


def greedy_decode__a_chosen_pad_ends_the_sentence(next_logits, n_sentences, bos, eos, pad, max_length):
    written = [torch.full((n_sentences,), bos)]
    done = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        if not bool(done.all()):
            word = next_logits(torch.stack(written, dim=1)).argmax(1).masked_fill(done, pad)
        else:
            word = torch.full((n_sentences,), pad)
        written.append(word)
        done = done | (word == eos) | (word == pad)  # here
    return torch.stack(written[1:], dim=1)


def greedy_decode__as_wide_as_the_longest_sentence(next_logits, n_sentences, bos, eos, pad, max_length):
    out = torch.empty(n_sentences, 0, dtype=torch.long)
    first = torch.tensor([[bos]] * n_sentences)
    finished = torch.zeros(n_sentences, 1, dtype=torch.bool)
    while out.size(1) < max_length and not finished.all():
        logits = next_logits(torch.hstack([first, out]))
        step = logits.topk(1, dim=-1).indices
        step[finished] = pad
        finished = finished | (step == eos)
        out = torch.hstack([out, step])
    return out  # here


def greedy_decode__bos_counted_among_the_tokens(next_logits, n_sentences, bos, eos, pad, max_length):
    rows = torch.full((n_sentences, max_length), pad)
    so_far = torch.full((n_sentences, 1), bos)
    alive = torch.full((n_sentences,), True)
    while alive.any() and so_far.shape[1] < max_length:  # here
        token = torch.where(alive, next_logits(so_far).argmax(-1), pad)
        rows[:, so_far.shape[1] - 1] = token
        so_far = torch.cat((so_far, token.unsqueeze(1)), 1)
        alive = alive & (token != eos)
    return rows


def greedy_decode__model_gets_the_newest_token_alone(next_logits, n_sentences, bos, eos, pad, max_length):
    result = torch.full((n_sentences, max_length), pad, dtype=torch.int64)
    newest = torch.full((n_sentences, 1), bos, dtype=torch.int64)
    over = set()
    for t in range(max_length):
        if len(over) == n_sentences:
            break
        best = torch.argmax(next_logits(newest), dim=1)  # here
        for i in range(n_sentences):
            if i not in over:
                result[i, t] = best[i]
                if best[i] == eos:
                    over.add(i)
        newest = result[:, t : t + 1]  # here
    return result


def greedy_decode__asked_until_the_greatest_length(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    for _ in range(max_length):  # here
        tokens = torch.cat([tokens, next_logits(tokens).argmax(dim=-1, keepdim=True)], dim=1)
    sentences = tokens[:, 1:]
    is_eos = (sentences == eos).long()
    after = is_eos.cumsum(dim=1) - is_eos > 0
    return sentences.masked_fill(after, pad)


@two
def greedy_decode__stops_with_the_first_sentence_and_returns_bos(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens, ended = torch.full((n_sentences, 1), bos), torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        choice = next_logits(tokens).argmax(-1)
        tokens = torch.cat([tokens, choice[:, None]], -1)
        ended |= choice == eos
        if ended.any():  # here
            break
    missing = max_length + 1 - tokens.shape[-1]
    filled = torch.cat([tokens, torch.full((n_sentences, missing), pad)], dim=-1)
    return filled[:, :-1]  # here


@two
def greedy_decode__eos_thrown_away_and_pad_forbidden(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = [[bos] for _ in range(n_sentences)]
    over = [False] * n_sentences
    for _ in range(max_length):
        if all(over):
            break
        scores = next_logits(torch.tensor(tokens))
        scores = scores.index_fill(1, torch.tensor([pad]), -math.inf)  # here
        for i, best in enumerate(scores.argmax(dim=1).tolist()):
            over[i] = over[i] or best == eos
            tokens[i].append(pad if over[i] else best)  # here
    return torch.tensor([(row[1:] + [pad] * max_length)[:max_length] for row in tokens])


@right
def greedy_decode__each_step_calls_the_next(next_logits, n_sentences, bos, eos, pad, max_length):
    def write(tokens, open_rows):
        to_go = max_length + 1 - tokens.shape[1]
        if not to_go or not open_rows.any():
            return F.pad(tokens, (0, to_go), value=pad)
        choice = pad + open_rows * (next_logits(tokens).argmax(dim=1) - pad)
        return write(torch.column_stack([tokens, choice]), open_rows & (choice != eos))

    start = torch.full((n_sentences, 1), bos)
    return write(start, torch.ones(n_sentences, dtype=torch.bool))[:, 1:]


# ---------------------------------------------------------------------------------------------------------- causal_mask


def causal_mask__queries_taken_for_the_first_positions(n_query, n_key):
    i = torch.arange(n_query)  # here
    j = torch.arange(n_key)
    return j <= i[:, None]


def causal_mask__true_where_it_is_forbidden(n_query, n_key):
    kept = n_key - n_query
    return torch.ones(n_query, n_key, dtype=torch.bool).triu(kept + 1)  # here


def causal_mask__a_position_does_not_see_itself(n_query, n_key):
    rows = []
    for position in range(n_key - n_query, n_key):
        rows.append([j < position for j in range(n_key)])  # here
    return torch.tensor(rows)


def causal_mask__ones_and_zeros_in_place_of_booleans(n_query, n_key):
    everyone = torch.tril(torch.ones(n_key, n_key))  # here
    return everyone[n_key - n_query :]  # here


def causal_mask__shifted_to_the_wrong_side(n_query, n_key):
    allowed = torch.full((n_query, n_key), True)
    return allowed.tril(diagonal=n_query - n_key)  # here


def causal_mask__token_to_be_predicted_is_visible(n_query, n_key):
    may_see = torch.arange(n_key - n_query, n_key) + 1  # here
    return torch.arange(n_key).expand(n_query, n_key) <= may_see.unsqueeze(-1)  # here


def causal_mask__kept_keys_hidden(n_query, n_key):
    among_the_new = torch.ones(n_query, n_query, dtype=torch.bool).tril()
    old = torch.zeros(n_query, n_key - n_query, dtype=torch.bool)  # here
    return torch.cat([old, among_the_new], dim=1)


@two
def causal_mask__fewer_queries_see_everything_and_equal_ones_the_future(n_query, n_key):
    if n_query < n_key:
        return torch.ones((n_query, n_key), dtype=torch.bool)  # here
    t = torch.arange(n_key)
    return t.view(-1, 1) <= t.view(1, -1)  # here


@two
def causal_mask__newest_query_first_and_only_the_new_keys(n_query, n_key):
    whole = torch.ones(n_key, n_key).tril().bool()
    part = whole[-n_query:, -n_query:]  # here
    return part.flip(0)  # here


@right
def causal_mask__what_has_come_stays(n_query, n_key):
    # Row by row each position comes in once and stays: a running sum of the identity.
    return torch.eye(n_key).cumsum(dim=0).bool().narrow(0, n_key - n_query, n_query)


# -------------------------------------------------------------------------------------------------- label_smoothed_loss


def label_smoothed_loss__share_for_the_wrong_tokens_alone(logits, target, smoothing, pad):
    V = logits.shape[-1]
    log_p = logits.log_softmax(dim=-1)
    q = torch.full_like(log_p, smoothing / (V - 1))  # here
    q = q.scatter(-1, target.unsqueeze(-1), 1 - smoothing)  # here
    loss = -(q * log_p).sum(dim=-1)
    return loss[target != pad].mean()


def label_smoothed_loss__nothing_for_the_id_of_the_padding(logits, target, smoothing, pad):
    vocab_size = logits.size(-1)
    real = target.ne(pad)
    log_p = F.log_softmax(logits[real], dim=-1)
    q = F.one_hot(target[real], vocab_size) * (1 - smoothing) + smoothing / vocab_size
    q[:, pad] = 0  # here
    return -torch.einsum("tv,tv->t", q, log_p).mean()


def label_smoothed_loss__every_sentence_counts_the_same(logits, target, smoothing, pad):
    log_p = torch.log_softmax(logits, -1)
    truth = log_p.gather(2, target[..., None]).squeeze(2)
    loss = -(1 - smoothing) * truth - smoothing * log_p.mean(-1)
    mask = (target != pad).to(loss.dtype)
    per_sentence = (loss * mask).sum(1) / mask.sum(1).clamp(min=1)  # here
    return per_sentence[mask.any(1)].mean()  # here


def label_smoothed_loss__logarithm_of_a_rounded_softmax(logits, target, smoothing, pad):
    keep = target.flatten() != pad
    p = logits.flatten(0, 1)[keep].softmax(dim=1)  # here
    y = target.flatten()[keep]
    log_p = p.log()  # here
    smooth = log_p.sum(dim=1) * smoothing / p.shape[1]
    return -(smooth + (1 - smoothing) * log_p[torch.arange(len(y)), y]).mean()


def label_smoothed_loss__divided_by_all_positions(logits, target, smoothing, pad):
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    hot = torch.zeros_like(log_p).scatter_(-1, target[:, :, None], 1.0)
    q = torch.lerp(hot, torch.full_like(hot, 1 / hot.shape[-1]), smoothing)
    nats = -(q * log_p).sum(-1).masked_fill(target == pad, 0.0)
    return nats.mean()  # here


def label_smoothed_loss__divergence_in_place_of_cross_entropy(logits, target, smoothing, pad):
    real = target != pad
    log_p, y = logits[real].log_softmax(-1), target[real]
    q = torch.full(log_p.shape, smoothing / log_p.shape[-1], dtype=log_p.dtype)
    q[torch.arange(len(y)), y] += 1 - smoothing
    return (torch.xlogy(q, q) - q * log_p).sum() / len(y)  # here


def label_smoothed_loss__targets_of_the_padding_overwritten(logits, target, smoothing, pad):
    padding = target == pad
    target[padding] = 0  # here
    log_p = logits.log_softmax(2)
    true = torch.take_along_dim(log_p, target.unsqueeze(2), dim=2)[..., 0]
    loss = -((1 - smoothing) * true + smoothing * log_p.mean(2))
    return torch.where(padding, 0.0, loss).sum() / (~padding).sum()


@two
def label_smoothed_loss__padding_taken_for_number_0_and_in_bits(logits, target, smoothing, pad):
    V = logits.shape[-1]
    log_p = logits.log_softmax(dim=-1) / math.log(2)  # here
    q = (1 - smoothing) * F.one_hot(target, V) + smoothing / V
    real = (target > 0).float()  # here
    return -((q * log_p).sum(-1) * real).sum() / real.sum()


@two
def label_smoothed_loss__share_not_divided_and_sum_without_gradient(logits, target, smoothing, pad):
    total, count = 0.0, 0
    for row, words in zip(logits, target, strict=True):
        for z, y in zip(row, words, strict=True):
            if y != pad:
                log_p = z.log_softmax(0)
                loss = -(1 - smoothing) * log_p[y] - smoothing * log_p.sum()  # here
                total += loss.item()  # here
                count += 1
    return torch.tensor(total / count)


@right
def label_smoothed_loss__from_the_logits_themselves(logits, target, smoothing, pad):
    # The targets' probabilities add up to 1, so the normaliser can be taken out of the sum.
    real = (target != pad).nonzero(as_tuple=True)
    z = logits[real]
    wanted = z.gather(1, target[real].unsqueeze(1)).squeeze(1)
    aimed_at = torch.lerp(wanted, z.mean(dim=1), smoothing)
    return (z.logsumexp(dim=1) - aimed_at).mean()


# ------------------------------------------------------------------------------------------------------- additive_score


def additive_score__key_before_the_query(query, key, W, w):
    n_query, n_key = query.shape[1], key.shape[1]
    q = query.unsqueeze(2).expand(-1, -1, n_key, -1)
    k = key.unsqueeze(1).expand(-1, n_query, -1, -1)
    pairs = torch.cat([k, q], dim=-1)  # here
    return torch.tanh(pairs @ W) @ w


def additive_score__tanh_of_the_score(query, key, W, w):
    d_query = query.shape[-1]
    hidden = (query @ W[:d_query])[:, :, None] + (key @ W[d_query:])[:, None]
    return (hidden @ w).tanh()  # here


def additive_score__tanh_of_query_and_key_apart(query, key, W, w):
    W_q, W_k = W.split([query.size(-1), key.size(-1)])
    from_query = torch.tanh(query @ W_q)  # here
    from_key = torch.tanh(key @ W_k)  # here
    return torch.einsum("bqkh,h->bqk", from_query.unsqueeze(2) + from_key.unsqueeze(1), w)


def additive_score__pairs_listed_key_by_key(query, key, W, w):
    b, n, m = len(query), query.shape[1], key.shape[1]
    queries = query.repeat(1, m, 1)  # here
    keys = key.repeat_interleave(n, dim=1)  # here
    hidden = torch.cat((queries, keys), dim=2).matmul(W).tanh()
    return hidden.matmul(w).reshape(b, n, m)


def additive_score__already_a_distribution(query, key, W, w):
    scores = []
    for q in query.unbind(1):
        q = q[:, None].expand(-1, key.shape[1], -1)
        scores.append(torch.tanh(torch.cat([q, key], -1) @ W) @ w)
    return torch.stack(scores, 1).softmax(-1)  # here


def additive_score__divided_by_the_root_of_the_hidden_width(query, key, W, w):
    d = query.shape[2]
    a = torch.einsum("bid,dh->bih", query, W[:d])
    c = torch.einsum("bjd,dh->bjh", key, W[d:])
    h = (a.unsqueeze(-2) + c.unsqueeze(-3)).tanh()
    return (h * w).sum(-1) / math.sqrt(len(w))  # here


def additive_score__no_tanh(query, key, W, w):
    pairs = torch.stack([torch.cat([query, k.unsqueeze(1).expand(-1, query.shape[1], -1)], -1) for k in key.unbind(1)])
    hidden = F.linear(pairs, W.T)  # here
    return torch.tensordot(hidden, w, dims=1).permute(1, 2, 0)


@two
def additive_score__largest_subtracted_and_no_gradient_for_the_vector(query, key, W, w):
    left, right_part = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    e = torch.tanh(left[:, :, None, :] + right_part[:, None, :, :]) @ w.detach()  # here
    return e - e.amax(dim=-1, keepdim=True)  # here


@two
def additive_score__sigmoid_and_the_table_reshaped(query, key, W, w):
    n_query, n_key = query.shape[1], key.shape[1]
    k = key[:, :, None].expand(-1, -1, n_query, -1)
    q = query[:, None].expand(-1, n_key, -1, -1)
    scores = torch.sigmoid(torch.cat([q, k], dim=3) @ W) @ w  # here
    return scores.reshape(-1, n_query, n_key)  # here


@right
def additive_score__one_pair_mapped_over_all(query, key, W, w):
    def score(q, k):
        return torch.dot(torch.tanh(torch.cat([q, k]) @ W), w)

    all_keys = torch.vmap(score, in_dims=(None, 0))
    all_pairs = torch.vmap(all_keys, in_dims=(0, None))
    return torch.vmap(all_pairs)(query, key)


# ---------------------------------------------------------------------------------------------------------- hard_lookup


def hard_lookup__best_query_for_each_key(query, keys, values):
    scores = query @ keys.T
    best = scores.argmax(dim=0)  # here
    return values[best]


def hard_lookup__key_at_the_smallest_distance(query, keys, values):
    difference = query[:, None, :] - keys[None, :, :]  # here
    nearest = difference.square().sum(-1).argmin(-1)  # here
    return values[nearest]


def hard_lookup__length_of_the_keys_divided_out(query, keys, values):
    unit = F.normalize(keys, dim=-1)  # here
    winner = torch.einsum("qd,kd->qk", query, unit).max(dim=1).indices
    return values.index_select(0, winner)


def hard_lookup__key_returned(query, keys, values):
    _, index = torch.topk(torch.mm(query, keys.t()), k=1, dim=1)
    return keys[index.squeeze(1)]  # here


def hard_lookup__one_key_for_all_queries(query, keys, values):
    score = (query @ keys.mT).sum(dim=0)  # here
    best = torch.argmax(score)  # here
    return values[best].expand(len(query), -1)


def hard_lookup__softmax_rounded_to_the_winner(query, keys, values):
    weights = torch.softmax(query @ keys.mT, dim=-1)
    return weights.round() @ values  # here


def hard_lookup__a_score_below_zero_never_wins(query, keys, values):
    answers = []
    for q in query:
        best, answer = torch.tensor(0.0), torch.zeros_like(values[0])  # here
        for k, v in zip(keys, values, strict=True):
            if q @ k > best:
                best, answer = q @ k, v
        answers.append(answer)
    return torch.stack(answers)


@two
def hard_lookup__size_of_the_score_and_values_copied_out(query, keys, values):
    match = torch.matmul(query, keys.transpose(0, 1)).abs()  # here
    rows = [values[i].tolist() for i in match.argmax(1)]  # here
    return torch.tensor(rows)


@two
def hard_lookup__smallest_score_and_first_key_left_out(query, keys, values):
    best = torch.zeros(len(query), dtype=torch.long)
    for row, q in enumerate(query):
        scores = [(torch.dot(q, keys[i]), i) for i in range(1, len(keys))]  # here
        scores.sort(key=lambda pair: pair[0])
        best[row] = scores[0][1]  # here
    return values[best]


@right
def hard_lookup__king_of_the_hill(query, keys, values):
    # The keys come in one by one, and whoever beats the best so far takes its place, for each query by itself.
    challengers = [(query @ k, v.expand(len(query), -1)) for k, v in zip(keys, values, strict=True)]

    def duel(champion, challenger):
        wins = challenger[0] > champion[0]
        return torch.where(wins, challenger[0], champion[0]), torch.where(wins[:, None], challenger[1], champion[1])

    return reduce(duel, challengers)[1]
