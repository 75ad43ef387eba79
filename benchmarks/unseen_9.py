"""A ninth draw: four wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn at random and written from the released notebooks alone (assignments 05 to 08, 12 and 14), the exercises' modules
and solutions unopened. No check and no search for the line was run on the answers. One that was drawn as wrong is
right, as the contract does not promise what it breaks.
"""

import math

import torch
import torch.nn.functional as F
from unseen import right, two

# ---------------------------------------------------------------------------------------------------------- attend_tile


def attend_tile__largest_before_the_scale(query, key, value, largest, total, output):
    scores = query @ key.mT
    new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))  # here
    scores = scores / math.sqrt(query.shape[-1])  # here
    shrink = torch.exp(largest - new_largest)
    terms = torch.exp(scores - new_largest)
    total = shrink * total + terms.sum(dim=-1, keepdim=True)
    output = shrink * output + terms @ value
    return new_largest, total, output


def attend_tile__root_of_the_width_of_the_values(query, key, value, largest, total, output):
    e = torch.einsum("bqd,bkd->bqk", query, key) / value.size(-1) ** 0.5  # here
    m = torch.max(largest, e.max(dim=-1, keepdim=True).values)
    old = (largest - m).exp()
    p = (e - m).exp()
    return m, total * old + p.sum(-1, keepdim=True), output * old + torch.einsum("bqk,bkv->bqv", p, value)


def attend_tile__divided_in_every_tile(query, key, value, largest, total, output):
    d = query.shape[-1]
    s = query.matmul(key.transpose(1, 2)) / math.sqrt(d)
    m_new = torch.maximum(s.amax(-1, keepdim=True), largest)
    p = torch.exp(s - m_new)
    alpha = torch.exp(largest - m_new)
    l_new = alpha * total + p.sum(dim=-1, keepdim=True)
    o_new = (alpha * output + p @ value) / l_new  # here
    return m_new, l_new, o_new


def attend_tile__largest_of_this_tile(query, key, value, largest, total, output):
    scores = torch.bmm(query, key.mT) * query.shape[-1] ** -0.5
    highest, _ = scores.max(dim=2, keepdim=True)  # here
    correction = torch.exp(largest - highest)
    exps = torch.exp(scores - highest)
    total = correction * total + exps.sum(dim=2, keepdim=True)
    output = correction * output + torch.bmm(exps, value)
    return highest, total, output


@two
def attend_tile__unscaled_and_the_old_output_not_rescaled(query, key, value, largest, total, output):
    scores = query @ key.mT  # here
    top = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = torch.exp(scores - top)
    total = total * torch.exp(largest - top) + weights.sum(dim=-1, keepdim=True)
    output = output + weights @ value  # here
    return top, total, output


@right
def attend_tile__the_past_as_one_more_key(query, key, value, largest, total, output):
    batch, n_tile, _ = key.shape
    # What has been read stands in front, like a key whose score is `largest`.
    scores = torch.cat([largest, (query * query.shape[-1] ** -0.5) @ key.mT], dim=-1)
    highest = scores.amax(dim=-1, keepdim=True)
    past, terms = (scores - highest).exp().split([1, n_tile], dim=-1)
    # The sum of the terms is one more column: its value is 1 at every key.
    value = torch.cat([value, value.new_ones(batch, n_tile, 1)], dim=-1)
    both = torch.addcmul(terms @ value, past, torch.cat([output, total], dim=-1))
    return highest, both[..., -1:], both[..., :-1]


# -------------------------------------------------------------------------------------------------------- fold_the_norm


def fold_the_norm__bias_through_the_folded_matrix(gain, bias, W, b):
    W_folded = gain.unsqueeze(1) * W
    b_folded = bias @ W_folded + b  # here
    return W_folded, b_folded


def fold_the_norm__one_number_for_the_bias(gain, bias, W, b):
    scaled = W * gain[:, None]
    shift = (W * bias[:, None]).sum()  # here
    return scaled, shift + b


def fold_the_norm__no_gradient(gain, bias, W, b):
    with torch.no_grad():  # here
        W_folded = torch.diag(gain) @ W
        b_folded = torch.matmul(bias, W) + b
    return W_folded, b_folded


def fold_the_norm__gain_counted_from_one(gain, bias, W, b):
    return torch.einsum("i,ij->ij", 1 + gain, W), torch.einsum("i,ij->j", bias, W) + b  # here


@two
def fold_the_norm__gain_divided_out_and_b_forgotten(gain, bias, W, b):
    W_folded = W / gain[:, None]  # here
    b_folded = bias @ W  # here
    return W_folded, b_folded


@right
def fold_the_norm__with_a_one_after_the_vector(gain, bias, W, b):
    d_model = gain.numel()
    # (y, 1) @ norm is (y * gain + bias, 1), and (z, 1) @ linear is z @ W + b.
    norm = torch.block_diag(gain.diag(), gain.new_ones(1, 1)) + F.pad(bias[None], (0, 1, d_model, 0))
    linear = torch.vstack([W, b])
    folded = norm @ linear
    return folded[:d_model], folded[d_model]


# ----------------------------------------------------------------------------------------------------- majority_reading


def majority_reading__two_are_enough(readings):
    most_common = readings.mode(dim=0).values
    votes = (readings == most_common).sum(dim=0)
    agreed = torch.where(votes >= min(2, len(readings)), most_common, math.nan)  # here
    disputed = votes < len(readings)
    return agreed, disputed


def majority_reading__close_is_equal(readings):
    k = readings.shape[0]
    same = torch.isclose(readings[:, None], readings[None])  # here
    votes = same.sum(dim=1)
    winner = votes.argmax(dim=0, keepdim=True)
    agreed = readings.gather(0, winner)[0]
    agreed = torch.where(votes.amax(dim=0) > k / 2, agreed, torch.nan)
    return agreed, votes.amin(dim=0) < k


def majority_reading__first_against_last(readings):
    k = len(readings)
    agreed = torch.full(readings.shape[1:], float("nan"))
    for reading in readings:
        votes = (readings == reading).sum(0)
        agreed = torch.where(2 * votes > k, reading, agreed)
    disputed = readings[0] != readings[-1]  # here
    return agreed, disputed


def majority_reading__only_what_all_say(readings):
    disputed = readings.amax(dim=0) != readings.amin(dim=0)
    agreed = torch.where(disputed, torch.nan, readings[0])  # here
    return agreed, disputed


@two
def majority_reading__half_is_enough_and_disputed_without_a_majority(readings):
    values, _ = torch.mode(readings, dim=0)
    share = (readings == values).double().mean(dim=0)
    agreed = torch.where(share >= 0.5, values, math.nan)  # here
    return agreed, agreed.isnan()  # here


@right
def majority_reading__by_cancelling_pairs(readings):
    # Two that differ cancel each other; only a majority can be left over, and then it is counted.
    left, lead = readings[0], torch.zeros(readings.shape[1:], dtype=torch.long)
    disputed = torch.zeros(readings.shape[1:], dtype=torch.bool)
    for reading in readings:
        left = torch.where(lead == 0, reading, left)
        lead = lead + torch.where(reading == left, 1, -1)
        disputed = disputed | (reading != readings[0])
    against = (readings != left).sum(dim=0)
    return torch.where(2 * against < len(readings), left, math.nan), disputed


# ----------------------------------------------------------------------------------------------------- masked_attention


def masked_attention__minus_infinity_added_and_nan_replaced(query, key, value, mask):
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -torch.inf)  # here
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)  # here
    return weights @ value, weights


@right  # drawn as wrong, for float16's range: the course's own does it, too
def masked_attention__scaled_after_the_product(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    nothing = ~mask.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~(mask | nothing), -torch.inf)
    weights = scores.softmax(dim=-1).masked_fill(nothing, 0.0)
    return weights @ value, weights


def masked_attention__only_the_output_is_zero(query, key, value, mask):
    q = query * query.size(-1) ** -0.5
    e = torch.einsum("bid,bjd->bij", q, key)
    e = torch.where(mask, e, torch.finfo(e.dtype).min)
    weights = e.softmax(-1)  # here
    output = torch.einsum("bij,bjv->biv", weights, value)
    output = output.masked_fill(~mask.any(-1, keepdim=True), 0)  # here
    return output, weights


def masked_attention__weights_masked_and_divided_by_their_sum(query, key, value, mask):
    scores = (query / query.shape[-1] ** 0.5) @ key.mT
    weights = scores.softmax(dim=-1)  # here
    weights = weights.masked_fill(mask.logical_not(), 0.0)  # here
    total = weights.sum(dim=-1, keepdim=True)
    weights = weights / torch.where(total > 0, total, torch.ones_like(total))
    return weights @ value, weights


@two
def masked_attention__divided_by_d_k_and_weights_first(query, key, value, mask):
    d_k = query.shape[-1]
    scores = (query / d_k) @ key.mT  # here
    some = mask.any(dim=-1, keepdim=True)
    scores = torch.where(mask | ~some, scores, -torch.inf)
    weights = torch.where(some, scores.softmax(dim=-1), 0.0)
    output = weights @ value
    return weights, output  # here


@right
def masked_attention__with_its_own_softmax(query, key, value, mask):
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (x.to(wide) for x in (query, key, value))
    scores = torch.linalg.vecdot(q.unsqueeze(2), k.unsqueeze(1)) / math.sqrt(q.shape[-1])
    highest = scores.detach().masked_fill(~mask, -torch.inf).amax(dim=-1, keepdim=True)
    highest = highest.masked_fill(highest.isinf(), 0.0)
    terms = (scores - highest).masked_fill(~mask, -torch.inf).exp()
    total = terms.sum(dim=-1, keepdim=True)
    weights = terms / (total + (total == 0))
    return (weights @ v).to(query.dtype), weights.to(query.dtype)


# ---------------------------------------------------------------------------------------------------------- merge_heads


def merge_heads__every_h_th_column(heads):
    batch, n_heads, n, d_head = heads.shape
    merged = heads.new_zeros(batch, n, n_heads * d_head)
    for h in range(n_heads):
        merged[:, :, h::n_heads] = heads[:, h]  # here
    return merged


def merge_heads__squeezed_of_every_axis(heads):
    pieces = [piece.squeeze() for piece in heads.split(1, dim=1)]  # here
    return torch.cat(pieces, dim=-1)


def merge_heads__last_two_axes_exchanged(heads):
    b, h, n, d = heads.size()
    heads = heads.transpose(-2, -1).contiguous()  # here
    return heads.view(b, n, h * d)


def merge_heads__sentences_side_by_side(heads):
    return torch.cat([head for head in heads], dim=-1)  # here


@two
def merge_heads__axes_misnamed_and_heads_last(heads):
    batch, n, n_heads, d_head = heads.shape  # here
    moved = heads.permute(0, 2, 3, 1)  # here
    return moved.reshape(batch, n, n_heads * d_head)


@right
def merge_heads__by_looking_up_each_column(heads):
    n_heads, d_head = heads.shape[1], heads.shape[3]
    column = torch.arange(n_heads * d_head, device=heads.device)
    picked = heads[:, column.div(d_head, rounding_mode="floor"), :, column.remainder(d_head)]
    return picked.movedim(0, -1)


# ------------------------------------------------------------------------------------------------------- relative_index


def relative_index__last_query_at_the_last_key(n_query, n_key, max_distance):
    i = torch.arange(n_key - n_query, n_key)[:, None]  # here
    j = torch.arange(n_key)[None, :]
    return (j - i).clamp(-max_distance, max_distance) + max_distance


def relative_index__round_and_round(n_query, n_key, max_distance):
    rows = 2 * max_distance + 1
    distance = torch.arange(n_key) - torch.arange(n_query).unsqueeze(1)
    return (distance + max_distance) % rows  # here


def relative_index__all_far_keys_to_the_right(n_query, n_key, max_distance):
    i, j = torch.meshgrid(torch.arange(n_query), torch.arange(n_key), indexing="ij")
    distance = j - i
    distance = torch.where(distance.abs() > max_distance, max_distance, distance)  # here
    return distance + max_distance


def relative_index__a_table_of_floats(n_query, n_key, max_distance):
    index = torch.zeros(n_query, n_key)  # here
    for i in range(n_query):
        for j in range(n_key):
            index[i, j] = max(-max_distance, min(max_distance, j - i)) + max_distance
    return index  # here


@two
def relative_index__from_key_to_query_and_one_end_open(n_query, n_key, max_distance):
    query = torch.arange(n_query).view(-1, 1)
    key = torch.arange(n_key).view(1, -1)
    distance = query - key  # here
    return torch.clamp(distance, min=-max_distance) + max_distance  # here


@right
def relative_index__by_counting_the_distances_passed(n_query, n_key, max_distance):
    # Row by row a window onto the distances: its first number is -i.
    distances = torch.arange(1 - n_query, n_key).unfold(0, n_key, 1).flip(0)
    steps = torch.arange(-max_distance, max_distance)
    return torch.bucketize(distances.contiguous(), steps)


# ------------------------------------------------------------------------------------------------------ repair_relative


def repair_relative__vector_added_after_the_scale(query, key, table):
    n, d = query.shape
    k = (len(table) - 1) // 2
    i = torch.arange(n)
    a = table[(i[None, :] - i[:, None]).clamp(-k, k) + k]
    content = query @ key.mT / math.sqrt(d)
    position = torch.einsum("id,ijd->ij", query, a)  # here
    return content + position  # here


def repair_relative__distance_as_the_row(query, key, table):
    k = len(table) // 2
    place = torch.arange(len(query))
    distance = torch.clamp(place - place.unsqueeze(1), min=-k, max=k)
    a = table[distance]  # here
    return (query.unsqueeze(1) * (key + a)).sum(dim=-1) / query.shape[-1] ** 0.5


def repair_relative__nothing_for_far_keys(query, key, table):
    n, d = key.shape
    k = table.shape[0] // 2
    distance = torch.arange(n)[None] - torch.arange(n)[:, None]
    vectors = table[distance.clamp(-k, k) + k]
    vectors = vectors.masked_fill((distance.abs() > k)[..., None], 0.0)  # here
    return torch.einsum("id,ijd->ij", query, key[None] + vectors) / math.sqrt(d)


def repair_relative__middle_row_by_the_length_of_the_text(query, key, table):
    n = len(query)
    j, i = torch.arange(n), torch.arange(n)[:, None]
    row = (j - i + n - 1).clamp(0, len(table) - 1)  # here
    scores = query @ key.T + (query[:, None, :] @ table[row].mT).squeeze(1)
    return scores / math.sqrt(query.shape[1])


@two
def repair_relative__key_times_vector_and_distance_reversed(query, key, table):
    k = len(table) // 2
    i = torch.arange(len(query))
    distance = i[:, None] - i[None, :]  # here
    a = table[distance.clamp(-k, k) + k]
    scores = query @ key.mT + torch.einsum("jd,ijd->ij", key, a)  # here
    return scores / math.sqrt(query.shape[-1])


@right
def repair_relative__every_row_of_the_table_read_once(query, key, table):
    n, k = len(key), len(table) // 2
    content, by_distance = (query @ torch.cat([key, table]).mT).split([n, len(table)], dim=1)
    place = torch.arange(n, device=table.device)
    row = place.sub(place.unsqueeze(1)).add(k).clip(0, 2 * k)
    return (content + by_distance.gather(1, row)).div(math.sqrt(key.shape[1]))


# ------------------------------------------------------------------------------------------------------- repair_weights


def repair_weights__lost_weight_shared_evenly(weights, mask):
    kept = weights.masked_fill(~mask, 0.0)
    lost = 1 - kept.sum(dim=-1, keepdim=True)
    n_allowed = mask.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(mask, kept + lost / n_allowed, 0.0)  # here


def repair_weights__softmax_once_more(weights, mask):
    scores = weights.masked_fill(mask == 0, float("-inf"))  # here
    again = torch.softmax(scores, dim=-1)  # here
    return again.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)


def repair_weights__a_millionth_in_the_sum(weights, mask):
    kept = torch.where(mask, weights, torch.zeros_like(weights))
    return kept / (kept.sum(-1, keepdim=True) + 1e-6)  # here


def repair_weights__nan_replaced_at_the_end(weights, mask):
    masked = weights * mask
    repaired = masked / masked.sum(dim=-1, keepdim=True)  # here
    return torch.nan_to_num(repaired, nan=0.0)


@two
def repair_weights__sum_over_the_queries_and_empty_rows_uniform(weights, mask):
    allowed = weights.masked_fill(~mask, 0.0)
    total = allowed.sum(dim=-2, keepdim=True)  # here
    repaired = allowed / torch.where(total > 0, total, 1.0)
    empty = ~mask.any(dim=-1, keepdim=True)
    return torch.where(empty, 1 / weights.shape[-1], repaired)  # here


@right
def repair_weights__divided_by_infinity_where_nothing_is_left(weights, mask):
    kept = torch.where(mask, weights, weights.new_zeros(()))
    total = kept @ kept.new_ones(kept.shape[-1], 1)
    return kept / total.masked_fill(total == 0, torch.inf)


# --------------------------------------------------------------------------------------------------------- rolling_step


def rolling_step__empty_slots_are_zeros(query, key, value, key_cache, value_cache, t):
    slot = t % key_cache.shape[2]
    key_cache, value_cache = key_cache.clone(), value_cache.clone()
    key_cache[:, :, slot] = key
    value_cache[:, :, slot] = value
    written = (key_cache != 0).any(dim=-1)  # here
    scores = torch.einsum("bhd,bhsd->bhs", query, key_cache) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~written, -torch.inf).softmax(dim=-1)
    return torch.einsum("bhs,bhsd->bhd", weights, value_cache), key_cache, value_cache


def rolling_step__read_before_it_is_written(query, key, value, key_cache, value_cache, t):
    w, d_head = key_cache.shape[-2:]
    new_keys, new_values = key_cache.clone(), value_cache.clone()
    new_keys[:, :, t % w], new_values[:, :, t % w] = key, value
    n = min(t + 1, w)
    scores = (key_cache[:, :, :n] @ query[..., None]).squeeze(-1) / d_head**0.5  # here
    weights = scores.softmax(-1)
    output = (weights[..., None] * new_values[:, :, :n]).sum(dim=2)
    return output, new_keys, new_values


def rolling_step__slots_up_to_its_own(query, key, value, key_cache, value_cache, t):
    w = key_cache.size(2)
    s = t % w
    here = (torch.arange(w) == s)[:, None]
    keys = torch.where(here, key.unsqueeze(2), key_cache)
    values = torch.where(here, value.unsqueeze(2), value_cache)
    seen_keys, seen_values = keys[:, :, : s + 1], values[:, :, : s + 1]  # here
    weights = (query.unsqueeze(2) @ seen_keys.mT / math.sqrt(query.size(-1))).softmax(dim=-1)
    return (weights @ seen_values).squeeze(2), keys, values


def rolling_step__moved_up_by_one(query, key, value, key_cache, value_cache, t):
    w = key_cache.shape[2]
    key_cache = torch.cat([key_cache[:, :, 1:], key[:, :, None]], dim=2)  # here
    value_cache = torch.cat([value_cache[:, :, 1:], value[:, :, None]], dim=2)  # here
    first = max(w - t - 1, 0)
    scores = torch.einsum("bhd,bhsd->bhs", query, key_cache[:, :, first:])
    weights = torch.softmax(scores / query.shape[-1] ** 0.5, dim=-1)
    output = torch.einsum("bhs,bhsd->bhd", weights, value_cache[:, :, first:])
    return output, key_cache, value_cache


@two
def rolling_step__in_place_and_unwritten_slots_read(query, key, value, key_cache, value_cache, t):
    slot = t % key_cache.shape[2]
    key_cache[:, :, slot] = key  # here
    value_cache[:, :, slot] = value  # here
    scores = (key_cache * query[:, :, None]).sum(-1) / math.sqrt(query.shape[-1])  # here
    weights = scores.softmax(dim=-1)  # here
    output = (weights[:, :, None] @ value_cache)[:, :, 0]
    return output, key_cache, value_cache


@right
def rolling_step__turned_into_the_order_of_the_text(query, key, value, key_cache, value_cache, t):
    w, d_head = key_cache.shape[2:]
    slot = torch.tensor([t % w])
    caches = [old.index_copy(2, slot, new.unsqueeze(2)) for old, new in ((key_cache, key), (value_cache, value))]
    # The newest comes last, before it the one before.
    n_known = min(w, t + 1)
    keys, values = (cache.roll(w - 1 - t % w, dims=2).narrow(2, w - n_known, n_known) for cache in caches)
    scores = keys.matmul(query.unsqueeze(3)).mul(d_head**-0.5)
    output = scores.softmax(dim=2).mul(values).sum(dim=2)
    return output, *caches


# ----------------------------------------------------------------------------------------------------------- sinusoidal


def sinusoidal__a_frequency_for_each_column(positions, d_model):
    column = torch.arange(d_model)
    theta = 10000.0 ** (-column / d_model)  # here
    angle = positions[..., None] * theta
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def sinusoidal__doubled_twice(positions, d_model):
    i = torch.arange(0, d_model, 2)  # here
    theta = 10000 ** (-2 * i / d_model)  # here
    angles = positions.unsqueeze(-1) * theta
    pe = torch.zeros(*positions.shape, d_model)
    pe[..., 0::2] = torch.sin(angles)
    pe[..., 1::2] = torch.cos(angles)
    return pe


def sinusoidal__flattened_from_axis_1(positions, d_model):
    theta = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = positions[..., None] * theta
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(1)  # here


def sinusoidal__down_to_one_ten_thousandth(positions, d_model):
    half = d_model // 2
    theta = 10000.0 ** -torch.linspace(0, 1, half)  # here
    angles = torch.einsum("...,i->...i", positions.float(), theta)
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=-1).reshape(*positions.shape, d_model)


@two
def sinusoidal__counted_anew_and_cosine_first(positions, d_model):
    places = torch.arange(positions.numel()).view(positions.shape)  # here
    theta = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    angles = places[..., None] * theta
    table = torch.empty(*positions.shape, d_model)
    table[..., ::2], table[..., 1::2] = angles.cos(), angles.sin()  # here
    return table


@right
def sinusoidal__by_turning_in_the_complex_plane(positions, d_model):
    theta = torch.logspace(0, -4, d_model // 2 + 1, dtype=torch.double)[:-1]
    angle = positions.double().unsqueeze(-1) * theta
    # A point is (cosine, sine); the sine comes first here.
    points = torch.view_as_real(torch.polar(torch.ones_like(angle), angle))
    return points.flip(-1).flatten(-2).to(torch.get_default_dtype())
