"""A sixteenth draw: five wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(16).sample(names, 10)` from the names in alphabetical order. Written from the released notebooks
alone (assignments 00 to 03, 06, 07, 09, 11 and 12): the exercises' modules, the solutions, the lectures and the tests
stayed closed. No check and no search for the line was run on the answers. They were only compared with the formulas and
the sentences of the notebooks, on small inputs.

Of the 60 wrong answers, 1 earned all points before anything was mended by this draw.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

# -------------------------------------------------------------------------------------------------- linformer_attention


def linformer_attention__padding_stays_in_the_keys(query, key, value, E, F, mask):
    n, d = key.shape[1:]
    value = value.masked_fill(~mask[..., None], 0.0)
    keys = E[:, :n] @ key  # here
    values = F[:, :n] @ value
    return (query @ keys.mT / math.sqrt(d)).softmax(dim=-1) @ values


def linformer_attention__shorter_sequence_uses_the_last_columns(query, key, value, E, F, mask):
    there = mask.unsqueeze(-1)
    key = torch.where(there, key, 0.0)
    value = torch.where(there, value, 0.0)
    n = key.shape[1]
    E, F = E[:, -n:], F[:, -n:]  # here
    mixed = torch.einsum("kn,bnd->bkd", E, key)
    answers = torch.einsum("kn,bnd->bkd", F, value)
    scores = torch.einsum("bqd,bkd->bqk", query, mixed) * key.shape[-1] ** -0.5
    return torch.einsum("bqk,bkd->bqd", scores.softmax(dim=-1), answers)


def linformer_attention__weights_mixed_after_the_softmax(query, key, value, E, F, mask):
    n = key.shape[1]
    scores = torch.bmm(query, key.transpose(1, 2)) / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask.unsqueeze(1), -math.inf)
    weights = scores.softmax(dim=-1) @ E[:, :n].T  # here
    clean = value.masked_fill(~mask.unsqueeze(2), 0.0)
    return weights @ (F[:, :n] @ clean)


def linformer_attention__a_mixture_is_a_mean_over_the_tokens(query, key, value, E, F, mask):
    batch, n, d = key.shape
    n_tokens = mask.sum(dim=1).view(batch, 1, 1)

    def mixtures(mixer, x):
        x = x.masked_fill(mask.logical_not().view(batch, n, 1), 0.0)
        return mixer[:, :n].matmul(x) / n_tokens  # here

    scores = query.matmul(mixtures(E, key).mT) / d**0.5
    return torch.softmax(scores, -1).matmul(mixtures(F, value))


def linformer_attention__longest_sentence_decides_what_is_padding(query, key, value, E, F, mask):
    used = mask.any(dim=0)  # here
    columns = used.nonzero().squeeze(1)
    key, value = key.index_select(1, columns), value.index_select(1, columns)
    mixed_keys = E.index_select(1, columns) @ key
    mixed_values = F.index_select(1, columns) @ value
    scores = query @ mixed_keys.mT / math.sqrt(query.shape[2])
    return scores.softmax(dim=2) @ mixed_values


@two
def linformer_attention__scaled_by_k_and_values_mixed_by_E(query, key, value, E, F, mask):
    n_mixtures, n = E.shape[0], key.shape[1]
    hidden = ~mask[:, :, None]
    key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
    scores = query @ (E[:, :n] @ key).mT / math.sqrt(n_mixtures)  # here
    return scores.softmax(dim=-1) @ (E[:, :n] @ value)  # here


@right
def linformer_attention__padding_cut_off_sentence_by_sentence(query, key, value, E, F, mask):
    n = mask.shape[1]
    outputs = []
    for q, k, v, there in zip(query, key, value, mask, strict=True):
        mixed_keys = E[:, :n][:, there] @ k[there]  # (k, d)
        mixed_values = F[:, :n][:, there] @ v[there]  # (k, d_v)
        scores = mixed_keys @ q.T / q.shape[-1] ** 0.5  # (k, n_query)
        outputs.append(scores.softmax(dim=0).T @ mixed_values)
    return torch.stack(outputs)


# --------------------------------------------------------------------------------------------------------- padding_mask


def padding_mask__front_turns_the_batch_round(lengths, n, in_front=False):
    mask = torch.arange(n, device=lengths.device) < lengths[:, None]
    if in_front:
        mask = mask.flip(0)  # here
    return mask[:, None, :]


def padding_mask__last_token_cut_off(lengths, n, in_front=False):
    end = F.one_hot(lengths.long(), n + 1)
    ended = end.cumsum(dim=1)[:, 1:]  # here
    if in_front:
        ended = ended.flip(1)
    return (ended == 0).unsqueeze(1)


def padding_mask__front_ends_where_the_longest_ends(lengths, n, in_front=False):
    longest = lengths.max()  # here
    positions = torch.arange(n, device=lengths.device)
    start = longest - lengths if in_front else torch.zeros_like(lengths)  # here
    behind = positions >= start[:, None]
    before = positions < (start + lengths)[:, None]
    return torch.logical_and(behind, before)[:, None]


def padding_mask__keys_on_the_axis_of_the_queries(lengths, n, in_front=False):
    batch = lengths.shape[0]
    positions = torch.arange(n, device=lengths.device).expand(batch, n)
    if in_front:
        positions = n - 1 - positions
    return positions.lt(lengths.view(batch, 1)).view(batch, n, 1)  # here


def padding_mask__empty_sentence_may_read_everything(lengths, n, in_front=False):
    rows = []
    for length in lengths.tolist():
        tokens, padding = [True] * length, [False] * (n - length)
        row = padding + tokens if in_front else tokens + padding
        rows.append(row if any(row) else [True] * n)  # here
    return torch.tensor(rows, device=lengths.device)[:, None, :]


@two
def padding_mask__front_starts_at_the_length_and_one_too_many_behind(lengths, n, in_front=False):
    positions = torch.arange(n, device=lengths.device)[None, None, :]
    lengths = lengths[:, None, None]
    if in_front:
        return positions >= lengths  # here
    return positions <= lengths  # here


@right
def padding_mask__rows_of_a_triangle(lengths, n, in_front=False):
    triangle = torch.ones(n + 1, n, dtype=torch.bool, device=lengths.device).tril(-1)
    if in_front:
        triangle = triangle.flip(1)
    return triangle[lengths.long()].unsqueeze(1)  # row number L has L tokens


# ----------------------------------------------------------------------------------------------------- paired_bootstrap


def paired_bootstrap__divided_by_the_total_of_the_test_set(ours, theirs, draws):
    def score(counts):
        return 100 * counts[..., 0].sum(dim=-1) / counts[..., 1].sum(dim=-1)

    def resampled(counts):
        return 100 * counts[draws, 0].sum(dim=-1) / counts[:, 1].sum()  # here

    differences = resampled(ours) - resampled(theirs)
    low, high = differences.quantile(0.025), differences.quantile(0.975)
    return score(ours) - score(theirs), low, high, (differences > 0).float().mean()


def paired_bootstrap__a_sentence_counts_once_in_a_sample(ours, theirs, draws):
    n_draws, n = draws.shape
    chosen = torch.zeros(n_draws, n, dtype=torch.get_default_dtype(), device=draws.device)
    chosen = chosen.scatter(1, draws, 1.0)  # here
    everything = torch.ones_like(chosen[:1])

    def difference(weights):
        a, b = weights @ ours.to(weights.dtype), weights @ theirs.to(weights.dtype)
        return 100 * (a[:, 0] / a[:, 1] - b[:, 0] / b[:, 1])

    sampled = difference(chosen)
    low, high = torch.quantile(sampled, torch.tensor([0.025, 0.975], device=draws.device))
    return difference(everything)[0], low, high, sampled.gt(0).float().mean()


def paired_bootstrap__quantiles_of_each_system_subtracted(ours, theirs, draws):
    scores = []
    for counts in (ours, theirs):
        matches, totals = counts.unbind(dim=1)
        whole = 100 * matches.sum() / totals.sum()
        sampled = 100 * matches[draws].sum(dim=1) / totals[draws].sum(dim=1)
        scores.append((whole, sampled))
    (our_whole, our_sampled), (their_whole, their_sampled) = scores
    low = our_sampled.quantile(0.025) - their_sampled.quantile(0.025)  # here
    high = our_sampled.quantile(0.975) - their_sampled.quantile(0.975)  # here
    better = (our_sampled > their_sampled).float().mean()
    return our_whole - their_whole, low, high, better


def paired_bootstrap__two_standard_deviations_to_each_side(ours, theirs, draws):
    def precision(counts):
        matches, total = counts.sum(dim=-2).unbind(dim=-1)
        return 100 * matches / total

    found = precision(ours) - precision(theirs)
    sampled = precision(ours[draws]) - precision(theirs[draws])
    half_width = 1.96 * sampled.std()
    low, high = found - half_width, found + half_width  # here
    return found, low, high, (sampled > 0).float().mean()


def paired_bootstrap__per_cent_written_into_the_matches(ours, theirs, draws):
    for counts in (ours, theirs):
        counts[:, 0] *= 100  # here

    def score(counts):
        summed = counts.sum(dim=-2)
        return summed[..., 0] / summed[..., 1]

    found = score(ours) - score(theirs)
    sampled = torch.stack([score(ours[rows]) - score(theirs[rows]) for rows in draws])
    better = torch.count_nonzero(sampled > 0) / len(draws)
    return found, torch.quantile(sampled, 0.025), torch.quantile(sampled, 0.975), better


@two
def paired_bootstrap__other_sentences_for_them_and_ties_count(ours, theirs, draws):
    def score(counts):
        summed = counts.sum(dim=-2)
        return 100 * summed[..., 0] / summed[..., 1]

    our_scores = score(ours[draws])
    their_scores = score(theirs[draws.roll(1, dims=0)])  # here
    gap = our_scores - their_scores
    share = (our_scores >= their_scores).float().mean()  # here
    return score(ours) - score(theirs), gap.quantile(0.025), gap.quantile(0.975), share


@right
def paired_bootstrap__how_often_each_sentence_is_drawn(ours, theirs, draws):
    n_draws, n = draws.shape
    often = torch.zeros(n_draws + 1, n, dtype=torch.float64, device=draws.device)
    often[0] = 1.0  # the test set itself
    often[1:].scatter_add_(1, draws.long(), torch.ones_like(often[1:]))
    matches, totals = (often @ torch.stack([ours, theirs]).double()).unbind(dim=-1)  # (2, n_draws + 1) each
    score = 100 * matches / totals
    gap = score[0] - score[1]
    ordered = gap[1:].sort().values

    def quantile(share):
        place = share * (n_draws - 1)
        below, above = math.floor(place), math.ceil(place)
        return torch.lerp(ordered[below], ordered[above], place - below)

    higher = matches[0] * totals[1] > matches[1] * totals[0]  # whole numbers: a tie is a tie
    results = gap[0], quantile(0.025), quantile(0.975), higher[1:].double().mean()
    dtype = ours.dtype if ours.is_floating_point() else torch.get_default_dtype()
    return tuple(result.to(dtype) for result in results)


# ---------------------------------------------------------------------------------------------- grouped_query_attention


def grouped_query_attention__values_handed_out_in_turn(query, key, value):
    group = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(group, dim=1)
    value = value.repeat(1, group, 1, 1)  # here
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores.softmax(dim=-1) @ value


def grouped_query_attention__a_group_shares_one_softmax(query, key, value):
    batch, n_heads, n_query, d = query.shape
    n_kv = key.shape[1]
    grouped = query.unflatten(1, (n_kv, n_heads // n_kv))
    scores = torch.einsum("bhgqd,bhkd->bhqgk", grouped, key) / math.sqrt(d)
    weights = scores.flatten(-2).softmax(dim=-1).view_as(scores)  # here
    out = torch.einsum("bhqgk,bhkd->bhgqd", weights, value)
    return out.reshape(batch, n_heads, n_query, d)


def grouped_query_attention__heads_come_back_interleaved(query, key, value):
    n_kv_heads = key.shape[1]
    size = query.shape[1] // n_kv_heads
    per_group = []
    for number in range(n_kv_heads):
        q = query[:, number * size : (number + 1) * size]
        k, v = key[:, number, None], value[:, number, None]
        weights = torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)
        per_group.append(weights @ v)  # (batch, size, n_query, d_head)
    return torch.stack(per_group, dim=2).flatten(1, 2)  # here


def grouped_query_attention__queries_of_a_group_averaged(query, key, value):
    batch, n_heads, n_query, d_head = query.shape
    n_kv_heads = key.shape[1]
    group = n_heads // n_kv_heads
    shared = query.view(batch, n_kv_heads, group, n_query, d_head).mean(dim=2)  # here
    weights = (shared @ key.mT / d_head**0.5).softmax(-1)
    return torch.repeat_interleave(weights @ value, group, dim=1)


def grouped_query_attention__query_scaled_where_it_lies(query, key, value):
    batch, n_kv_heads, _, d_head = key.shape
    query /= math.sqrt(d_head)  # here
    queries = query.reshape(batch, n_kv_heads, -1, d_head)  # a group's queries below one another
    weights = (queries @ key.mT).softmax(dim=-1)
    return (weights @ value).reshape(query.shape)


@two
def grouped_query_attention__keys_without_gradient_and_scaled_for_all_heads(query, key, value):
    n_heads, d_head = query.shape[1], query.shape[3]
    head = torch.arange(n_heads, device=query.device) // (n_heads // key.shape[1])
    with torch.no_grad():  # here
        keys = key[:, head]  # here
    scores = torch.einsum("bhqd,bhkd->bhqk", query, keys) / math.sqrt(n_heads * d_head)  # here
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(dim=-1), value[:, head])


@right
def grouped_query_attention__one_query_head_at_a_time(query, key, value):
    n_heads, n_kv_heads = query.shape[1], key.shape[1]
    outputs = []
    for head in range(n_heads):
        shared = head * n_kv_heads // n_heads
        scores = torch.bmm(key[:, shared], query[:, head].mT) * query.shape[-1] ** -0.5  # (batch, n_key, n_query)
        weights = (scores - scores.amax(dim=1, keepdim=True)).exp()
        summed = torch.bmm(weights.mT, value[:, shared])
        outputs.append(summed / weights.sum(dim=1).unsqueeze(-1))
    return torch.stack(outputs, dim=1)


# ------------------------------------------------------------------------------------------------------------ mean_pool


def mean_pool__first_state_of_the_padding_read_too(states, lengths):
    positions = torch.arange(states.shape[1], device=states.device)
    is_word = positions <= lengths[:, None]  # here
    summed = states.masked_fill(~is_word[..., None], 0.0).sum(dim=1)
    return summed / is_word.sum(dim=1, keepdim=True)


def mean_pool__divided_by_the_mean_length(states, lengths):
    batch, n, _ = states.shape
    mask = torch.arange(n, device=states.device).expand(batch, n) < lengths.view(batch, 1)
    summed = torch.einsum("bn,bnd->bd", mask.to(states.dtype), states)
    return summed / lengths.to(states.dtype).mean()  # here


def mean_pool__words_looked_for_at_the_end(states, lengths):
    n = states.size(1)
    from_the_end = torch.arange(n, 0, -1, device=states.device)  # here
    words = from_the_end.unsqueeze(0).le(lengths.unsqueeze(1))  # here
    weights = words / lengths.unsqueeze(1)
    return (weights.unsqueeze(2) * states).sum(1)


def mean_pool__newest_word_counts_half(states, lengths):
    mean = states[:, 0]
    for t in range(1, states.shape[1]):
        updated = (mean + states[:, t]) / 2  # here
        mean = torch.where((t < lengths)[:, None], updated, mean)
    return mean


def mean_pool__divided_by_the_root_of_the_length(states, lengths):
    so_far = states.cumsum(dim=1)
    last = (lengths.long() - 1)[:, None, None].expand(-1, 1, states.shape[2])
    total = so_far.gather(1, last).squeeze(1)
    return total * lengths[:, None].to(states.dtype).rsqrt()  # here


@two
def mean_pool__first_word_left_out_and_divided_by_the_width(states, lengths):
    place = torch.arange(states.shape[1], device=states.device)[None, :]
    inside = (place > 0) & (place < lengths[:, None])  # here
    return torch.where(inside[:, :, None], states, 0.0).mean(dim=1)  # here


@right
def mean_pool__running_mean_read_at_the_last_word(states, lengths):
    n_words = torch.arange(1, states.shape[1] + 1, device=states.device)
    running = states.cumsum(dim=1) / n_words[:, None]  # (batch, n, d)
    last = lengths.long().view(-1, 1, 1) - 1
    return running.take_along_dim(last, dim=1).squeeze(1)


# -------------------------------------------------------------------------------------------------------- encoder_block


def encoder_block__memory_without_its_norm(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    x = x + norm_2(attention(norm_1(x), x, mask))  # here
    return x + norm_4(feed_forward(norm_3(x)))


def encoder_block__second_sum_starts_from_the_input(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    normed = norm_1(x)
    attended = x + norm_2(attention(normed, normed, mask))
    thought = norm_4(feed_forward(norm_3(attended)))
    return x + thought  # here


def encoder_block__first_two_norms_stand_before(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    before, after = (norm_1, norm_2), (norm_3, norm_4)  # here
    sublayers = (lambda y: attention(y, y, mask), feed_forward)
    for first, sublayer, last in zip(before, sublayers, after, strict=True):
        x = x + last(sublayer(first(x)))
    return x


def encoder_block__sums_written_into_the_input(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    y = norm_1(x)
    x += norm_2(attention(y, y, mask))  # here
    z = feed_forward(norm_3(x))
    return x + norm_4(z)


def encoder_block__last_norm_on_the_path(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    def self_attention(y):
        return attention(y, y, mask)

    h = torch.add(x, norm_2(self_attention(norm_1(x))))
    return norm_4(torch.add(h, feed_forward(norm_3(h))))  # here


@two
def encoder_block__path_starts_normed_and_network_reads_the_input(
    x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4
):
    h = norm_1(x)
    after_attention = h + norm_2(attention(h, h, mask))  # here
    return after_attention + norm_4(feed_forward(norm_3(x)))  # here


@right
def encoder_block__a_list_of_what_is_summed(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    written = [x]
    reading = norm_1(x)
    written.append(norm_2(attention(reading, reading, mask)))
    reading = norm_3(torch.stack(written).sum(dim=0))
    written.append(norm_4(feed_forward(reading)))
    return torch.stack(written).sum(dim=0)


# ---------------------------------------------------------------------------------------------------------- packed_mask


def packed_mask__blocks_in_the_order_of_the_numbers(documents):
    masks = []
    for row in documents:
        _, sizes = torch.unique(row, return_counts=True)  # here
        blocks = [torch.ones(size, size) for size in sizes.tolist()]
        masks.append(torch.block_diag(*blocks).tril().bool())
    return torch.stack(masks).to(documents.device)


def packed_mask__document_zero_taken_for_padding(documents):
    same = documents[:, :, None] == documents[:, None, :]
    real = documents[:, None, :] != 0  # here
    return (same & real).tril()  # here


def packed_mask__smaller_numbers_may_be_read(documents):
    n = documents.shape[1]
    position = torch.arange(n, device=documents.device)
    past = position[:, None] >= position
    return past & documents[:, :, None].ge(documents[:, None, :])  # here


def packed_mask__what_any_row_of_the_batch_allows(documents):
    batch, n = documents.shape
    same = torch.eq(documents.view(batch, n, 1), documents.view(batch, 1, n))
    allowed = torch.tril(same).any(dim=0)  # here
    return allowed.repeat(batch, 1, 1)


def packed_mask__column_reads_row(documents):
    batch, n = documents.shape
    mask = torch.zeros(batch, n, n, dtype=torch.bool, device=documents.device)
    for i in range(n):
        for j in range(i + 1):
            mask[:, j, i] = documents[:, i] == documents[:, j]  # here
    return mask


@two
def packed_mask__interruption_ends_it_and_nobody_reads_itself(documents):
    changed = documents.diff(dim=1, prepend=documents[:, :1]) != 0
    segment = changed.cumsum(dim=1)  # here
    same = segment.unsqueeze(2) == segment.unsqueeze(1)
    return same.tril(diagonal=-1)  # here


@right
def packed_mask__product_of_memberships(documents):
    _, number = documents.unique(return_inverse=True)  # (batch, n), from 0 on
    member = F.one_hot(number).float()  # (batch, n, n_documents)
    together = torch.einsum("bid,bjd->bij", member, member)
    past = torch.ones_like(together[0]).tril()
    return together * past > 0.5


# ------------------------------------------------------------------------------------------------- AttentionDecoderStep


def AttentionDecoderStep__scores_of_padding_set_to_zero(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[:, :, None])[:, :, 0]
    weights = scores.masked_fill(~mask, 0.0).softmax(dim=-1)  # here
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


def AttentionDecoderStep__hands_on_the_state_it_was_given(self, token, state, attentional, encoder_states, mask):
    fed = torch.cat((self.embedding(token), attentional), 1)
    query = self.cell(fed, state)
    scores = torch.einsum("bd,bnd->bn", query, encoder_states)
    weights = torch.softmax(torch.where(mask, scores, -torch.inf), dim=1)
    context = torch.einsum("bn,bnd->bd", weights, encoder_states)
    combined = self.combine(torch.cat((context, query), 1)).tanh()
    logits = self.output(combined)
    return logits, state, combined, weights  # here


class AttentionDecoderStep__attentional_vector_in_the_place_of_the_state(nn.Module):
    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)

    def attend(self, state, encoder_states, mask):
        scores = torch.bmm(encoder_states, state.unsqueeze(2)).squeeze(2)
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
        weights = scores.softmax(dim=-1)
        return weights, torch.bmm(weights.unsqueeze(1), encoder_states).squeeze(1)

    def forward(self, token, state, attentional, encoder_states, mask):
        x = torch.cat([self.embedding(token), attentional], dim=-1)
        new_state = self.cell(x, attentional)  # here
        weights, context = self.attend(new_state, encoder_states, mask)
        new_attentional = torch.tanh(self.combine(torch.cat([context, new_state], dim=-1)))
        return self.output(new_attentional), new_state, new_attentional, weights


def AttentionDecoderStep__hands_on_the_context(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.hstack([self.embedding(token), attentional]), state)
    scores = (state[:, None, :] * encoder_states).sum(dim=-1)
    scores = scores + torch.zeros_like(scores).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-1)
    context = (weights[:, :, None] * encoder_states).sum(dim=1)
    logits = self.output(self.combine(torch.hstack([context, state])).tanh())
    return logits, state, context, weights  # here


def AttentionDecoderStep__no_gradient_to_what_is_fed_in(self, token, state, attentional, encoder_states, mask):
    embedded = self.embedding(token)
    with torch.no_grad():  # here
        fed = attentional + 0.0  # here
    state = self.cell(torch.cat([embedded, fed], dim=1), state)
    scores = encoder_states.matmul(state.unsqueeze(-1)).squeeze(-1)
    weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    context = weights.unsqueeze(1).matmul(encoder_states).squeeze(1)
    attentional = self.combine(torch.cat([context, state], dim=1)).tanh()
    return self.output(attentional), state, attentional, weights


@two
def AttentionDecoderStep__state_first_and_scores_scaled(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (state[:, None] @ encoder_states.mT)[:, 0] / math.sqrt(state.shape[-1])  # here
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = self.combine(torch.cat([state, context], dim=-1)).tanh()  # here
    return self.output(attentional), state, attentional, weights


@right
def AttentionDecoderStep__halves_of_W_and_a_softmax_by_hand(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = torch.einsum("bnd,bd->bn", encoder_states, state)
    scores = torch.where(mask, scores, -torch.inf)
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    weights = weights / weights.sum(dim=-1, keepdim=True)
    context = torch.einsum("bn,bnd->bd", weights, encoder_states)
    for_context, for_state = self.combine.weight.chunk(2, dim=1)
    attentional = torch.tanh(context @ for_context.T + F.linear(state, for_state, self.combine.bias))
    return self.output(attentional), state, attentional, weights


# ---------------------------------------------------------------------------------------------------------- masked_mean


def masked_mean__one_added_to_every_count(values, mask):
    summed = values.masked_fill(~mask[..., None], 0.0).sum(dim=1)
    count = mask.sum(dim=1, keepdim=True) + 1  # here
    return summed / count


def masked_mean__components_counted_as_positions(values, mask):
    wide = mask[:, :, None].expand_as(values)
    total = torch.where(wide, values, 0.0).sum(dim=1)
    how_many = wide.sum(dim=(1, 2)).clamp(min=1)  # here
    return total / how_many[:, None]


def masked_mean__mask_read_as_a_length(values, mask):
    n = values.shape[1]
    length = mask.sum(dim=1)
    inside = torch.arange(n, device=mask.device) < length[:, None]  # here
    total = torch.where(inside.unsqueeze(-1), values, torch.zeros_like(values)).sum(dim=1)
    return total / length.clamp(min=1).unsqueeze(-1)


def masked_mean__one_empty_sequence_empties_all(values, mask):
    count = mask.sum(dim=1, keepdim=True)  # (batch, 1)
    if not count.all():  # here
        return values.new_zeros(values.shape[0], values.shape[2])
    return values.masked_fill(mask.logical_not().unsqueeze(2), 0.0).sum(1).div(count)


def masked_mean__softmax_of_the_mask(values, mask):
    weights = mask.to(values.dtype).softmax(dim=1)  # here
    means = torch.einsum("bn,bnd->bd", weights, values)
    return means.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


@two
def masked_mean__padding_averaged_over_the_width(values, mask):
    kept = values.masked_fill(mask.unsqueeze(-1), 0.0)  # here
    return kept.mean(dim=1)  # here


@right
def masked_mean__real_positions_sent_to_their_sequence(values, mask):
    sequence = mask.nonzero()[:, 0]  # one entry for each real position
    total = values.new_zeros(values.shape[0], values.shape[2]).index_add(0, sequence, values[mask])
    count = torch.bincount(sequence, minlength=values.shape[0])
    return total / torch.where(count > 0, count, 1)[:, None]


# ----------------------------------------------------------------------------------------------------- scaled_dot_score


def scaled_dot_score__key_reshaped_not_transposed(query, key):
    batch, n_key, d_k = key.shape
    columns = key.reshape(batch, d_k, n_key)  # here
    return query @ columns / math.sqrt(d_k)


def scaled_dot_score__root_rounded_down(query, key):
    products = torch.einsum("bqd,bkd->bqk", query, key)
    return products / math.isqrt(key.shape[-1])  # here


def scaled_dot_score__divided_by_the_spread_of_the_scores(query, key):
    scores = torch.bmm(query, key.transpose(1, 2))
    spread = scores.std(dim=-1, keepdim=True)  # here
    return scores / spread  # here


def scaled_dot_score__only_the_query_by_the_fourth_root(query, key):
    scale = query.shape[-1] ** -0.25
    query = query * scale  # here
    return torch.matmul(query, key.mT)  # here


def scaled_dot_score__a_row_for_each_key(query, key):
    d_k = query.shape[2]
    rows = [k @ q.T for q, k in zip(query, key, strict=True)]  # here
    return torch.stack(rows) / d_k**0.5


@two
def scaled_dot_score__keys_of_length_one_and_the_softmax(query, key):
    directions = F.normalize(key, dim=-1)  # here
    scores = query.matmul(directions.mT) / math.sqrt(key.size(-1))
    return scores.softmax(dim=-1)  # here


@right
def scaled_dot_score__one_component_after_the_other(query, key):
    d_k = query.shape[-1]
    scores = query.new_zeros(query.shape[0], query.shape[1], key.shape[1])
    for i in range(d_k):
        scores = scores + query[:, :, None, i] * key[:, None, :, i]
    return scores * (1 / d_k) ** 0.5
