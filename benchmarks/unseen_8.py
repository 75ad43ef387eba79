"""An eighth draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn at random and written from the released notebooks. `MultiHeadAttention` was in an earlier draw, too.
"""

import math
from functools import reduce
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

# ruff: noqa: B905  (as learners write)

# ------------------------------------------------------------------------------------------------- AttentionDecoderStep


def AttentionDecoderStep__attentional_before_the_embedding(self, token, state, attentional, encoder_states, mask):
    read = torch.cat([attentional, self.embedding(token)], dim=-1)  # here
    state = self.cell(read, state)
    scores = (encoder_states @ state[:, :, None]).squeeze(-1)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states).squeeze(1)
    attentional = self.combine(torch.cat([context, state], dim=-1)).tanh()
    return self.output(attentional), state, attentional, weights


def AttentionDecoderStep__scaled_scores(self, token, state, attentional, encoder_states, mask):
    s = self.cell(torch.cat((self.embedding(token), attentional), 1), state)
    e = torch.einsum("bd,bnd->bn", s, encoder_states)
    e = e / math.sqrt(s.shape[-1])  # here
    e = torch.where(mask, e, torch.full_like(e, float("-inf")))
    alpha = torch.softmax(e, dim=1)
    c = torch.einsum("bn,bnd->bd", alpha, encoder_states)
    s_tilde = torch.tanh(self.combine(torch.cat((c, s), 1)))
    return self.output(s_tilde), s, s_tilde, alpha


def AttentionDecoderStep__a_hundred_less_for_padding(self, token, state, attentional, encoder_states, mask):
    embedded = self.embedding(token)
    new_state = self.cell(torch.cat([embedded, attentional], dim=1), state)
    scores = (encoder_states * new_state.unsqueeze(1)).sum(dim=2)
    scores = scores - 100.0 * (~mask).float()  # here
    weights = scores.softmax(dim=1)
    context = (weights.unsqueeze(2) * encoder_states).sum(dim=1)
    new_attentional = self.combine(torch.cat([context, new_state], dim=1)).tanh()
    logits = self.output(new_attentional)
    return logits, new_state, new_attentional, weights


def AttentionDecoderStep__old_state_combined(self, token, state, attentional, encoder_states, mask):
    s_t = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = torch.bmm(s_t[:, None], encoder_states.transpose(1, 2))[:, 0]
    scores[~mask] = -torch.inf
    weights = torch.softmax(scores, -1)
    context = torch.bmm(weights[:, None], encoder_states)[:, 0]
    both = torch.cat([context, state], dim=-1)  # here
    attentional = torch.tanh(self.combine(both))
    return self.output(attentional), s_t, attentional, weights


@two
def AttentionDecoderStep__attentional_as_the_query_and_no_tanh(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=1), state)
    scores = torch.einsum("bnd,bd->bn", encoder_states, attentional)  # here
    weights = scores.masked_fill(mask.logical_not(), -torch.inf).softmax(-1)
    context = torch.einsum("bn,bnd->bd", weights, encoder_states)
    attentional = self.combine(torch.cat([context, state], dim=1))  # here
    logits = self.output(attentional)
    return logits, state, attentional, weights


@right
def AttentionDecoderStep__by_the_halves_of_W(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.hstack([self.embedding(token), attentional]), state)
    # The first half of the columns is for the context, the second for the state.
    for_context, for_state = self.combine.weight.chunk(2, dim=1)
    scores = torch.linalg.vecdot(encoder_states, state.unsqueeze(1))
    scores = torch.where(mask, scores, -math.inf)
    weights = (scores - scores.logsumexp(dim=1, keepdim=True)).exp()
    context = encoder_states.mT.matmul(weights.unsqueeze(2)).squeeze(2)
    attentional = (context @ for_context.T + state @ for_state.T + self.combine.bias).tanh()
    return self.output(attentional), state, attentional, weights


# ----------------------------------------------------------------------------------------------------- count_parameters


def count_parameters__a_table_for_the_output(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    tokens = vocab_size * d_model
    positions = max_length * d_model
    unembedding = d_model * vocab_size
    embeddings = tokens + positions + unembedding  # here
    q = d_model * n_heads * d_head + n_heads * d_head
    kv = 2 * (d_model * n_kv_heads * d_head + n_kv_heads * d_head)
    o = n_heads * d_head * d_model + d_model
    ff = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norms = 2 * d_model * (2 * n_layers + 1)
    return embeddings, n_layers * (q + kv + o), n_layers * ff, norms


def count_parameters__every_bias_of_the_attention_by_the_heads(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    q_width, kv_width = n_heads * d_head, n_kv_heads * d_head
    weights = d_model * (q_width + kv_width + kv_width + q_width)
    biases = q_width + kv_width + kv_width + q_width  # here
    return (
        d_model * (vocab_size + max_length),
        n_layers * (weights + biases),
        n_layers * (2 * d_model * d_ff + d_ff + d_model),
        2 * (2 * n_layers + 1) * d_model,
    )


def count_parameters__keys_are_values(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    def linear(a, b):
        return a * b + b

    embeddings = (vocab_size + max_length) * d_model
    attention = linear(d_model, n_heads * d_head)
    attention += linear(d_model, n_kv_heads * d_head)  # here
    attention += linear(n_heads * d_head, d_model)  # here
    feed_forward = linear(d_model, d_ff) + linear(d_ff, d_model)
    norm = d_model + d_model
    return embeddings, attention * n_layers, feed_forward * n_layers, norm * (2 * n_layers + 1)


def count_parameters__a_last_norm_in_every_block(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = vocab_size * d_model + max_length * d_model
    attention = feed_forward = norms = 0
    for _ in range(n_layers):
        attention += (d_model + 1) * d_head * (n_heads + 2 * n_kv_heads)
        attention += (n_heads * d_head + 1) * d_model
        norms += 2 * d_model
        feed_forward += (d_model + 1) * d_ff + (d_ff + 1) * d_model
        norms += 2 * d_model
        norms += 2 * d_model  # here
    return embeddings, attention, feed_forward, norms


@two
def count_parameters__heads_as_wide_as_usual_and_norms_without_bias(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    d_head = d_model // n_heads  # here
    wq = (d_model + 1) * (n_heads * d_head)
    wk = wv = (d_model + 1) * (n_kv_heads * d_head)
    wo = (n_heads * d_head + 1) * d_model
    mlp = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    n_norms = 2 * n_layers + 1
    norms = n_norms * d_model  # here
    return (vocab_size + max_length) * d_model, n_layers * (wq + wk + wv + wo), n_layers * mlp, norms


@right
def count_parameters__by_a_list_of_shapes(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    def linears(*widths):
        return [shape for a, b in pairwise(widths) for shape in ((b, a), (b,))]

    shapes = {
        "embeddings": [(vocab_size, d_model), (max_length, d_model)],
        "attention": linears(d_model, n_heads * d_head, d_model) + 2 * linears(d_model, n_kv_heads * d_head),
        "feed_forward": linears(d_model, d_ff, d_model),
        "norms": 4 * [(d_model,)],
    }
    total = {part: sum(math.prod(shape) for shape in of_part) for part, of_part in shapes.items()}
    for part in ("attention", "feed_forward", "norms"):
        total[part] *= n_layers
    total["norms"] += 2 * d_model
    return tuple(total.values())


# --------------------------------------------------------------------------------------------------------- feed_forward


def feed_forward__dead_in_the_first_axis_only(x, W_1, b_1, W_2, b_2):
    hidden = torch.relu(x @ W_1 + b_1)
    output = hidden @ W_2 + b_2
    dead = (hidden == 0).all(dim=0)  # here
    return output, dead


def feed_forward__dead_only_below_zero(x, W_1, b_1, W_2, b_2):
    z = torch.einsum("...d,df->...f", x, W_1) + b_1
    out = torch.einsum("...f,fd->...d", z.clamp(min=0), W_2) + b_2
    dead = torch.ones(b_1.shape[0], dtype=torch.bool)
    for row in z.reshape(-1, b_1.shape[0]):
        dead = dead & (row < 0)  # here
    return out, dead


def feed_forward__bias_after_the_relu(x, W_1, b_1, W_2, b_2):
    h = F.relu(x @ W_1) + b_1  # here
    y = h @ W_2 + b_2
    fires = (h != 0).view(-1, h.shape[-1]).any(dim=0)
    return y, ~fires


def feed_forward__dead_on_average(x, W_1, b_1, W_2, b_2):
    before = x.matmul(W_1).add(b_1)
    after = torch.maximum(before, torch.zeros_like(before))
    dead = before.reshape(-1, before.size(-1)).mean(0) <= 0  # here
    return after.matmul(W_2).add(b_2), dead


@two
def feed_forward__relu_twice_and_the_living(x, W_1, b_1, W_2, b_2):
    relu = nn.ReLU()
    hidden = relu(x @ W_1 + b_1)
    output = relu(hidden @ W_2 + b_2)  # here
    units = hidden.reshape(-1, len(b_1))
    return output, (units > 0).any(dim=0)  # here


@right
def feed_forward__with_a_one_for_the_bias(x, W_1, b_1, W_2, b_2):
    def affine(v, W, b):
        one = v.new_ones(*v.shape[:-1], 1)
        return torch.cat([v, one], dim=-1) @ torch.cat([W, b[None]])

    z = affine(x, W_1, b_1)
    positive = z > 0
    hidden = torch.where(positive, z, z.new_zeros(()))
    firings = positive.reshape(-1, b_1.numel()).count_nonzero(dim=0)
    return affine(hidden, W_2, b_2), firings == 0


# -------------------------------------------------------------------------------------------------------- greedy_decode


def greedy_decode__pad_forbidden(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    done = torch.zeros(n_sentences, dtype=torch.bool)
    out = torch.full((n_sentences, max_length), pad)
    for t in range(max_length):
        if done.all():
            break
        logits = next_logits(tokens)
        logits = logits.index_fill(1, torch.tensor([pad]), -torch.inf)  # here
        best = torch.where(done, pad, logits.argmax(dim=1))
        out[:, t] = best
        done = done | (best == eos)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    return out


def greedy_decode__only_the_open_rows(next_logits, n_sentences, bos, eos, pad, max_length):
    seq = torch.full((n_sentences, max_length + 1), pad, dtype=torch.long)
    seq[:, 0] = bos
    alive = torch.arange(n_sentences)
    t = 0
    while t < max_length and len(alive) > 0:
        logits = next_logits(seq[alive, : t + 1])  # here
        chosen = logits.argmax(-1)
        seq[alive, t + 1] = chosen
        alive = alive[chosen != eos]
        t += 1
    return seq[:, 1:]


def greedy_decode__as_wide_as_the_longest(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.tensor([[bos]] * n_sentences)
    ended = torch.tensor([False] * n_sentences)
    while tokens.size(1) - 1 < max_length and not bool(ended.all()):
        _, token = next_logits(tokens).max(dim=-1)
        token = token.masked_fill(ended, pad)
        tokens = torch.cat((tokens, token.unsqueeze(1)), dim=1)
        ended = ended | token.eq(eos)
    return tokens[:, 1:]  # here


def greedy_decode__one_call_too_many(next_logits, n_sentences, bos, eos, pad, max_length):
    written = torch.full((n_sentences, max_length), pad)
    prefix = torch.full((n_sentences, 1), bos)
    finished = [False] * n_sentences
    for step in range(max_length):
        likeliest = next_logits(prefix).argmax(dim=1).tolist()  # here
        if all(finished):  # here
            break
        for i, token in enumerate(likeliest):
            if not finished[i]:
                written[i, step] = token
                finished[i] = token == eos
        prefix = torch.cat([prefix, written[:, step : step + 1]], dim=1)
    return written


@two
def greedy_decode__stops_with_the_first_and_eos_lost(next_logits, n_sentences, bos, eos, pad, max_length):
    result = torch.full((n_sentences, max_length), pad)
    tokens = torch.full((n_sentences, 1), bos)
    ended = torch.zeros(n_sentences, dtype=torch.bool)
    for i in range(max_length):
        if ended.any():  # here
            break
        next_token = next_logits(tokens).argmax(dim=-1)
        ended = ended | (next_token == eos)  # here
        next_token = torch.where(ended, pad, next_token)  # here
        result[:, i] = next_token
        tokens = torch.cat([tokens, next_token[:, None]], dim=1)
    return result


@right
def greedy_decode__by_lists_of_python(next_logits, n_sentences, bos, eos, pad, max_length):
    rows = [[bos] for _ in range(n_sentences)]
    still_open = set(range(n_sentences))
    for _ in range(max_length):
        if not still_open:
            for row in rows:
                row.append(pad)
            continue
        table = next_logits(torch.tensor(rows)).tolist()
        for i, (row, logits) in enumerate(zip(rows, table)):
            row.append(max(range(len(logits)), key=logits.__getitem__) if i in still_open else pad)
        still_open = {i for i in still_open if rows[i][-1] != eos}
    return torch.tensor([row[1:] for row in rows], dtype=torch.long)


# -------------------------------------------------------------------------------------------------- linformer_attention


def linformer_attention__masked_at_the_scores(query, key, value, E, F, mask):
    n = key.shape[1]
    k = E.shape[0]
    mixed_keys = E[:, :n] @ key
    mixed_values = F[:, :n] @ value
    scores = query @ mixed_keys.mT / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask[:, None, :k], -torch.inf)  # here
    return scores.softmax(dim=-1) @ mixed_values


def linformer_attention__E_for_the_values(query, key, value, E, F, mask):
    n, d = key.shape[1:]
    K = torch.where(mask[..., None], key, 0.0)
    V = torch.where(mask[..., None], value, 0.0)
    EK = torch.einsum("kn,bnd->bkd", E[:, :n], K)
    FV = torch.einsum("kn,bnv->bkv", E[:, :n], V)  # here
    attn = torch.softmax(torch.einsum("bqd,bkd->bqk", query, EK) / d**0.5, dim=-1)
    return torch.einsum("bqk,bkv->bqv", attn, FV)


def linformer_attention__scaled_by_the_mixtures(query, key, value, E, F, mask):
    padding = mask.logical_not().unsqueeze(-1)
    key, value = key.masked_fill(padding, 0.0), value.masked_fill(padding, 0.0)
    length = mask.size(1)
    short_keys = E.narrow(1, 0, length).matmul(key)
    short_values = F.narrow(1, 0, length).matmul(value)
    scores = query.matmul(short_keys.transpose(1, 2))
    weights = (scores / math.sqrt(short_keys.size(1))).softmax(-1)  # here
    return weights.matmul(short_values)


def linformer_attention__padding_emptied_in_place(query, key, value, E, F, mask):
    for t in (key, value):
        t[~mask] = 0.0  # here
    n_key = key.shape[1]
    keys, values = E[:, :n_key] @ key, F[:, :n_key] @ value
    scores = query @ keys.transpose(-2, -1) * query.shape[-1] ** -0.5
    return torch.softmax(scores, dim=-1) @ values


@two
def linformer_attention__last_columns_and_times_the_mask(query, key, value, E, F, mask):
    n, real = key.shape[1], mask[:, :, None].float()
    E, F = E[:, -n:], F[:, -n:]  # here
    key, value = key * real, value * real  # here
    weights = torch.softmax(query @ (E @ key).mT / math.sqrt(key.shape[2]), dim=2)
    return weights @ (F @ value)


@right
def linformer_attention__sentence_by_sentence(query, key, value, E, F, mask):
    outputs = []
    for q, k, v, is_token in zip(query, key, value, mask):
        at = is_token.nonzero().flatten()
        columns_E, columns_F = E.index_select(1, at), F.index_select(1, at)
        few_keys, few_values = columns_E @ k[at], columns_F @ v[at]
        scores = (q / q.shape[-1] ** 0.5) @ few_keys.T
        outputs.append(scores.softmax(dim=1) @ few_values)
    return torch.stack(outputs)


# --------------------------------------------------------------------------------------------------- MultiHeadAttention


def MultiHeadAttention__every_h_th_number_to_a_head(self, x, memory=None, mask=None):
    if memory is None:
        memory = x

    def split(t):
        return t.unflatten(-1, (-1, self.n_heads)).permute(0, 3, 1, 2)  # here

    q, k, v = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    heads = scores.softmax(dim=-1) @ v
    return self.output(heads.transpose(1, 2).flatten(2))


def MultiHeadAttention__minus_1e_minus_9(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    batch, n_query, d_model = x.shape
    d_head = d_model // self.n_heads
    Q = self.query(x).view(batch, n_query, self.n_heads, d_head).transpose(1, 2)
    K = self.key(memory).view(batch, -1, self.n_heads, d_head).transpose(1, 2)
    V = self.value(memory).view(batch, -1, self.n_heads, d_head).transpose(1, 2)
    scores = torch.matmul(Q, K.transpose(-2, -1)) / math.sqrt(d_head)
    if mask is not None:
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e-9)  # here
    weights = torch.softmax(scores, dim=-1)
    out = torch.matmul(weights, V).transpose(1, 2).contiguous().view(batch, n_query, d_model)
    return self.output(out)


def MultiHeadAttention__a_mask_only_for_a_memory(self, x, memory=None, mask=None):
    if memory is None:
        memory, mask = x, None  # here
    q = self.query(x).unflatten(2, (self.n_heads, -1))
    k = self.key(memory).unflatten(2, (self.n_heads, -1))
    v = self.value(memory).unflatten(2, (self.n_heads, -1))
    e = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        e = torch.where(mask[:, None], e, -torch.inf)
    out = torch.einsum("bhij,bjhd->bihd", e.softmax(dim=-1), v)
    return self.output(out.flatten(2))


def MultiHeadAttention__residual_inside(self, x, memory=None, mask=None):
    source = memory if memory is not None else x
    heads = []
    queries = self.query(x).chunk(self.n_heads, dim=-1)
    keys = self.key(source).chunk(self.n_heads, dim=-1)
    values = self.value(source).chunk(self.n_heads, dim=-1)
    for q, k, v in zip(queries, keys, values):
        scores = q @ k.transpose(1, 2) / math.sqrt(k.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        heads.append(scores.softmax(-1) @ v)
    found = self.output(torch.cat(heads, dim=-1))
    return x + found  # here


@two
def MultiHeadAttention__root_of_d_model_and_heads_not_moved_back(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    b, n, d = x.shape
    q, k, v = (
        layer(t).reshape(b, t.shape[1], self.n_heads, -1).permute(0, 2, 1, 3)
        for layer, t in ((self.query, x), (self.key, memory), (self.value, memory))
    )
    scores = q @ k.mT / d**0.5  # here
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, :, :], -torch.inf)
    out = scores.softmax(dim=-1) @ v
    return self.output(out.reshape(b, n, d))  # here


@right
def MultiHeadAttention__as_a_sum_over_heads(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    d_head = x.shape[-1] // self.n_heads
    total = self.output.bias
    for first in range(0, x.shape[-1], d_head):
        own = slice(first, first + d_head)
        q, k, v = (
            F.linear(t, layer.weight[own], layer.bias[own])
            for t, layer in ((x, self.query), (memory, self.key), (memory, self.value))
        )
        scores = torch.baddbmm(q.new_zeros(()), q, k.mT, beta=0, alpha=d_head**-0.5)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        total = total + F.linear(scores.softmax(dim=-1) @ v, self.output.weight[:, own])
    return total


# ---------------------------------------------------------------------------------------------------------- packed_mask


def packed_mask__back_to_the_last_change(documents):
    batch, n = documents.shape
    mask = torch.zeros(batch, n, n, dtype=torch.bool)
    for b in range(batch):
        for i in range(n):
            for j in range(i, -1, -1):
                if documents[b, j] != documents[b, i]:
                    break  # here
                mask[b, i, j] = True
    return mask


def packed_mask__smaller_numbers_too(documents):
    n = documents.shape[1]
    theirs = documents[:, None, :]
    mine = documents[:, :, None]
    causal = torch.tril(torch.ones(n, n, dtype=torch.bool))
    return (theirs <= mine) & causal  # here


def packed_mask__document_0_is_padding(documents):
    is_token = documents != 0  # here
    same = documents.unsqueeze(2).eq(documents.unsqueeze(1))
    past = torch.ones_like(same).tril()
    return same & past & is_token.unsqueeze(1)  # here


def packed_mask__not_itself(documents):
    i = torch.arange(documents.size(1))
    earlier = i[:, None] > i[None, :]  # here
    same_document = documents[:, :, None] == documents[:, None, :]
    return torch.logical_and(same_document, earlier)


@two
def packed_mask__the_future_and_one_row_for_all(documents):
    row = documents[0]  # here
    n = len(row)
    same = row[:, None] == row[None, :]
    allowed = same & torch.ones(n, n, dtype=torch.bool).triu()  # here
    return allowed.expand(len(documents), n, n)


@right
def packed_mask__by_one_hot_names(documents):
    names, number = documents.unique(return_inverse=True)
    one_hot = F.one_hot(number, len(names)).double()
    common = torch.einsum("bif,bjf->bij", one_hot, one_hot)
    place = torch.arange(documents.shape[-1])
    return (common * (place <= place[:, None])).bool()


# -------------------------------------------------------------------------------------------------------------- softmax


def softmax__axis_1(scores):
    top = scores.amax(dim=-1, keepdim=True)
    e = torch.exp(scores - top)
    return e / e.sum(dim=1, keepdim=True)  # here


def softmax__largest_size_subtracted(scores):
    biggest = scores.masked_fill(scores.isinf(), 0.0).abs().amax(-1, keepdim=True)  # here
    z = (scores - biggest).exp()
    return z / z.sum(-1, keepdim=True)


def softmax__capped_at_80(scores):
    safe = scores.clamp(max=80.0)  # here
    safe = safe - safe.max(dim=-1, keepdim=True).values
    exponentials = safe.exp()
    total = exponentials.sum(dim=-1)
    return exponentials / total[..., None]


def softmax__minus_100_for_the_forbidden(scores):
    scores = torch.where(scores.isinf(), torch.full_like(scores, -100.0), scores)  # here
    shifted = scores - scores.max(dim=-1, keepdim=True)[0]
    num = torch.exp(shifted)
    return num / torch.sum(num, dim=-1, keepdim=True)


@two
def softmax__mean_subtracted_and_one_sum_for_all(scores):
    finite = torch.where(scores.isfinite(), scores, 0.0)
    centred = scores - finite.mean(dim=-1, keepdim=True)  # here
    e = centred.exp()
    return e / e.sum()  # here


@right
def softmax__by_a_product_with_ones(scores):
    (highest, _) = torch.topk(scores, k=1, dim=-1)
    e = math.e ** (scores - highest)
    ones = torch.ones(scores.shape[-1], 1, dtype=scores.dtype)
    return e * (e @ ones).reciprocal()


# ------------------------------------------------------------------------------------------------------------ span_mask


def span_mask__argsort_for_ranks(lot, lengths, p, span):
    n_frames = lot.shape[1]
    frame = torch.arange(n_frames)
    n_spans = (p * lengths).round().clamp(min=1)
    may_start = frame <= lengths[:, None] - span
    rank = lot.masked_fill(~may_start, 2.0).argsort(dim=1)  # here
    starts = rank < n_spans[:, None]  # here
    masked = torch.zeros_like(starts)
    for offset in range(span):
        masked[:, offset:] |= starts[:, : n_frames - offset]
    return masked


def span_mask__the_share_that_is_masked(lot, lengths, p, span):
    out = torch.zeros(lot.shape, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        s = max(1, round(p * n / span))  # here
        _, winners = lot[b, : n - span + 1].topk(min(s, n - span + 1), largest=False)
        for start in winners.tolist():
            out[b, start : start + span] = True
    return out


def span_mask__no_overlap(lot, lengths, p, span):
    mask = torch.zeros_like(lot).bool()
    for b in range(len(lot)):
        n = int(lengths[b])
        left = max(round(p * n), 1)
        for i in lot[b, : n - span + 1].argsort().tolist():
            if left == 0:
                break
            if mask[b, i : i + span].any():  # here
                continue
            mask[b, i : i + span] = True
            left -= 1
    return mask


def span_mask__the_last_start_left_out(lot, lengths, p, span):
    rows = []
    for draws, n in zip(lot.tolist(), lengths.tolist()):
        candidates = range(n - span)  # here
        winners = sorted(candidates, key=lambda i: draws[i])[: max(1, round(p * n))]
        rows.append([any(start <= i < start + span for start in winners) for i in range(len(draws))])
    return torch.tensor(rows)


@two
def span_mask__the_highest_and_rounded_down(lot, lengths, p, span):
    batch, n_frames = lot.shape
    t = torch.arange(n_frames)
    lottery = lot.clone()
    lottery[t[None] > (lengths - span)[:, None]] = -1.0
    order = lottery.argsort(dim=1, descending=True)  # here
    result = torch.zeros(batch, n_frames, dtype=torch.bool)
    for b in range(batch):
        s = max(int(p * int(lengths[b])), 1)  # here
        covered = order[b, :s, None] + torch.arange(span)
        result[b, covered.flatten()] = True
    return result


@right
def span_mask__by_counting_and_differences(lot, lengths, p, span):
    i = torch.arange(lot.shape[1])
    may_start = (i + span) <= lengths.unsqueeze(1)
    # How many that may start have drawn a lower number?
    lower = (lot.unsqueeze(1) < lot.unsqueeze(2)) & may_start.unsqueeze(1)
    n_spans = (lengths.double() * p).round().clamp(min=1)
    starts = may_start & (lower.sum(dim=2) < n_spans.unsqueeze(1))
    begun = starts.cumsum(dim=1)
    over = F.pad(begun, (span, 0))[:, : lot.shape[1]]
    return begun > over


# ---------------------------------------------------------------------------------------------------------- transformer


def transformer__memories_of_the_same_depth(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    batch, k, n = target.shape
    x = embed_source(source)
    levels = [x]
    for block in encoder_blocks:
        x = block(x, source_mask)
        levels.append(x)
    memories = [encoder_norm(level).repeat_interleave(k, dim=0) for level in levels]
    memory_mask = source_mask.repeat_interleave(k, dim=0)
    rows = target.reshape(batch * k, n)
    start = torch.full((batch * k, 1), bos)
    y = embed_target(torch.cat([start, rows[:, :-1]], dim=1))
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    for depth, block in enumerate(decoder_blocks, start=1):
        memory = memories[min(depth, len(memories) - 1)]  # here
        y = block(y, memory, causal, memory_mask)
    return output(decoder_norm(y)).unflatten(0, (batch, k))


def transformer__every_candidate_reads_again(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    k = target.shape[1]
    source, source_mask = (t.repeat_interleave(k, dim=0) for t in (source, source_mask))  # here
    memory = embed_source(source)
    for enc in encoder_blocks:
        memory = enc(memory, source_mask)
    memory = encoder_norm(memory)
    tgt = target.flatten(0, 1)
    tgt_in = torch.roll(tgt, 1, dims=1)
    tgt_in[:, 0] = bos
    mask = torch.tril(torch.ones(tgt.size(1), tgt.size(1))).bool()
    h = embed_target(tgt_in)
    for dec in decoder_blocks:
        h = dec(h, memory, mask, source_mask)
    logits = output(decoder_norm(h))
    return logits.reshape(-1, k, *logits.shape[1:])


def transformer__one_bos_for_all(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    b, k, n = target.shape
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    memory = memory[:, None].expand(-1, k, -1, -1).reshape(b * k, *memory.shape[1:])
    memory_mask = source_mask[:, None].expand(-1, k, -1, -1).reshape(b * k, 1, -1)
    shifted = torch.cat([target.new_tensor([bos]), target.flatten()[:-1]])  # here
    y = embed_target(shifted.view(b * k, n))
    i = torch.arange(n)
    for block in decoder_blocks:
        y = block(y, memory, i[None] <= i[:, None], memory_mask)
    return output(decoder_norm(y)).view(b, k, n, -1)


def transformer__true_where_forbidden(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    n_candidates, length = target.shape[1:]
    enc = embed_source(source)
    for layer in encoder_blocks:
        enc = layer(enc, source_mask)
    enc = torch.repeat_interleave(encoder_norm(enc), n_candidates, dim=0)
    enc_mask = torch.repeat_interleave(source_mask, n_candidates, dim=0)
    no_peeking = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)  # here
    read = torch.full_like(target, bos)
    read[:, :, 1:] = target[:, :, :-1]
    dec = embed_target(read.flatten(0, 1))
    for layer in decoder_blocks:
        dec = layer(dec, enc, no_peeking, enc_mask)
    return output(decoder_norm(dec)).reshape(*target.shape, -1)


@two
def transformer__sources_in_turn_and_no_last_norm(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    batch, k, n = target.shape
    x = embed_source(source)
    for block in encoder_blocks:
        x = block(x, source_mask)
    memory = encoder_norm(x).repeat(k, 1, 1)  # here
    memory_mask = source_mask.repeat(k, 1, 1)  # here
    first = torch.full((batch, k, 1), bos)
    y = embed_target(torch.cat([first, target[..., :-1]], dim=-1).flatten(0, 1))
    causal = torch.tril(torch.ones(n, n, dtype=torch.bool))
    for block in decoder_blocks:
        y = block(y, memory, causal, memory_mask)
    return output(y).view(batch, k, n, -1)  # here


@right
def transformer__by_reduce_and_indices(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output,
):  # fmt: skip
    batch, k, n = target.shape
    memory = encoder_norm(reduce(lambda x, block: block(x, source_mask), encoder_blocks, embed_source(source)))
    belongs_to = torch.arange(batch * k).div(k, rounding_mode="floor")
    masks = torch.full((n, n), True).triu(1).logical_not(), source_mask[belongs_to]
    shifted = F.pad(target[..., :-1], (1, 0), value=bos).reshape(batch * k, n)
    states = reduce(lambda y, block: block(y, memory[belongs_to], *masks), decoder_blocks, embed_target(shifted))
    return output(decoder_norm(states)).unflatten(0, (batch, k))
