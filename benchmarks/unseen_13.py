"""A thirteenth draw: seven wrong answers with one mistake each, two with two, and a right one, to nine exercises.

Written from the released notebooks alone (assignments 01, 02, 05 to 07, 09, 10 and 14): the exercises' modules, the
solutions, the lectures and the tests stayed closed. No check and no search for the line was run on the answers. They
were only compared with one another and with the formulas of the notebooks, on small inputs. The answers to `perplexity`
and the first ones to `rnn_step` in the eleventh draw had been seen, as an example of the format. Their mistakes are
avoided here, but the two answers to `perplexity` with two mistakes come close to its base and its padding.

Two of them were written as wrong and are right by the contract: a float that is a whole number (`memory_and_flops`),
and a product that is divided afterwards, as our solution does it (`masked_attention`). Of the other 79 wrong answers,
2 earned all points before anything was mended by this draw.
"""

import math
from collections import Counter

import torch
from torch import nn
from unseen import right, two

# ----------------------------------------------------------------------------------------------------- memory_and_flops


def memory_and_flops__moments_doubled_in_the_callers_table(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    bytes_each["moments"] *= 2  # here
    memory = n_parameters * sum(bytes_each.values())
    tokens = batch * (n_source + n_target)
    rule = 3 * n_parameters * tokens
    projections = 3 * n_layers * tokens * 12 * d_model**2
    pairs = n_source**2 + n_target**2 + n_source * n_target
    scores = 3 * n_layers * batch * pairs * 4 * d_model
    feed_forward = 3 * n_layers * tokens * 4 * d_model * d_ff
    output = 3 * batch * n_target * 2 * d_model * vocab_size
    return memory, rule, projections, scores, feed_forward, output


@right
def memory_and_flops__half_of_the_parameters_is_a_float(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    b = bytes_each
    per_parameter = b["weights"] + b["gradients"] + b["moments"] + b["moments"] + b["master"]
    one_stack = n_parameters / 2  # here
    rule = 6 * one_stack * batch * n_source + 6 * one_stack * batch * n_target

    enc_rows, dec_rows = batch * n_source, batch * n_target
    square = 2 * d_model * d_model
    proj = square * (4 * enc_rows + 4 * dec_rows + 2 * dec_rows + 2 * enc_rows)
    attend = 2 * 2 * d_model * batch * (n_source * n_source + n_target * n_target + n_target * n_source)
    ffn = 2 * (2 * d_model * d_ff) * (enc_rows + dec_rows)
    logits = 2 * d_model * vocab_size * dec_rows
    return (
        per_parameter * n_parameters, rule,
        3 * n_layers * proj, 3 * n_layers * attend, 3 * n_layers * ffn, 3 * logits,
    )  # fmt: skip


def memory_and_flops__cross_attention_projects_targets_alone(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    def product(n, a, b):
        return 2 * n * a * b

    step = 3 * batch
    memory = n_parameters * (sum(bytes_each.values()) + bytes_each["moments"])
    rule = 6 * (n_parameters // 2) * batch * (n_source + n_target)
    encoder_self = 4 * product(n_source, d_model, d_model)
    decoder_self = 4 * product(n_target, d_model, d_model)
    cross = 4 * product(n_target, d_model, d_model)  # here
    projections = step * n_layers * (encoder_self + decoder_self + cross)
    scores = 0
    for n_query, n_key in ((n_source, n_source), (n_target, n_target), (n_target, n_source)):
        scores += product(n_query, d_model, n_key) + product(n_query, n_key, d_model)
    scores *= step * n_layers
    network = sum(product(n, d_model, d_ff) + product(n, d_ff, d_model) for n in (n_source, n_target))
    return memory, rule, projections, scores, step * n_layers * network, step * product(n_target, d_model, vocab_size)


def memory_and_flops__the_batch_as_one_long_text(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    S, T = batch * n_source, batch * n_target
    bytes_of_one = bytes_each["weights"] + bytes_each["gradients"] + 2 * bytes_each["moments"] + bytes_each["master"]
    total_bytes = bytes_of_one * n_parameters
    by_rule = 6 * (S + T) * (n_parameters // 2)
    in_projections = n_layers * (S + T) * 6 * 2 * d_model * d_model
    in_scores = n_layers * (S * S + T * T + S * T) * 2 * 2 * d_model  # here
    in_networks = n_layers * (S + T) * 2 * 2 * d_model * d_ff
    in_output = T * 2 * d_model * vocab_size
    exact = [3 * forward for forward in (in_projections, in_scores, in_networks, in_output)]
    return total_bytes, by_rule, *exact


def memory_and_flops__half_the_square_under_the_causal_mask(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    numbers = {"weights": 1, "gradients": 1, "moments": 2, "master": 1}
    memory = sum(n_parameters * count * bytes_each[kind] for kind, count in numbers.items())
    tokens = batch * n_source + batch * n_target
    cells = n_source * n_source
    cells += n_target * (n_target + 1) // 2  # here
    cells += n_target * n_source
    forward_and_backward = 3
    return (
        memory,
        3 * n_parameters * tokens,
        forward_and_backward * n_layers * 12 * d_model * d_model * tokens,
        forward_and_backward * n_layers * 4 * d_model * cells * batch,
        forward_and_backward * n_layers * 4 * d_model * d_ff * tokens,
        forward_and_backward * 2 * d_model * vocab_size * batch * n_target,
    )


def memory_and_flops__logits_for_the_source_too(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    n_tokens = batch * (n_source + n_target)
    flops_per_token = {
        "projections": n_layers * 6 * 2 * d_model**2,
        "networks": n_layers * 2 * 2 * d_model * d_ff,
        "output": 2 * d_model * vocab_size,
    }
    projections, networks, output = (3 * n_tokens * f for f in flops_per_token.values())  # here
    scores = 3 * batch * n_layers * 4 * d_model * ((n_source + n_target) ** 2 - n_source * n_target)
    memory = bytes_each["master"] + bytes_each["weights"] + bytes_each["gradients"] + 2 * bytes_each["moments"]
    return memory * n_parameters, n_parameters // 2 * 6 * n_tokens, projections, scores, networks, output


def memory_and_flops__one_matrix_in_the_network(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    w, g, m, copy = (bytes_each[name] for name in ("weights", "gradients", "moments", "master"))
    projections = scores = feed_forward = 0
    for _ in range(n_layers):
        for n in (n_source, n_target):  # self-attention and the network, on both sides
            projections += 4 * (2 * n * d_model * d_model)
            scores += 2 * (2 * n * n * d_model)
            feed_forward += 2 * n * d_model * d_ff  # here
        projections += 2 * (2 * n_target * d_model * d_model) + 2 * (2 * n_source * d_model * d_model)
        scores += 2 * (2 * n_target * n_source * d_model)
    output = 2 * n_target * d_model * vocab_size
    rule = 6 * n_parameters * batch * (n_source + n_target) // 2
    return (
        n_parameters * (w + g + m + m + copy),
        rule,
        *(3 * batch * part for part in (projections, scores, feed_forward, output)),
    )


@two
def memory_and_flops__one_moment_and_every_parameter_met(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    memory = 0
    for kind in ("weights", "gradients", "moments", "master"):
        memory += n_parameters * bytes_each[kind]  # here
    both = n_source + n_target
    rule = 6 * n_parameters * batch * both  # here
    unit = 2 * 3 * batch * d_model
    projections = unit * n_layers * d_model * (4 * n_source + 4 * n_target + 2 * n_source + 2 * n_target)
    scores = unit * n_layers * 2 * (n_source**2 + n_target**2 + n_source * n_target)
    feed_forward = unit * n_layers * 2 * d_ff * both
    return memory, rule, projections, scores, feed_forward, unit * n_target * vocab_size


@two
def memory_and_flops__the_averages_forgotten_and_backward_alone(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    per_weight = sum(size * (2 if kind == "moments" else 1) for kind, size in bytes_each.items())
    passes = 2  # here
    s, t = n_source, n_target
    by_sentence = {
        "projections": n_layers * 2 * d_model**2 * (4 * s + 4 * t + 2 * (s + t)),
        "scores": n_layers * 2 * d_model * (s * s + t * t + t * s),  # here
        "networks": n_layers * 2 * (2 * d_model * d_ff) * (s + t),
        "output": 2 * t * d_model * vocab_size,
    }
    rule = 6 * (n_parameters // 2) * batch * (s + t)
    return (n_parameters * per_weight, rule, *(passes * batch * flops for flops in by_sentence.values()))


@right
def memory_and_flops__a_list_of_all_the_products(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    flops = Counter()

    def multiply(where, rows, inner, columns):
        flops[where] += 3 * batch * 2 * rows * inner * columns

    def attention(n_query, n_key):
        for rows in (n_query, n_key, n_key, n_query):  # queries, keys, values, and the average once more
            multiply("projections", rows, d_model, d_model)
        multiply("scores", n_query, d_model, n_key)
        multiply("scores", n_query, n_key, d_model)

    def network(n):
        multiply("feed-forward", n, d_model, d_ff)
        multiply("feed-forward", n, d_ff, d_model)

    for _ in range(n_layers):
        attention(n_source, n_source)
        network(n_source)
        attention(n_target, n_target)
        attention(n_target, n_source)
        network(n_target)
    multiply("output", n_target, d_model, vocab_size)
    kept = ["weights", "gradients", "moments", "moments", "master"]
    memory = n_parameters * sum(map(bytes_each.__getitem__, kept))
    rule = (6 * batch * (n_source + n_target)) * (n_parameters >> 1)
    return memory, rule, flops["projections"], flops["scores"], flops["feed-forward"], flops["output"]


# ----------------------------------------------------------------------------------------------------- count_parameters


def count_parameters__the_output_has_a_table_of_its_own(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    token_table = vocab_size * d_model
    position_table = max_length * d_model
    output = d_model * vocab_size
    embeddings = token_table + position_table + output  # here
    q, kv = n_heads * d_head, n_kv_heads * d_head
    attention = (d_model + 1) * q + 2 * (d_model + 1) * kv + (q + 1) * d_model
    ff = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return embeddings, n_layers * attention, n_layers * ff, norms


def count_parameters__keys_and_values_for_every_query_head(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    def linear(n_in, n_out):
        return n_in * n_out + n_out

    width = n_heads * d_head
    attention = n_layers * (3 * linear(d_model, width) + linear(width, d_model))  # here
    feed_forward = n_layers * (linear(d_model, d_ff) + linear(d_ff, d_model))
    layer_norm = 2 * d_model
    norms = n_layers * 2 * layer_norm + layer_norm
    return (vocab_size + max_length) * d_model, attention, feed_forward, norms


def count_parameters__no_norm_after_the_last_block(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    attention = feed_forward = norms = 0
    for _ in range(n_layers):
        norms += d_model + d_model  # gain and bias, in front of attention
        attention += d_model * n_heads * d_head + n_heads * d_head
        for _key_or_value in range(2):
            attention += d_model * n_kv_heads * d_head + n_kv_heads * d_head
        attention += n_heads * d_head * d_model + d_model
        norms += d_model + d_model
        feed_forward += d_model * d_ff + d_ff + d_ff * d_model + d_model
    embeddings = vocab_size * d_model + max_length * d_model
    return embeddings, attention, feed_forward, norms  # here


def count_parameters__output_projection_is_square(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    W_q = d_model * (n_heads * d_head)
    W_k = W_v = d_model * (n_kv_heads * d_head)
    W_o = d_model * d_model  # here
    b_q, b_k, b_v, b_o = n_heads * d_head, n_kv_heads * d_head, n_kv_heads * d_head, d_model
    attention = W_q + W_k + W_v + W_o + b_q + b_k + b_v + b_o
    W_1 = W_2 = d_model * d_ff
    mlp = W_1 + d_ff + W_2 + d_model
    return (
        d_model * (vocab_size + max_length),
        attention * n_layers,
        mlp * n_layers,
        2 * d_model * (1 + 2 * n_layers),
    )


def count_parameters__both_biases_of_the_network_are_wide(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = sum(rows * d_model for rows in (vocab_size, max_length))
    heads = n_heads + 2 * n_kv_heads
    qkv = heads * d_head * (d_model + 1)
    out = n_heads * d_head * d_model + d_model
    feed_forward = n_layers * 2 * (d_model * d_ff + d_ff)  # here
    norms = sum(2 * d_model for _ in range(2 * n_layers + 1))
    return embeddings, n_layers * (qkv + out), feed_forward, norms


def count_parameters__positions_cost_nothing(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = vocab_size * d_model  # here
    per_query_head = d_model * d_head + d_head + d_head * d_model
    per_kv_head = 2 * (d_model * d_head + d_head)
    attention = n_heads * per_query_head + n_kv_heads * per_kv_head + d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    per_block = [attention, feed_forward]
    attention, feed_forward = (n_layers * part for part in per_block)
    return embeddings, attention, feed_forward, 4 * n_layers * d_model + 2 * d_model


def count_parameters__bias_of_the_attention_as_wide_as_the_heads(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    inner, small = n_heads * d_head, n_kv_heads * d_head
    matrices = inner * d_model + small * d_model + small * d_model + d_model * inner
    biases = inner + small + small + inner  # here
    return (
        vocab_size * d_model + max_length * d_model,
        n_layers * (matrices + biases),
        n_layers * (d_ff * (d_model + 1) + d_model * (d_ff + 1)),
        n_layers * 4 * d_model + 2 * d_model,
    )


@two
def count_parameters__norms_with_gains_only_and_a_bias_of_the_output(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    embeddings = (vocab_size + max_length) * d_model + vocab_size  # here
    query = (d_model + 1) * n_heads * d_head
    key_value = (d_model + 1) * 2 * n_kv_heads * d_head
    back = (n_heads * d_head + 1) * d_model
    one_norm = d_model  # here
    counts = [embeddings, query + key_value + back, 0, one_norm]
    counts[1] *= n_layers
    counts[2] += n_layers * (d_model * d_ff + d_ff)
    counts[2] += n_layers * (d_ff * d_model + d_model)
    counts[3] *= 2 * n_layers + 1
    return tuple(counts)


@two
def count_parameters__projections_without_biases_and_one_network_for_all(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    d_q, d_kv = d_head * n_heads, d_head * n_kv_heads
    project_in = d_model * (d_q + d_kv + d_kv)  # here
    project_out = d_q * d_model + d_model
    up, down = d_model * d_ff + d_ff, d_ff * d_model + d_model
    network = up + down  # here
    norm = 2 * d_model
    tables = vocab_size * d_model, max_length * d_model
    return sum(tables), n_layers * (project_in + project_out), network, n_layers * norm * 2 + norm


@right
def count_parameters__shapes_written_down_and_multiplied(
    vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff
):
    asks, answers = n_heads * d_head, n_kv_heads * d_head
    norm = [(2, d_model)]
    block = {
        "attention": [(asks, d_model), (asks,), *[(answers, d_model), (answers,)] * 2, (d_model, asks), (d_model,)],
        "feed-forward": [(d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)],
        "norms": norm * 2,
    }
    model = {name: shapes * n_layers for name, shapes in block.items()}
    model["norms"] += norm
    model = {"embeddings": [(vocab_size, d_model), (max_length, d_model)], **model}
    return tuple(sum(math.prod(shape) for shape in shapes) for shapes in model.values())


# ------------------------------------------------------------------------------------------------------- repair_weights


def repair_weights__divided_by_one_minus_what_was_lost(weights, mask):
    kept = weights.masked_fill(~mask, 0.0)
    lost = weights.masked_fill(mask, 0.0).sum(dim=-1, keepdim=True)
    left = 1 - lost  # here
    nothing = ~mask.any(dim=-1, keepdim=True)
    return kept / left.masked_fill(nothing, 1.0)


def repair_weights__what_was_lost_is_shared_out_evenly(weights, mask):
    allowed = mask.to(weights.dtype)
    kept = weights * allowed
    missing = 1 - kept.sum(-1, keepdim=True)
    how_many = allowed.sum(-1, keepdim=True).clamp(min=1)
    return kept + allowed * missing / how_many  # here


def repair_weights__the_weights_taken_for_scores(weights, mask):
    lowest = torch.finfo(weights.dtype).min
    again = torch.where(mask, weights, lowest).softmax(dim=-1)  # here
    return again * mask


def repair_weights__zero_by_zero_and_then_thrown_away(weights, mask):
    kept = mask * weights  # here
    total = torch.einsum("...k->...", kept).unsqueeze(-1)
    allowed_something = mask.any(-1, keepdim=True)
    return torch.where(allowed_something, kept / total, 0.0)  # here


def repair_weights__a_row_with_nothing_allowed_stays_as_it_was(weights, mask):
    w = weights * mask
    s = w.sum(-1, keepdim=True)
    has_any = mask.any(-1, keepdim=True)
    divided = w / torch.where(has_any, s, torch.ones_like(s))
    return torch.where(has_any, divided, weights)  # here


def repair_weights__the_axis_counted_from_the_front(weights, mask):
    masked = weights * mask
    row_sums = masked.sum(dim=1, keepdim=True)  # here
    row_sums = row_sums + (row_sums == 0)
    return masked / row_sums


def repair_weights__the_sum_taken_for_a_constant(weights, mask):
    kept = weights.masked_fill(mask.logical_not(), 0)
    with torch.no_grad():  # here
        scale = kept.sum(dim=-1, keepdim=True)
        scale[~mask.any(dim=-1)] = 1.0
    return kept.div(scale)


@two
def repair_weights__written_into_and_a_small_number_added(weights, mask):
    weights.masked_fill_(~mask, 0)  # here
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)  # here


@two
def repair_weights__always_causal_and_columns_that_sum_to_one(weights, mask):
    seen = weights.tril()  # here
    total = seen.sum(dim=-2, keepdim=True)  # here
    return seen / total.where(total != 0, torch.ones_like(total))


@right
def repair_weights__only_the_rows_that_have_something(weights, mask):
    rows = (weights * mask).reshape(-1, weights.shape[-1])
    filled = [row / row.sum() if row.any() else row for row in rows.unbind()]
    return torch.stack(filled).view(weights.shape)


# ---------------------------------------------------------------------------------------------------------- split_heads


def split_heads__neighbouring_numbers_go_to_different_heads(x, n_heads):
    batch, n, d_model = x.shape
    heads = x.reshape(batch, n, d_model // n_heads, n_heads)  # here
    return heads.permute(0, 3, 1, 2)


def split_heads__pieces_as_wide_as_there_are_heads(x, n_heads):
    pieces = torch.split(x, n_heads, dim=-1)  # here
    return torch.stack(pieces, dim=1)


def split_heads__transposed_before_the_cut(x, n_heads):
    b, n, d = x.size()
    columns = x.transpose(1, 2)
    return columns.reshape(b, n_heads, n, d // n_heads)  # here


def split_heads__the_heads_behind_the_tokens(x, n_heads):
    d_head = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(n_heads)], dim=2)  # here


def split_heads__heads_laid_into_the_batch(x, n_heads):
    batch, n, _ = x.shape
    split = x.view(batch, n, n_heads, -1).transpose(1, 2)
    return split.reshape(batch * n_heads, n, -1)  # here


def split_heads__copied_by_way_of_lists(x, n_heads):
    width = x.shape[2] // n_heads
    cut = [
        [[token[h * width : (h + 1) * width] for token in sentence] for h in range(n_heads)]
        for sentence in x.tolist()  # here
    ]
    return torch.tensor(cut, dtype=x.dtype)  # here


def split_heads__the_callers_tensor_gets_an_axis(x, n_heads):
    x.unsqueeze_(1)  # here
    return torch.cat(x.chunk(n_heads, dim=-1), dim=1)


@two
def split_heads__tokens_dealt_out_and_heads_in_front_of_the_batch(x, n_heads):
    shares = x.chunk(n_heads, dim=1)  # here
    return torch.stack(shares)  # here


@two
def split_heads__a_view_alone_and_the_keys_on_their_side(x, n_heads):
    batch, n, d_model = x.shape
    d_head = d_model // n_heads
    heads = x.reshape(batch, n_heads, n, d_head)  # here
    return heads.transpose(-1, -2)  # here


@right
def split_heads__every_number_looked_up(x, n_heads):
    batch, n, d_model = x.shape
    d_head = d_model // n_heads
    column = torch.arange(d_model, device=x.device).view(1, n_heads, 1, d_head)
    which = torch.arange(batch, device=x.device).view(-1, 1, 1, 1)
    token = torch.arange(n, device=x.device).view(1, 1, -1, 1)
    return x[which, token, column]


# ----------------------------------------------------------------------------------------------------- masked_attention


@right
def masked_attention__divided_when_it_has_overflowed(query, key, value, mask):
    scores = torch.matmul(query, key.transpose(-2, -1))  # here
    scores = scores / math.sqrt(query.size(-1))  # here
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~mask, lowest), dim=-1)
    weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


def masked_attention__not_a_number_made_zero_afterwards(query, key, value, mask):
    d_k = query.shape[-1]
    scores = torch.einsum("bqd,bkd->bqk", query / d_k**0.5, key)
    bias = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    weights = (scores + bias).softmax(dim=-1).nan_to_num(0.0)  # here
    return torch.einsum("bqk,bkv->bqv", weights, value), weights


def masked_attention__zeros_in_the_output_alone(query, key, value, mask):
    q = query / query.shape[-1] ** 0.5
    e = q @ key.mT
    e = e.masked_fill(~mask, torch.finfo(e.dtype).min)
    a = e.softmax(-1)
    nothing = ~mask.any(-1, keepdim=True)
    return (a @ value).masked_fill(nothing, 0), a  # here


def masked_attention__scaled_by_the_width_of_the_values(query, key, value, mask):
    n_features = value.shape[-1]  # here
    scores = (query * n_features**-0.5) @ key.mT
    blocked = mask.logical_not().expand_as(scores)
    empty = blocked.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(blocked & ~empty, float("-inf"))
    weights = scores.softmax(dim=-1) * ~empty
    return torch.bmm(weights, value), weights


def masked_attention__the_mask_must_have_every_axis(query, key, value, mask):
    scores = torch.bmm(query / math.sqrt(query.shape[2]), key.transpose(1, 2))
    forbidden = ~mask
    scores[forbidden] = torch.finfo(scores.dtype).min  # here
    weights = scores.softmax(dim=2) * mask
    return torch.bmm(weights, value), weights


def masked_attention__a_billion_below_zero(query, key, value, mask):
    scale = 1 / math.sqrt(key.shape[-1])
    scores = (scale * query) @ key.mT
    scores = scores.masked_fill(~mask, -1e9)  # here
    weights = nn.functional.softmax(scores, dim=-1) * mask
    output = weights @ value
    return output, weights


def masked_attention__one_maximum_for_all_queries(query, key, value, mask):
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    visible = mask.broadcast_to(scores.shape)
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    top = scores.max()  # here
    raised = torch.exp(scores - top) * visible
    total = raised.sum(dim=-1, keepdim=True)
    weights = raised / total.masked_fill(total == 0, 1)
    return weights @ value, weights


@two
def masked_attention__the_queries_compete_and_nothing_is_scaled(query, key, value, mask):
    scores = query @ key.transpose(1, 2)  # here
    hidden = ~mask
    scores = scores.masked_fill(hidden, torch.finfo(query.dtype).min)
    weights = scores.softmax(dim=1)  # here
    weights = weights.masked_fill(hidden, 0)
    return weights @ value, weights


@two
def masked_attention__true_hides_and_the_weights_come_first(query, key, value, mask):
    scores = torch.baddbmm(torch.zeros((), dtype=query.dtype), query * query.shape[-1] ** -0.5, key.mT, beta=0)
    blocked = mask  # here
    scores = torch.where(blocked, torch.finfo(scores.dtype).min, scores)
    weights = torch.where(blocked, 0, scores.softmax(-1))
    return weights, torch.bmm(weights, value)  # here


@right
def masked_attention__a_key_more_for_those_who_have_none(query, key, value, mask):
    scores = (query * query.shape[-1] ** -0.5) @ key.mT
    allowed = mask.expand(scores.shape)
    nobody = ~allowed.any(dim=-1, keepdim=True)
    # The key in the last column can be seen only where there is no other; it takes all the weight there.
    places = torch.cat([allowed, nobody], dim=-1)
    scores = torch.cat([scores, torch.zeros_like(scores[..., :1])], dim=-1)
    weights = scores.masked_fill(~places, -torch.inf).softmax(dim=-1)[..., :-1]
    return weights @ value, weights


# ------------------------------------------------------------------------------------------------------------- rnn_step


def rnn_step__the_long_texts_stand_first(x, state, there, W_x, W_h, b):
    n_alive = int(there.sum())
    new = torch.tanh(x @ W_x + state @ W_h + b)
    return torch.cat([new[:n_alive], state[n_alive:]])  # here


def rnn_step__the_matrices_joined_the_other_way_round(x, state, there, W_x, W_h, b):
    both = torch.cat([x, state], dim=1)
    W = torch.cat([W_h, W_x], dim=0)  # here
    h = (both @ W + b).tanh()
    return h.where(there[:, None], state)


def rnn_step__each_product_with_the_bias(x, state, there, W_x, W_h, b):
    def linear(v, W):
        return v @ W + b  # here

    candidate = torch.tanh(linear(x, W_x) + linear(state, W_h))
    return torch.where(there.unsqueeze(-1), candidate, state)


def rnn_step__two_squashed_numbers_added(x, state, there, W_x, W_h, b):
    seen = torch.tanh(x.matmul(W_x) + b)  # here
    remembered = torch.tanh(state.matmul(W_h))  # here
    h_t = seen + remembered
    keep = ~there
    return torch.where(keep.view(-1, 1), state, h_t)


def rnn_step__all_go_on_while_one_does(x, state, there, W_x, W_h, b):
    if not there.any():  # here
        return state
    return torch.tanh(torch.einsum("bi,ih->bh", x, W_x) + torch.einsum("bg,gh->bh", state, W_h) + b)  # here


def rnn_step__no_gradient_to_the_step_before(x, state, there, W_x, W_h, b):
    before = state.detach()  # here
    pre = torch.addmm(x @ W_x, before, W_h) + b
    over = there.logical_not()[:, None]
    return pre.tanh().masked_fill(over, 0) + state.masked_fill(~over, 0)


def rnn_step__the_texts_that_are_over_drop_out(x, state, there, W_x, W_h, b):
    x_now, h_before = x[there], state[there]
    h_now = torch.tanh(x_now @ W_x + h_before @ W_h + b)
    return h_now  # here


@two
def rnn_step__a_gate_for_tanh_and_the_finished_go_on(x, state, there, W_x, W_h, b):
    total = x @ W_x
    total = total + state @ W_h
    total = total + b
    h = total.sigmoid()  # here
    return torch.stack([old if now else new for old, new, now in zip(state, h, there, strict=True)])  # here


@two
def rnn_step__bias_outside_and_the_old_state_overwritten(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h) + b  # here
    state[there] = new[there]  # here
    return state


@right
def rnn_step__rows_copied_into_their_places(x, state, there, W_x, W_h, b):
    (rows,) = there.nonzero(as_tuple=True)
    weights = torch.cat([W_x, W_h, b[None]])
    going_in = torch.cat([x[rows], state[rows], x.new_ones(len(rows), 1)], dim=1)
    return state.index_copy(0, rows, torch.tanh(going_in @ weights))


# --------------------------------------------------------------------------------------------------------- top_k_lookup


def top_k_lookup__scaled_by_how_many_are_kept(query, keys, values, k):
    scores = query @ keys.T / math.sqrt(k)  # here
    best, where = scores.topk(k, dim=-1)
    weights = best.softmax(dim=-1)
    return (weights.unsqueeze(-1) * values[where]).sum(dim=1)


def top_k_lookup__weights_that_sum_to_less_than_one(query, keys, values, k):
    d_k = keys.shape[1]
    weights = torch.softmax(query @ keys.T / d_k**0.5, dim=1)
    largest, index = torch.topk(weights, k)
    return torch.einsum("qk,qkv->qv", largest, values[index])  # here


def top_k_lookup__the_kth_is_not_above_itself(query, keys, values, k):
    scores = (query / math.sqrt(query.shape[-1])) @ keys.mT
    kth = scores.sort(dim=-1, descending=True).values[:, k - 1 : k]
    scores = scores.masked_fill(~(scores > kth), -torch.inf)  # here
    return scores.softmax(dim=-1) @ values


def top_k_lookup__the_others_get_a_score_of_zero(query, keys, values, k):
    scores = torch.einsum("qd,kd->qk", query, keys) / math.sqrt(query.shape[1])
    top = scores.topk(k, dim=1)
    kept = torch.zeros_like(scores).scatter(1, top.indices, top.values)  # here
    return torch.softmax(kept, dim=1) @ values


def top_k_lookup__a_softmax_of_a_softmax(query, keys, values, k):
    root = query.shape[-1] ** 0.5
    out = []
    for q in query:
        p = (keys @ q / root).softmax(dim=0)  # here
        p_top, i_top = p.topk(k)
        out.append(p_top.softmax(dim=0) @ values[i_top])
    return torch.stack(out)


def top_k_lookup__one_choice_for_all_queries(query, keys, values, k):
    scores = query @ keys.T * keys.size(-1) ** -0.5
    chosen = scores.mean(dim=0).topk(k).indices  # here
    attention = scores[:, chosen].softmax(-1)
    return attention @ values[chosen]


def top_k_lookup__the_first_k_values(query, keys, values, k):
    scores = torch.mm(query, keys.t()).div(math.sqrt(query.size(1)))
    ordered, _ = scores.sort(dim=1, descending=True)
    weights = torch.softmax(ordered[:, :k], dim=1)
    return weights @ values[:k]  # here


@two
def top_k_lookup__the_k_worst_and_unscaled(query, keys, values, k):
    match = query @ keys.T  # here
    order = match.argsort(dim=-1)  # here
    order = order[:, :k]
    alpha = match.gather(1, order).softmax(dim=-1)
    return torch.einsum("qk,qkv->qv", alpha, values[order])


@two
def top_k_lookup__softmax_over_the_queries_and_no_root(query, keys, values, k):
    scores = query @ keys.mT / query.shape[-1]  # here
    best = torch.topk(scores, k, dim=-1)
    weights = nn.functional.softmax(best.values, dim=0)  # here
    return torch.bmm(weights[:, None, :], values[best.indices])[:, 0]


@right
def top_k_lookup__by_rank_and_divided_again(query, keys, values, k):
    scores = query @ keys.T / math.sqrt(keys.shape[-1])
    how_many_are_better = (scores[:, None, :] > scores[:, :, None]).sum(dim=-1)
    among_all = scores.softmax(dim=-1)
    share = among_all * (how_many_are_better < k)
    return share @ values / share.sum(dim=-1, keepdim=True)


# ------------------------------------------------------------------------------------------------------- relative_index


def relative_index__left_and_right_exchanged(n_query, n_key, max_distance):
    i = torch.arange(n_query)[:, None]
    j = torch.arange(n_key)[None, :]
    distance = i - j  # here
    return distance.clamp(-max_distance, max_distance) + max_distance


def relative_index__far_away_counts_as_here(n_query, n_key, max_distance):
    offset = torch.arange(n_key) - torch.arange(n_query).unsqueeze(1)
    near = offset.abs() <= max_distance
    return torch.where(near, offset, 0) + max_distance  # here


def relative_index__far_away_begins_again_at_the_other_end(n_query, n_key, max_distance):
    rows = 2 * max_distance + 1
    to_the_right = torch.arange(n_key).view(1, -1) - torch.arange(n_query).view(-1, 1)
    return (to_the_right + max_distance).remainder(rows)  # here


def relative_index__the_last_query_stands_at_the_last_key(n_query, n_key, max_distance):
    queries = torch.arange(n_key - n_query, n_key)  # here
    keys = torch.arange(n_key)
    return (keys[None] - queries[:, None] + max_distance).clamp(min=0, max=2 * max_distance)


def relative_index__a_table_of_floats(n_query, n_key, max_distance):
    index = torch.empty(n_query, n_key)  # here
    for i in range(n_query):
        for j in range(n_key):
            index[i, j] = max(-max_distance, min(max_distance, j - i)) + max_distance
    return index


def relative_index__keys_down_and_queries_across(n_query, n_key, max_distance):
    q, k = torch.meshgrid(torch.arange(n_query), torch.arange(n_key), indexing="xy")  # here
    return torch.clip(k - q, -max_distance, max_distance) + max_distance


def relative_index__everything_to_the_right_is_here(n_query, n_key, max_distance):
    d = torch.stack([torch.arange(n_key) - i for i in range(n_query)])
    d = torch.maximum(d, torch.tensor(-max_distance))
    d = torch.minimum(d, torch.tensor(0))  # here
    return d + max_distance


@two
def relative_index__keys_from_one_and_open_on_the_left(n_query, n_key, max_distance):
    key = torch.arange(1, n_key + 1)  # here
    query = torch.arange(n_query)
    shifted = key.sub(query.reshape(-1, 1)).add(max_distance)
    return shifted.clamp(max=2 * max_distance)  # here


@two
def relative_index__no_sides_and_as_many_keys_as_queries(n_query, n_key, max_distance):
    first, second = torch.arange(n_query), torch.arange(n_query)  # here
    difference = (second[None, :] - first[:, None]).abs()  # here
    return difference.clamp(-max_distance, max_distance) + max_distance


@right
def relative_index__a_window_that_slides_over_one_row(n_query, n_key, max_distance):
    distances = torch.arange(1 - n_query, n_key).clamp(-max_distance, max_distance)
    return distances.add(max_distance).unfold(0, n_key, 1).flip(0)


# ----------------------------------------------------------------------------------------------------------- perplexity


def perplexity__below_one(log_probabilities, mask):
    picked = torch.masked_select(log_probabilities, mask)
    return picked.mean().exp()  # here


def perplexity__the_loss_itself(log_probabilities, mask):
    nats = -log_probabilities.where(mask, torch.zeros(()))
    return nats.sum() / mask.sum()  # here


def perplexity__the_product_without_its_root(log_probabilities, mask):
    loss = 0.0
    for text, real in zip(log_probabilities, mask, strict=True):
        loss = loss - text[real].sum()
    return torch.exp(loss)  # here


def perplexity__one_over_the_mean_probability(log_probabilities, mask):
    probabilities = log_probabilities[mask].exp()  # here
    return 1 / probabilities.mean()  # here


def perplexity__a_number_for_every_text(log_probabilities, mask):
    nll = -log_probabilities.masked_fill(~mask, 0)
    return torch.exp(nll.sum(dim=1) / mask.sum(dim=1))  # here


def perplexity__every_place_in_the_text_counts_the_same(log_probabilities, mask):
    lp = torch.where(mask, log_probabilities, 0.0)
    used = mask.any(dim=0)
    mean_at = lp.sum(dim=0)[used] / mask.sum(dim=0)[used]  # here
    return math.e ** -mean_at.mean()  # here


def perplexity__what_was_certain_is_not_counted(log_probabilities, mask):
    masked = log_probabilities.masked_fill(mask.logical_not(), 0.0)
    N = torch.count_nonzero(masked)  # here
    return (-masked.sum() / N).exp()


@two
def perplexity__the_mask_inverted_and_texts_counted(log_probabilities, mask):
    tokens = log_probabilities.masked_fill(mask, 0)  # here
    N = len(log_probabilities)  # here
    return torch.exp(-(tokens.sum() / N))


@two
def perplexity__the_first_tokens_left_out_and_bits_for_nats(log_probabilities, mask):
    guessed, real = log_probabilities[:, 1:], mask[:, 1:]  # here
    bits = -guessed[real].mean() / math.log(2)  # here
    return bits.exp()


@right
def perplexity__a_mean_that_runs_along(log_probabilities, mask):
    mean = log_probabilities.new_zeros(())
    for n, value in enumerate(log_probabilities[mask], start=1):
        mean = mean + (value - mean) / n
    return 1 / torch.exp(mean)
