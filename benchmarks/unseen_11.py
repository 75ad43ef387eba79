"""An eleventh draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Written from the released notebooks alone (assignments 01, 02, 04 and 07 to 09): the exercises' modules, the solutions,
the lectures and the tests stayed closed. No check and no search for the line was run on the answers. They were only
compared with one another and with the formulas of the notebooks, on small inputs.
"""

import math
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

# ----------------------------------------------------------------------------------------------------------- perplexity


def perplexity__every_text_counts_the_same(log_probabilities, mask):
    per_text = []
    for row, there in zip(log_probabilities, mask, strict=True):
        per_text.append(row[there].mean())  # here
    return torch.exp(-torch.stack(per_text).mean())  # here


def perplexity__padding_counted_among_the_tokens(log_probabilities, mask):
    surprise = torch.where(mask, -log_probabilities, 0.0)
    n_tokens = surprise.numel()  # here
    return (surprise.sum() / n_tokens).exp()


def perplexity__exponential_before_the_mean(log_probabilities, mask):
    choices = torch.exp(-log_probabilities[mask])  # here
    return choices.mean()  # here


def perplexity__root_after_the_exponential(log_probabilities, mask):
    total = log_probabilities.masked_fill(~mask, 0.0).sum()
    one_over_product = torch.exp(-total)  # here
    return one_over_product ** (1 / mask.sum())  # here


@two
def perplexity__base_two_and_padding_read(log_probabilities, mask):
    n_tokens = mask.sum()
    loss = -torch.einsum("bt->", log_probabilities) / n_tokens  # here
    return 2**loss  # here


@right
def perplexity__as_a_classifier_with_one_class(log_probabilities, mask):
    # Each place has one class to choose from, number 0; the padding's class is the one that nll_loss leaves out.
    classes = torch.where(mask, 0, -100)
    return F.nll_loss(log_probabilities.reshape(-1, 1), classes.reshape(-1)).exp()


# ------------------------------------------------------------------------------------------------------------- rnn_step


def rnn_step__nothing_left_of_a_text_that_is_over(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h + b)
    return new * there.unsqueeze(-1)  # here


def rnn_step__padding_set_to_zero_and_stepped_on(x, state, there, W_x, W_h, b):
    x = torch.where(there[:, None], x, torch.zeros_like(x))  # here
    z = torch.addmm(b, x, W_x) + state.mm(W_h)
    return z.tanh()  # here


def rnn_step__state_through_the_transposed_matrix(x, state, there, W_x, W_h, b):
    from_input = torch.einsum("bi,ih->bh", x, W_x)
    from_state = torch.einsum("bk,hk->bh", state, W_h)  # here
    new = torch.tanh(from_input + from_state + b)
    return torch.where(there.unsqueeze(1), new, state)


def rnn_step__the_kept_state_squashed_as_well(x, state, there, W_x, W_h, b):
    rows = []
    for i in range(len(x)):
        before = x[i] @ W_x + state[i] @ W_h + b if there[i] else state[i]  # here
        rows.append(torch.tanh(before))  # here
    return torch.stack(rows)


@two
def rnn_step__the_other_texts_step_and_the_bias_outside(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h) + b  # here
    over = there[:, None]  # here
    return torch.where(over, state, new)


@right
def rnn_step__one_matrix_for_the_texts_that_go_on(x, state, there, W_x, W_h, b):
    going = there.nonzero().squeeze(1)
    # (x, h, 1) times the three of them, one below the other. The rest is not computed at all.
    row = torch.cat([x[going], state[going], x.new_ones(len(going), 1)], dim=1)
    new = (row @ torch.cat([W_x, W_h, b[None]])).tanh()
    return state.index_copy(0, going, new)


# ------------------------------------------------------------------------------------------------------- pre_norm_stack


def pre_norm_stack__the_stream_is_normed(x, blocks, final_norm):
    x = final_norm(x)  # here
    levels = [x]
    for block in blocks:
        x = final_norm(block(x))  # here
        levels.append(x)
    return torch.stack(levels)


def pre_norm_stack__one_more_residual(x, blocks, final_norm):
    levels = [final_norm(x)]
    for f in blocks:
        x = x + f(x)  # here
        levels.append(final_norm(x))
    return torch.stack(levels, dim=0)


def pre_norm_stack__every_block_reads_the_bottom(x, blocks, final_norm):
    steps = [x] + [block(x) for block in blocks]  # here
    return torch.stack([final_norm(step) for step in steps])


def pre_norm_stack__only_the_last_level_is_normed(x, blocks, final_norm):
    levels = list(accumulate(blocks, lambda h, block: block(h), initial=x))
    levels[-1] = final_norm(levels[-1])  # here
    return torch.stack(levels)


@two
def pre_norm_stack__highest_first_and_the_batch_in_front(x, blocks, final_norm):
    levels = [final_norm(x)]
    for block in blocks:
        x = block(x)
        levels.insert(0, final_norm(x))  # here
    return torch.stack(levels, dim=1)  # here


@right
def pre_norm_stack__all_levels_normed_as_one_batch(x, blocks, final_norm):
    # A norm looks at one vector at a time, so the levels may be so many more sentences.
    levels = torch.cat(list(accumulate(blocks, lambda h, block: block(h), initial=x)))
    return final_norm(levels).unflatten(0, (len(blocks) + 1, len(x)))


# ----------------------------------------------------------------------------------------------------- repair_the_block


def repair_the_block__ones_added_where_hidden(self, x, mask):
    h = self.norm_1(x)
    hidden = (~mask).to(x.dtype)  # here
    found, _ = self.attention(h, h, h, attn_mask=hidden)  # here
    x = x + found
    return x + self.down(self.up(self.norm_2(x)).relu())


def repair_the_block__only_the_queries_are_normed(self, x, mask):
    found, _ = self.attention(self.norm_1(x), x, x, attn_mask=mask.logical_not(), need_weights=False)  # here
    x = x + found
    h = F.relu(self.up(self.norm_2(x)))
    return x + self.down(h)


def repair_the_block__both_sublayers_side_by_side(self, x, mask):
    to_attend, to_think = self.norm_1(x), self.norm_2(x)  # here
    attended = self.attention(to_attend, to_attend, to_attend, attn_mask=~mask)[0]
    thought = self.down(torch.relu(self.up(to_think)))  # here
    return x + attended + thought


def repair_the_block__written_into_the_input(self, x, mask):
    normed = self.norm_1(x)
    with_mask = {"attn_mask": mask == 0, "need_weights": False}
    x += self.attention(normed, normed, normed, **with_mask)[0]  # here
    return x + self.down(self.up(self.norm_2(x)).clamp(min=0))


@two
def repair_the_block__mask_as_it_comes_and_the_first_norm_twice(self, x, mask):
    h = self.norm_1(x)
    found, _ = self.attention(h, h, h, attn_mask=mask)  # here
    x = x + found
    h = self.norm_1(x)  # here
    x = x + self.down(self.up(h).relu())
    return x


@right
def repair_the_block__each_position_is_shown_its_own_keys(self, x, mask):
    normed = self.norm_1(x)
    found = []
    for i, allowed in enumerate(mask):
        seen = normed[:, allowed]  # what is not there need not be masked
        found.append(self.attention(normed[:, i : i + 1], seen, seen)[0])
    middle = x + torch.cat(found, dim=1)
    return F.linear(self.up(self.norm_2(middle)).clamp_min(0), self.down.weight, self.down.bias).add(middle)


# ----------------------------------------------------------------------------------------------------- scaled_dot_score


def scaled_dot_score__root_of_the_number_of_keys(query, key):
    scale = math.sqrt(key.shape[1])  # here
    return torch.bmm(query, key.transpose(1, 2)) / scale


def scaled_dot_score__over_the_length_of_each_key(query, key):
    scores = torch.einsum("bqd,bkd->bqk", query, key)
    width = key.norm(dim=-1)  # here
    return scores / width[:, None, :]


def scaled_dot_score__reshaped_in_place_of_transposed(query, key):
    batch, n_key, d_k = key.shape
    columns = key.reshape(batch, d_k, n_key)  # here
    return (query @ columns) * d_k**-0.5


def scaled_dot_score__query_and_key_both_scaled(query, key):
    root = query.size(-1) ** 0.5
    query = query / root  # here
    key = key / root  # here
    scores = [q @ k.T for q, k in zip(query, key, strict=True)]
    return torch.stack(scores)


@two
def scaled_dot_score__a_row_for_each_key_and_not_scaled(query, key):
    products = key @ query.mT  # here
    return products  # here


@right
def scaled_dot_score__the_fourth_root_on_either_side(query, key):
    quarter = query.shape[-1] ** -0.25
    scores = query.new_zeros(query.shape[0], query.shape[1], key.shape[1])
    for q, k in zip(query.mul(quarter).unbind(-1), key.mul(quarter).unbind(-1), strict=True):
        scores = scores + q.unsqueeze(2) * k.unsqueeze(1)  # one feature at a time: an outer product
    return scores


# ---------------------------------------------------------------------------------------------------- decoder_attention


def decoder_attention__padding_hidden_as_a_query(query, key, value, is_token):
    n, d_head = query.shape[-2:]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    allowed = causal & is_token[:, None, :, None]  # here
    scores = query @ key.mT / math.sqrt(d_head)
    weights = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1)
    weights = weights.masked_fill(~allowed, 0.0)
    return weights @ value


def decoder_attention__padding_always_at_the_end(query, key, value, is_token):
    n = query.shape[2]
    place = torch.arange(n)
    lengths = is_token.sum(dim=1)  # here
    there = place < lengths[:, None]  # here
    allowed = (place[None, :] <= place[:, None]) & there[:, None, None, :]
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * query.shape[3] ** -0.5
    scores = torch.where(allowed, scores, -1e9)
    weights = torch.where(allowed, scores.softmax(-1), 0.0)
    return torch.einsum("bhij,bhjd->bhid", weights, value)


def decoder_attention__zero_over_zero_replaced_at_the_end(query, key, value, is_token):
    n = key.size(2)
    allowed = is_token[:, None, None, :] & torch.ones(n, n, dtype=torch.bool).tril()
    scores = (query / query.size(-1) ** 0.5) @ key.transpose(-2, -1)
    highest = scores.masked_fill(~allowed, -torch.inf).amax(dim=-1, keepdim=True)
    terms = torch.where(allowed, scores - highest, -torch.inf).exp()
    weights = terms / terms.sum(dim=-1, keepdim=True)  # here
    return torch.nan_to_num(weights @ value)  # here


def decoder_attention__root_of_the_whole_width(query, key, value, is_token):
    batch, n_heads, n, d_head = query.shape
    hidden = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1) | ~is_token.view(batch, 1, 1, n)
    scores = query @ key.mT / math.sqrt(n_heads * d_head)  # here
    nothing = hidden.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~nothing, -torch.inf)
    return scores.softmax(dim=-1).masked_fill(hidden, 0.0) @ value


@two
def decoder_attention__either_reason_is_enough_and_softmax_over_the_queries(query, key, value, is_token):
    n = query.shape[2]
    place = torch.arange(n)
    past = place <= place.unsqueeze(1)
    allowed = past | is_token[:, None, None, :]  # here
    scores = query.matmul(key.mT).div(math.sqrt(key.shape[-1]))
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-2)  # here
    return weights.matmul(value)


@right
def decoder_attention__each_query_is_handed_what_it_may_see(query, key, value, is_token):
    d_head = key.shape[-1]
    sentences = []
    for q, k, v, there in zip(query, key, value, is_token, strict=True):
        rows = []
        for i in range(there.numel()):
            seen = there[: i + 1].nonzero().squeeze(1)
            scores = torch.einsum("hd,hjd->hj", q[:, i], k[:, seen]) / math.sqrt(d_head)
            # Of no keys at all the softmax is empty, and the sum over nothing is 0.
            rows.append((scores.softmax(dim=-1).unsqueeze(-1) * v[:, seen]).sum(dim=1))
        sentences.append(torch.stack(rows, dim=1))
    return torch.stack(sentences)


# ----------------------------------------------------------------------------------------------------- count_parameters


def count_parameters__keys_and_values_share_a_matrix(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = (vocab_size + max_length) * d_model
    queries = (d_model + 1) * n_heads * d_head
    keys_and_values = (d_model + 1) * n_kv_heads * d_head  # here
    output = (n_heads * d_head + 1) * d_model
    attention = n_layers * (queries + keys_and_values + output)  # here
    feed_forward = n_layers * ((d_model + 1) * d_ff + (d_ff + 1) * d_model)
    norms = (2 * n_layers + 1) * 2 * d_model
    return embeddings, attention, feed_forward, norms


def count_parameters__every_bias_of_the_feed_forward_is_wide(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    d_q, d_kv = n_heads * d_head, n_kv_heads * d_head
    attention = feed_forward = norms = 0
    for _ in range(n_layers):
        attention += d_model * d_q + d_q + 2 * (d_model * d_kv + d_kv) + d_q * d_model + d_model
        feed_forward += 2 * (d_model * d_ff + d_ff)  # here
        norms += 2 * (d_model + d_model)
    norms += d_model + d_model
    return vocab_size * d_model + max_length * d_model, attention, feed_forward, norms


def count_parameters__output_as_if_the_heads_filled_the_width(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    def linear(d_in, d_out):
        return d_in * d_out + d_out

    attention = linear(d_model, n_heads * d_head) + 2 * linear(d_model, n_kv_heads * d_head)
    attention += linear(d_model, d_model)  # here
    feed_forward = linear(d_model, d_ff) + linear(d_ff, d_model)
    tables = d_model * (vocab_size + max_length)
    return tables, n_layers * attention, n_layers * feed_forward, 2 * d_model * (2 * n_layers + 1)


def count_parameters__a_last_norm_in_every_block(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    weights = 2 * d_model * d_head * (n_heads + n_kv_heads)
    biases = d_head * (n_heads + 2 * n_kv_heads) + d_model
    norm = 2 * d_model
    block = (weights + biases, 2 * d_model * d_ff + d_ff + d_model, 3 * norm)  # here
    attention, feed_forward, norms = (n_layers * part for part in block)  # here
    return d_model * (vocab_size + max_length), attention, feed_forward, norms


@two
def count_parameters__two_tables_of_tokens_and_norms_without_a_bias(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = 2 * vocab_size * d_model + max_length * d_model  # here
    shapes = [(d_model, n_heads * d_head), (d_model, n_kv_heads * d_head), (d_model, n_kv_heads * d_head),
              (n_heads * d_head, d_model)]  # fmt: skip
    attention = n_layers * sum(rows * columns + columns for rows, columns in shapes)
    feed_forward = n_layers * sum(rows * columns + columns for rows, columns in [(d_model, d_ff), (d_ff, d_model)])
    norms = (2 * n_layers + 1) * d_model  # here
    return embeddings, attention, feed_forward, norms


@right
def count_parameters__by_building_it_without_memory(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    with torch.device("meta"):
        embeddings = nn.ModuleList(nn.Embedding(size, d_model) for size in (vocab_size, max_length))
        attention, feed_forward, norms = nn.ModuleList(), nn.ModuleList(), nn.ModuleList([nn.LayerNorm(d_model)])
        for _ in range(n_layers):
            # Queries, keys and values come out of one layer, side by side.
            attention.append(nn.Linear(d_model, (n_heads + 2 * n_kv_heads) * d_head))
            attention.append(nn.Linear(n_heads * d_head, d_model))
            feed_forward.extend([nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)])
            norms.extend(nn.LayerNorm(d_model) for _ in range(2))
    parts = embeddings, attention, feed_forward, norms
    return tuple(sum(p.numel() for p in part.parameters()) for part in parts)


# ---------------------------------------------------------------------------------------------------------- prefix_mask


def prefix_mask__a_prefix_that_sees_everything(lengths, n):
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    in_prefix = torch.arange(n) < lengths[:, None]
    return causal | in_prefix[:, :, None]  # here


def prefix_mask__one_token_more(lengths, n):
    i = torch.arange(n).view(1, n, 1)
    j = torch.arange(n).view(1, 1, n)
    prefix = j <= lengths.view(-1, 1, 1)  # here
    return (j <= i) | prefix


def prefix_mask__longest_prefix_for_all(lengths, n):
    mask = torch.ones(n, n).tril().bool().repeat(len(lengths), 1, 1)
    mask[:, :, : lengths.max()] = True  # here
    return mask


def prefix_mask__the_rest_without_itself(lengths, n):
    mask = torch.zeros(len(lengths), n, n, dtype=torch.bool)
    for b, k in enumerate(lengths.tolist()):
        mask[b, :, :k] = True
        for i in range(k, n):
            mask[b, i, k:i] = True  # here
    return mask


@two
def prefix_mask__the_future_and_both_from_one_side(lengths, n):
    place = torch.arange(n)
    order = place[:, None] <= place[None, :]  # here
    prefix = place.expand(len(lengths), n) < lengths[:, None]
    return order & prefix[:, None, :]  # here


@right
def prefix_mask__the_prefix_is_written_in_one_go(lengths, n):
    place = torch.arange(n, device=lengths.device).expand(len(lengths), n)
    # When each token is written: the whole prefix at time 0. Nobody looks at what is written later.
    time = place.masked_fill(place < lengths.unsqueeze(1), 0)
    return time.unsqueeze(2).ge(time.unsqueeze(1))


# ---------------------------------------------------------------------------------------------------------- shift_right


def shift_right__the_end_is_read_too(target, lengths, bos, eos, pad):
    batch, n = target.shape
    text = torch.full((batch, n + 2), pad)
    for b in range(batch):
        k = int(lengths[b])
        text[b, 0] = bos
        text[b, 1 : k + 1] = target[b, :k]
        text[b, k + 1] = eos
    return text[:, :-1], text[:, 1:]  # here


def shift_right__reads_on_after_the_end(target, lengths, bos, eos, pad):
    batch, n = target.shape
    t = torch.arange(n + 1)
    end = lengths[:, None]
    begin = target.new_full((batch, 1), bos)
    target_in = torch.cat([begin, target], dim=1)  # here
    target_out = F.pad(target, (0, 1), value=pad)
    target_out = torch.where(t < end, target_out, torch.where(t == end, eos, pad))
    return target_in, target_out


def shift_right__padded_where_it_lies(target, lengths, bos, eos, pad):
    n = target.shape[1]
    over = torch.arange(n)[None, :] >= lengths[:, None]
    clean = target.masked_fill_(over, pad)  # here
    target_in = F.pad(clean, (1, 0), value=bos)
    target_out = F.pad(clean, (0, 1), value=pad).scatter(1, lengths[:, None], eos)
    return target_in, target_out


def shift_right__nothing_for_an_empty_sentence(target, lengths, bos, eos, pad):
    batch, n = target.shape
    target_in = target.new_full((batch, n + 1), pad)
    target_out = target.new_full((batch, n + 1), pad)
    for b, k in enumerate(lengths.tolist()):
        if k == 0:  # here
            continue  # here
        sentence = target[b, :k].tolist()
        target_in[b, : k + 1] = torch.tensor([bos, *sentence])
        target_out[b, : k + 1] = torch.tensor([*sentence, eos])
    return target_in, target_out


@two
def shift_right__what_is_predicted_first_and_the_end_in_the_last_column(target, lengths, bos, eos, pad):
    batch, n = target.shape
    kept = torch.where(torch.arange(n) < lengths.unsqueeze(1), target, pad)
    first, last = (torch.full((batch, 1), token, dtype=target.dtype) for token in (bos, eos))
    reads = torch.hstack([first, kept])
    predicts = torch.hstack([kept, last])  # here
    return predicts, reads  # here


@right
def shift_right__by_looking_up_every_place(target, lengths, bos, eos, pad):
    batch, n = target.shape
    # Behind the sentence stand the three special tokens, and each place says where its token is.
    special = torch.tensor([bos, eos, pad], dtype=target.dtype, device=target.device)
    shelf = torch.cat([target, special.expand(batch, 3)], dim=1)
    t = torch.arange(n + 1, device=target.device).repeat(batch, 1)
    behind = t - lengths.unsqueeze(1)
    reads = (t - 1).masked_fill(t == 0, n).masked_fill(behind > 0, n + 2)
    predicts = t.masked_fill(behind == 0, n + 1).masked_fill(behind > 0, n + 2)
    return shelf.gather(1, reads), shelf.gather(1, predicts)


# -------------------------------------------------------------------------------------------------- self_attention_loop


def self_attention_loop__one_maximum_for_all_who_ask(x, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    root = math.sqrt(W_K.shape[1])
    scores = torch.stack([K @ q / root for q in Q])
    highest = scores.max()  # here
    rows = []
    for e in scores:
        terms = torch.exp(e - highest)  # here
        rows.append(terms @ V / terms.sum())
    return torch.stack(rows)


def self_attention_loop__root_of_the_width_of_a_token(x, W_Q, W_K, W_V):
    n, d = x.shape
    outputs = []
    for i in range(n):
        q = x[i] @ W_Q
        e = torch.stack([(q * (x[j] @ W_K)).sum() for j in range(n)]) / d**0.5  # here
        alpha = torch.exp(e - e.max())
        alpha = alpha / alpha.sum()
        outputs.append(sum(alpha[j] * (x[j] @ W_V) for j in range(n)))
    return torch.stack(outputs)


def self_attention_loop__sums_that_are_never_emptied(x, W_Q, W_K, W_V):
    n = len(x)
    queries, keys, values = (torch.einsum("nd,dk->nk", x, W) for W in (W_Q, W_K, W_V))
    out = []
    total, o = 0.0, torch.zeros(W_V.shape[1])  # here
    for i in range(n):  # here
        e = keys @ queries[i] * W_Q.shape[1] ** -0.5
        top = e.amax()
        for j in range(n):
            term = (e[j] - top).exp()
            total = total + term
            o = o + term * values[j]
        out.append(o / total)
    return torch.stack(out)


def self_attention_loop__scores_copied_into_a_new_tensor(x, W_Q, W_K, W_V):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    result = []
    for i in range(x.shape[0]):
        scores = torch.tensor([float(q[i] @ k[j]) for j in range(x.shape[0])], dtype=x.dtype)  # here
        scores = scores / math.sqrt(k.shape[1])
        weights = torch.exp(scores - scores.max())
        result.append((weights / weights.sum()) @ v)
    return torch.stack(result)


@two
def self_attention_loop__the_others_only_and_no_maximum(x, W_Q, W_K, W_V):
    d_k = W_K.size(1)
    received = torch.zeros(x.size(0), W_V.size(1))
    for i, asks in enumerate(x):
        total, mixed = 0.0, 0.0
        for j, answers in enumerate(x):
            if i != j:  # here
                term = torch.exp((asks @ W_Q) @ (answers @ W_K) / math.sqrt(d_k))  # here
                total = total + term
                mixed = mixed + term * (answers @ W_V)
        received[i] = mixed / total
    return received


@right
def self_attention_loop__each_answer_moves_what_was_received(x, W_Q, W_K, W_V):
    received = []
    for asks in x:
        # The token's own answer comes as it stands; then each answer pulls by its share of all weight so far.
        to_keys = W_K @ (asks @ W_Q) / math.sqrt(W_Q.shape[1])
        log_total, o = x[0] @ to_keys, x[0] @ W_V
        for answers in x[1:]:
            e = answers @ to_keys
            o = torch.lerp(o, answers @ W_V, torch.sigmoid(e - log_total))
            log_total = torch.logaddexp(log_total, e)
        received.append(o)
    return torch.stack(received)
