"""A fifteenth draw: five wrong answers with one mistake each, one with two, and a right one, to ten exercises.

Drawn by `random.Random(15).sample(names, 10)` from the names in alphabetical order. Written from the released notebooks
alone (assignments 05, 07 to 10 and 12): the exercises' modules, the solutions, the lectures and the tests stayed
closed. No check and no search for the line was run on the answers. They were only compared with the formulas and the
sentences of the notebooks, on small inputs.

Of the 60 wrong answers, none earned all points.
"""

import math
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

from attncourse_lessons.l09_transformer.exercises.decoder_lm import Block
from attncourse_lessons.l10_training.exercises.train_translator import Translator, rectangle, translate

# ---------------------------------------------------------------------------------------------------- decoder_attention


def decoder_attention__padding_of_the_queries(query, key, value, is_token):
    n, d_head = query.shape[-2:]
    past = torch.ones(n, n, dtype=torch.bool, device=query.device).tril()
    allowed = past & is_token[:, None, :, None]  # here
    scores = query @ key.mT / math.sqrt(d_head)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1) @ value


def decoder_attention__nan_removed_at_the_end(query, key, value, is_token):
    place = torch.arange(query.shape[2], device=query.device)
    allowed = (place[:, None] >= place) & is_token[:, None, None, :]
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * query.shape[-1] ** -0.5
    weights = torch.softmax(torch.where(allowed, scores, -torch.inf), dim=-1)  # here
    return torch.nan_to_num(torch.einsum("bhij,bhjd->bhid", weights, value))  # here


def decoder_attention__weights_zeroed_after_the_softmax(query, key, value, is_token):
    n = query.shape[2]
    scores = torch.matmul(query, key.transpose(2, 3)).div(math.sqrt(query.shape[3]))
    weights = F.softmax(scores, dim=3)  # here
    weights = weights * torch.tril(weights.new_ones(n, n))  # here
    weights = weights * is_token.view(-1, 1, 1, n)  # here
    return torch.matmul(weights, value)


def decoder_attention__padding_of_another_sentence(query, key, value, is_token):
    batch, n_heads, n, d_head = query.shape
    q, k, v = (x.flatten(0, 1) for x in (query, key, value))  # (batch * n_heads, n, d_head)
    tokens = is_token.repeat(n_heads, 1)[:, None, :]  # here
    hidden = torch.ones_like(q[:, :, :1] @ k[:, :, :1].mT, dtype=torch.bool).triu(1) | ~tokens
    scores = torch.bmm(q, k.mT) / d_head**0.5
    weights = (scores.masked_fill(hidden, -1e9)).softmax(-1)
    return torch.bmm(weights, v).view(batch, n_heads, n, d_head)


def decoder_attention__own_place_hidden(query, key, value, is_token):
    rows = []
    for i in range(query.shape[2]):
        scores = (query[:, :, i : i + 1] * key).sum(dim=-1) / math.sqrt(query.shape[-1])  # (batch, n_heads, n)
        before = torch.arange(key.shape[2], device=key.device) < i  # here
        visible = is_token[:, None] & before
        weights = scores.masked_fill(~visible, -1e30).softmax(dim=-1)
        rows.append((weights[..., None] * value).sum(dim=2))
    return torch.stack(rows, dim=2)


@two
def decoder_attention__one_of_the_masks_is_enough_and_no_scale(query, key, value, is_token):
    n = key.shape[-2]
    causal = torch.tril(torch.ones(n, n, device=key.device)).bool()
    mask = torch.logical_or(causal, is_token[:, None, None])  # here
    scores = query @ key.transpose(-1, -2)  # here
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(mask.logical_not(), lowest), dim=-1) @ value


@right
def decoder_attention__numerator_and_denominator(query, key, value, is_token):
    n, d_head = query.shape[-2:]
    place = torch.arange(n, device=query.device)
    allowed = is_token[:, None, None, :] & (place <= place[:, None])  # (batch, 1, n, n)
    scores = torch.einsum("...id,...jd->...ij", query / math.sqrt(d_head), key)
    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    parts = (scores - scores.detach().amax(dim=-1, keepdim=True)).exp() * allowed
    nobody = ~allowed.any(dim=-1, keepdim=True)  # nothing to see: 0 / 1
    return (parts @ value) / (parts.sum(dim=-1, keepdim=True) + nobody)


# ------------------------------------------------------------------------------------------------------------ DecoderLM


class DecoderLM__one_block_many_times(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList([Block(d_model, n_heads)] * n_layers)  # here
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril()
        x = self.tokens(tokens) + self.positions.weight[:n]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.T


class DecoderLM__places_from_the_end_of_the_table(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, mean=0.0, std=0.02)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        length = tokens.size(1)
        x = self.tokens(tokens) + self.positions.weight[-length:]  # here
        place = torch.arange(length, device=tokens.device)
        for block in self.blocks:
            x = block(x, place[:, None] >= place[None, :])
        return F.linear(self.norm(x), self.tokens.weight)


class DecoderLM__sees_the_next_token(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        with torch.no_grad():
            self.tokens.weight.normal_(0, 0.02)
            self.positions.weight.normal_(0, 0.02)
        self.blocks = nn.ModuleList()
        for _ in range(n_layers):
            self.blocks.append(Block(d_model, n_heads))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        batch, n = tokens.shape
        positions = torch.arange(n, device=tokens.device).expand(batch, n)
        h = self.tokens(tokens) + self.positions(positions)
        causal = torch.ones(n, n, device=tokens.device).tril(diagonal=1).bool()  # here
        for layer in self.blocks:
            h = layer(h, causal)
        return torch.einsum("bnd,vd->bnv", self.norm(h), self.tokens.weight)


class DecoderLM__output_is_a_copy(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.tokens.weight.data.mul_(0.02)
        self.positions.weight.data.mul_(0.02)
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size, bias=False)  # here
        self.output.weight.data = self.tokens.weight.data.clone()  # here

    def forward(self, tokens):
        n = tokens.shape[-1]
        future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.tokens(tokens) + self.positions(torch.arange(n, device=tokens.device))
        for block in self.blocks:
            x = block(x, ~future)
        return self.output(self.norm(x))  # here


class DecoderLM__norm_before_the_blocks(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.positions = nn.Embedding(max_length, d_model)
        self.tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.positions.weight, 0.0, 0.02)
        nn.init.normal_(self.tokens.weight, 0.0, 0.02)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        mask = places.unsqueeze(1) >= places
        state = self.norm(self.tokens(tokens) + self.positions(places))  # here
        for block in self.blocks:
            state = block(state, mask)
        return state @ self.tokens.weight.mT  # here


@two
class DecoderLM__plain_list_and_usual_random_numbers(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)  # here
        self.positions = nn.Embedding(max_length, d_model)  # here
        self.blocks = [Block(d_model, n_heads) for _ in range(n_layers)]  # here
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[None, :n]
        mask = torch.tril(torch.ones(n, n, dtype=torch.bool, device=x.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.t()


@right
class DecoderLM__tables_made_by_hand(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding.from_pretrained(0.02 * torch.randn(vocab_size, d_model), freeze=False)
        self.positions = nn.Embedding.from_pretrained(0.02 * torch.randn(max_length, d_model), freeze=False)
        self.blocks = nn.Sequential()
        for number in range(n_layers):
            self.blocks.add_module(str(number), Block(d_model, n_heads))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        sees = torch.cumsum(torch.eye(len(places), device=tokens.device), dim=0) > 0
        x = F.embedding(tokens, self.tokens.weight) + F.embedding(places, self.positions.weight)
        for block in self.blocks.children():
            x = block(x, sees)
        return torch.tensordot(self.norm(x), self.tokens.weight, dims=([2], [1]))


# ------------------------------------------------------------------------------------------------------- pre_norm_stack


def pre_norm_stack__next_block_reads_the_normed(x, blocks, final_norm):
    x = final_norm(x)  # here
    levels = [x]
    for block in blocks:
        x = final_norm(block(x))  # here
        levels.append(x)
    return torch.stack(levels)


def pre_norm_stack__lowest_level_as_it_came(x, blocks, final_norm):
    result = [x]  # here
    state = x
    for block in blocks:
        state = block(state)
        result.append(final_norm(state))
    return torch.stack(result, dim=0)


def pre_norm_stack__residual_once_more(x, blocks, final_norm):
    levels = final_norm(x).unsqueeze(0)
    for f in blocks:
        x = x + f(x)  # here
        levels = torch.cat([levels, final_norm(x).unsqueeze(0)])
    return levels


def pre_norm_stack__lens_only_reads(x, blocks, final_norm):
    stream = [x]
    for block in blocks:
        stream.append(block(stream[-1]))
    return torch.stack([final_norm(h.detach()) for h in stream])  # here


def pre_norm_stack__every_block_on_the_first_x(x, blocks, final_norm):
    depths = [final_norm(x), *(final_norm(block(x)) for block in blocks)]  # here
    return torch.stack(depths)


@two
def pre_norm_stack__highest_first_and_norm_at_the_top_alone(x, blocks, final_norm):
    levels = [x]
    for i in range(len(blocks)):
        levels.insert(0, blocks[i](levels[0]))  # here
    levels[0] = final_norm(levels[0])  # here
    return torch.stack(levels)


@right
def pre_norm_stack__accumulated(x, blocks, final_norm):
    stream = accumulate(blocks, lambda state, block: block(state), initial=x)
    return torch.cat([final_norm(state)[None] for state in stream])


# ---------------------------------------------------------------------------------------------------------- split_heads


def split_heads__view_alone(x, n_heads):
    batch, n, d_model = x.shape
    return x.reshape(batch, n_heads, n, d_model // n_heads)  # here


def split_heads__number_of_the_head_runs_fastest(x, n_heads):
    pieces = x.unflatten(-1, (-1, n_heads))  # here
    return pieces.permute(0, 3, 1, 2)


def split_heads__heads_behind_the_tokens(x, n_heads):
    d_head = x.size(-1) // n_heads
    return torch.stack(x.split(d_head, dim=-1), dim=2)  # here


def split_heads__copied_without_gradient(x, n_heads):
    batch, n, d_model = x.shape
    d_head = d_model // n_heads
    heads = torch.zeros(batch, n_heads, n, d_head, dtype=x.dtype, device=x.device)
    for i in range(n_heads):
        heads[:, i] = x.data[:, :, i * d_head : (i + 1) * d_head]  # here
    return heads


def split_heads__next_head_begins_one_further(x, n_heads):
    d_head = x.shape[2] // n_heads
    return x.unfold(2, d_head, 1)[:, :, :n_heads].transpose(1, 2)  # here


@two
def split_heads__every_kth_number_and_heads_in_front(x, n_heads):
    heads = [x[..., h::n_heads] for h in range(n_heads)]  # here
    return torch.stack(heads)  # here


@right
def split_heads__through_the_columns(x, n_heads):
    columns = x.transpose(1, 2)  # (batch, d_model, n)
    return columns.unflatten(1, (n_heads, x.shape[2] // n_heads)).transpose(2, 3)


# ------------------------------------------------------------------------------------------------------------ TrainStep


def TrainStep__mean_of_the_means(self, micro_batches, held_out, lr, clip):
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = F.nll_loss(self.model(x), target) / len(micro_batches)  # here
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        after = F.nll_loss(self.model(held_out[0]), held_out[1])
    return total, norm, after


def TrainStep__never_back_to_training(self, micro_batches, held_out, lr, clip):
    self.optimizer.zero_grad()
    n_tokens = sum(len(target) for _, target in micro_batches)
    sums = [F.nll_loss(self.model(x), target, reduction="sum") for x, target in micro_batches]
    loss = torch.stack(sums).sum() / n_tokens
    loss.backward()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()  # here
    with torch.no_grad():
        validation = F.nll_loss(self.model(held_out[0]), held_out[1])
    return loss.item(), norm.item(), validation.item()


def TrainStep__each_parameter_clipped_alone(self, micro_batches, held_out, lr, clip):
    self.train()
    self.optimizer.zero_grad()
    count = sum(x.shape[0] for x, _ in micro_batches)
    loss = 0.0
    for x, target in micro_batches:
        part = F.nll_loss(self.model(x), target, reduction="sum") / count
        part.backward()
        loss = loss + part.detach()
    squares = 0.0
    for p in self.model.parameters():
        length = p.grad.norm()
        squares = squares + length**2
        if length > clip:  # here
            p.grad *= clip / length  # here
    self.optimizer.step(lr)
    self.eval()
    with torch.no_grad():
        x, target = held_out
        return loss, squares.sqrt(), F.nll_loss(self.model(x), target)


def TrainStep__short_gradients_stretched(self, micro_batches, held_out, lr, clip):
    self.optimizer.zero_grad()
    self.model.train()
    n = sum(target.numel() for _, target in micro_batches)
    losses = []
    for x, target in micro_batches:
        share = len(target) / n
        loss = share * F.nll_loss(self.model(x), target)
        loss.backward()
        losses.append(float(loss))
    gradients = [p.grad for p in self.model.parameters()]
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    for g in gradients:
        g.mul_(clip / (norm + 1e-12))  # here
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        last = F.nll_loss(self.model(held_out[0]), held_out[1])
    self.model.train()
    return sum(losses), norm, last


def TrainStep__gradient_of_the_step_before(self, micro_batches, held_out, lr, clip):
    self.model.train()
    tokens = sum(len(x) for x, _ in micro_batches)
    summed = 0.0
    for x, y in micro_batches:
        log_p = self.model(x)
        nll = -log_p.gather(1, y[:, None]).sum()
        (nll / tokens).backward()  # here
        summed += nll.item()
    norm = nn.utils.clip_grad_norm_(self.parameters(), max_norm=clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, y = held_out
        held_out_loss = F.nll_loss(self.model(x), y).item()
    return summed / tokens, norm.item(), held_out_loss


@two
def TrainStep__evaluated_too_early_and_norm_too_late(self, micro_batches, held_out, lr, clip):
    self.model.eval()
    with torch.no_grad():
        held = F.nll_loss(self.model(held_out[0]), held_out[1])  # here
    self.model.train()
    self.optimizer.zero_grad()
    everything = sum(len(target) for _, target in micro_batches)
    loss = sum(F.nll_loss(self.model(x), target, reduction="sum") for x, target in micro_batches) / everything
    loss.backward()
    nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    norm = sum(p.grad.square().sum() for p in self.model.parameters()).sqrt()  # here
    self.optimizer.step(lr)
    return loss.detach(), norm, held


@right
def TrainStep__gradients_added_by_hand(self, micro_batches, held_out, lr, clip):
    parameters = self.optimizer.parameters
    self.model.train()
    total, n, gradients = 0.0, 0, [torch.zeros_like(p) for p in parameters]
    for x, target in micro_batches:
        loss = -self.model(x)[torch.arange(len(target)), target].sum()
        parts = torch.autograd.grad(loss, parameters)
        gradients = [g + part for g, part in zip(gradients, parts, strict=True)]
        total, n = total + loss.detach(), n + len(target)
    gradients = [g / n for g in gradients]
    norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt()
    factor = (clip / norm).clamp(max=1.0)
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = factor * g
    self.optimizer.step(lr)
    self.optimizer.zero_grad()
    self.model.eval()
    with torch.no_grad():
        after = F.nll_loss(self.model(held_out[0]), held_out[1])
    self.model.train()
    return total / n, norm, after


# --------------------------------------------------------------------------------------------------------- cached_block


def norm(x):  # as the notebook gives it
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def rotate(x, positions):  # as the notebook gives it
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def cached_block__each_chunk_counts_from_0(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    m, (n_heads, n, d_head) = x.shape[1], keys.shape[1:]
    y = norm(x)
    query, key, value = ((y @ W).unflatten(-1, (n_heads, d_head)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    positions = torch.arange(m)  # here
    query, key = rotate(query, positions), rotate(key, positions)
    keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
    allowed = torch.ones(m, n + m, dtype=torch.bool).tril(n)
    scores = (query @ keys.mT / math.sqrt(d_head)).masked_fill(~allowed, -torch.inf)
    x = x + (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2) @ W_O
    return x + (norm(x) @ W_up).relu() @ W_down, keys, values


def cached_block__mask_from_the_first_column(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    batch, m, d_model = x.shape
    n_heads, n, d_head = keys.shape[1:]

    def heads(W):
        return (norm(x) @ W).view(batch, m, n_heads, d_head).transpose(1, 2)

    positions = torch.arange(n, n + m)
    keys = torch.cat([keys, rotate(heads(W_K), positions)], dim=2)
    values = torch.cat([values, heads(W_V)], dim=2)
    scores = torch.einsum("bhid,bhjd->bhij", rotate(heads(W_Q), positions), keys) / d_head**0.5
    causal = torch.tril(torch.ones_like(scores)) == 1  # here
    weights = torch.where(causal, scores, -torch.inf).softmax(dim=-1)
    found = torch.einsum("bhij,bhjd->bihd", weights, values).reshape(batch, m, d_model)
    x = x + found @ W_O
    return x + torch.relu(norm(x) @ W_up) @ W_down, keys, values


def cached_block__turned_keys_turned_again(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    n_heads, d_head, n = keys.size(1), keys.size(3), keys.size(2)
    together = norm(x) @ torch.cat([W_Q, W_K, W_V], dim=1)
    q, k, v = together.unflatten(-1, (3, n_heads, d_head)).permute(2, 0, 3, 1, 4)
    place = torch.arange(n + x.size(1))
    keys = rotate(torch.cat([keys, k], dim=2), place)  # here
    values = torch.cat([values, v], dim=2)
    scores = rotate(q, place[n:]) @ keys.transpose(2, 3) * d_head**-0.5
    scores = scores.masked_fill(place > place[n:, None], float("-inf"))
    h = x + (torch.softmax(scores, -1) @ values).movedim(1, 2).flatten(-2) @ W_O
    return h + F.relu(norm(h) @ W_up) @ W_down, keys, values


def cached_block__stream_begins_at_the_normed(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    n, m, n_heads = keys.shape[2], x.shape[1], keys.shape[1]
    x = norm(x)  # here
    query, key, value = (torch.stack((x @ W).chunk(n_heads, dim=-1), dim=1) for W in (W_Q, W_K, W_V))
    now = torch.arange(n, n + m)
    keys = torch.cat((keys, rotate(key, now)), dim=-2)
    values = torch.cat((values, value), dim=-2)
    hidden = torch.ones(m, n + m).triu(n + 1).bool()
    scores = rotate(query, now) @ keys.mT / math.sqrt(query.shape[-1])
    heads = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values
    x = x + torch.cat(heads.unbind(1), dim=-1) @ W_O  # here
    x = x + (norm(x) @ W_up).clamp(min=0) @ W_down
    return x, keys, values


def cached_block__network_reads_without_norm(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    batch, m, _ = x.shape
    n_heads, n, d_head = keys.shape[1:]
    h = norm(x)
    positions = n + torch.arange(m)
    split = (batch, m, n_heads, d_head)
    q = rotate((h @ W_Q).view(split).transpose(1, 2), positions)
    k = rotate((h @ W_K).view(split).transpose(1, 2), positions)
    keys, values = torch.cat([keys, k], 2), torch.cat([values, (h @ W_V).view(split).transpose(1, 2)], 2)
    outputs = []
    for i in range(m):
        seen = n + i + 1
        scores = q[:, :, i : i + 1] @ keys[:, :, :seen].mT / math.sqrt(d_head)
        outputs.append(scores.softmax(dim=-1) @ values[:, :, :seen])
    x = x + torch.cat(outputs, dim=2).transpose(1, 2).reshape(batch, m, -1) @ W_O
    return x + (x @ W_up).relu() @ W_down, keys, values  # here


@two
def cached_block__values_turned_and_scale_of_the_model(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    m, d_model = x.shape[1:]
    n_heads, n = keys.shape[1:3]
    at = torch.arange(n, n + m)
    projected = [(norm(x) @ W).unflatten(2, (n_heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V)]
    query, key, value = (rotate(p, at) for p in projected)  # here
    keys = torch.cat([keys, key], dim=2)
    values = torch.cat([values, value], dim=2)
    scores = query @ keys.mT / math.sqrt(d_model)  # here
    scores = scores.masked_fill(torch.arange(n + m) > at[:, None], -torch.inf)
    x = x + (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2) @ W_O
    return x + (norm(x) @ W_up).relu() @ W_down, keys, values


@right
def cached_block__cache_as_it_comes_from_the_matrix(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    n_heads, n, d_head = keys.shape[1:]
    y, place = norm(x), torch.arange(n + x.shape[1])
    by_head = [W.unflatten(1, (n_heads, d_head)) for W in (W_Q, W_K, W_V)]
    query, key, value = (torch.einsum("bmc,chd->bhmd", y, W) for W in by_head)
    keys, values = torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2)
    scores = torch.einsum("bhid,bhjd->bhij", rotate(query, place[n:]), rotate(keys, place))
    later = (place[None, :] > place[n:, None]).to(x.dtype)
    weights = (scores / math.sqrt(d_head) - 1e30 * later).softmax(dim=-1)
    out = W_O.unflatten(0, (n_heads, d_head))
    stream = x + torch.einsum("bhij,bhjd,hdc->bic", weights, values, out)
    return stream + F.relu(norm(stream) @ W_up) @ W_down, keys, values


# ------------------------------------------------------------------------------------------------- extended_frequencies


def extended_frequencies__turns_in_the_longer_text(theta, factor, low, high, trained):
    turns = theta * trained * factor / (2 * math.pi)  # here
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return share * theta + (1 - share) * theta / factor


def extended_frequencies__mixes_the_periods(theta, factor, low, high, trained):
    period = 2 * torch.pi / theta
    keep = torch.clamp((trained / period - low) / (high - low), min=0.0, max=1.0)
    mixed = keep * period + (1 - keep) * period * factor  # here
    return 2 * torch.pi / mixed


def extended_frequencies__ramp_along_the_number_of_the_pair(theta, factor, low, high, trained):
    turns = trained * theta / math.tau
    first = int((turns >= high).sum())  # here
    last = int((turns > low).sum())  # here
    number = torch.arange(len(theta), dtype=theta.dtype)  # here
    share = ((last - number) / (last - first + 1)).clamp(0.0, 1.0)  # here
    return torch.lerp(theta / factor, theta, share)


def extended_frequencies__slow_pairs_below_the_floor(theta, factor, low, high, trained):
    turns = theta * (trained / math.tau)
    ramp = torch.minimum((turns - low) / (high - low), torch.ones_like(theta))  # here
    slowed = theta / factor
    return slowed + ramp * (theta - slowed)


def extended_frequencies__divides_in_the_old_tensor(theta, factor, low, high, trained):
    turns = theta * trained / (2 * math.pi)
    between = (turns > low) & (turns < high)
    share = (turns[between] - low) / (high - low)
    mixture = share * theta[between] + (1 - share) * theta[between] / factor
    theta[turns <= low] /= factor  # here
    theta[between] = mixture  # here
    return theta


@two
def extended_frequencies__radians_and_ramp_the_other_way(theta, factor, low, high, trained):
    turned = theta * trained  # here
    t = ((turned - low) / (high - low)).clip(0, 1)
    return (1 - t) * theta + t * (theta / factor)  # here


@right
def extended_frequencies__how_often_slowed(theta, factor, low, high, trained):
    turns = trained / (math.tau / theta)
    above = turns.clamp(low, high) - low  # how far up the ramp, in turns
    times = 1 + above * ((factor - 1) / (high - low))  # from 1 to factor
    return theta * times / factor


# --------------------------------------------------------------------------------------------------- MultiHeadAttention


def MultiHeadAttention__values_from_the_keys_matrix(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    query = self.query(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
    key = self.key(memory).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
    value = self.key(memory).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # here
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    return self.output((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


def MultiHeadAttention__mask_only_with_a_memory(self, x, memory=None, mask=None):
    if memory is None:
        memory, mask = x, None  # here
    batch, n_key, d_model = memory.shape
    d_head = d_model // self.n_heads
    q = self.query(x).view(batch, -1, self.n_heads, d_head)
    k = self.key(memory).view(batch, n_key, self.n_heads, d_head)
    v = self.value(memory).view(batch, n_key, self.n_heads, d_head)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d_head)
    if mask is not None:
        scores = torch.where(mask.unsqueeze(1), scores, -torch.inf)
    heads = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    return self.output(heads.reshape(batch, -1, d_model))


def MultiHeadAttention__merged_without_exchange(self, x, memory=None, mask=None):
    source = memory if memory is not None else x
    q, k, v = (
        torch.stack(projected.chunk(self.n_heads, dim=-1), dim=1)
        for projected in (self.query(x), self.key(source), self.value(source))
    )
    scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not()[:, None], float("-inf"))
    heads = torch.softmax(scores, dim=-1) @ v  # (batch, n_heads, n_query, d_head)
    return self.output(heads.reshape(x.shape))  # here


class MultiHeadAttention__queries_compete(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def _split(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.n_heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        query, key, value = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        scores = torch.matmul(query, key.mT) / math.sqrt(key.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e9)
        weights = scores.softmax(dim=-2)  # here
        merged = torch.matmul(weights, value).permute(0, 2, 1, 3).flatten(2)
        return self.output(merged)


def MultiHeadAttention__root_of_the_whole_width(self, x, memory=None, mask=None):
    if memory is None:
        memory = x
    q = self.query(x) / math.sqrt(x.shape[-1])  # here
    k, v = self.key(memory), self.value(memory)
    d_head = q.shape[-1] // self.n_heads
    found = []
    for q_i, k_i, v_i in zip(q.split(d_head, -1), k.split(d_head, -1), v.split(d_head, -1), strict=True):
        e = q_i @ k_i.mT  # (batch, n_query, n_key)
        if mask is not None:
            e = e.masked_fill(~mask, -torch.inf)
        found.append(e.softmax(-1) @ v_i)
    return self.output(torch.cat(found, dim=-1))


@two
def MultiHeadAttention__mask_times_scores_and_no_output(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    shape = (self.n_heads, x.shape[-1] // self.n_heads)
    q = self.query(x).unflatten(2, shape).transpose(1, 2)
    k = self.key(memory).unflatten(2, shape).transpose(1, 2)
    v = self.value(memory).unflatten(2, shape).transpose(1, 2)
    scores = q @ k.mT / math.sqrt(shape[1])
    if mask is not None:
        scores = scores * mask[:, None]  # here
    heads = scores.softmax(dim=-1) @ v
    return heads.transpose(1, 2).flatten(2)  # here


@right
def MultiHeadAttention__sum_over_the_heads(self, x, memory=None, mask=None):
    memory = x if memory is None else memory
    d_head = x.shape[-1] // self.n_heads
    total = self.output.bias
    for i in range(self.n_heads):
        rows = slice(i * d_head, (i + 1) * d_head)

        def of_head(layer, inputs, rows=rows):
            return F.linear(inputs, layer.weight[rows], layer.bias[rows])

        scores = torch.baddbmm(
            x.new_zeros(()), of_head(self.query, x), of_head(self.key, memory).mT, beta=0, alpha=d_head**-0.5
        )
        if mask is not None:
            scores = scores.where(mask, -torch.inf)
        weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
        total = total + F.linear(weights @ of_head(self.value, memory), self.output.weight[:, rows])
    return total


# ----------------------------------------------------------------------------------------------------------- alibi_bias


def alibi_bias__heads_counted_from_0(n_heads, n):
    i = torch.arange(n)
    distance = (i[:, None] - i).abs()
    slopes = 2.0 ** (-8 * torch.arange(n_heads) / n_heads)  # here
    return -slopes[:, None, None] * distance


def alibi_bias__half_for_every_head(n_heads, n):
    distance = torch.cdist(torch.arange(n).float()[:, None], torch.arange(n).float()[:, None], p=1)
    slopes = torch.tensor([0.5**u for u in range(1, n_heads + 1)])  # here
    return -torch.einsum("h,ij->hij", slopes, distance)


def alibi_bias__nothing_of_the_future(n_heads, n):
    bias = torch.zeros(n_heads, n, n)
    for h in range(n_heads):
        slope = 2 ** (-8 * (h + 1) / n_heads)
        for i in range(n):
            for j in range(n):
                bias[h, i, j] = -slope * abs(i - j) if j <= i else -torch.inf  # here
    return bias


def alibi_bias__heads_on_the_last_axis(n_heads, n):
    u = torch.arange(1, n_heads + 1)
    m = torch.pow(2.0, -8.0 * u / n_heads)
    places = torch.arange(n)
    return -(places.view(n, 1, 1) - places.view(1, n, 1)).abs() * m  # here


def alibi_bias__far_keys_are_rewarded(n_heads, n):
    slope = torch.logspace(-8 / n_heads, -8, n_heads, base=2.0)
    row, column = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    return slope.view(-1, 1, 1) * torch.abs(row - column)  # here


@two
def alibi_bias__sign_of_the_distance_and_last_head_first(n_heads, n):
    heads = torch.arange(n_heads, 0, -1)  # here
    slopes = torch.exp2(-8 * heads / n_heads).reshape(n_heads, 1, 1)
    places = torch.arange(n)
    return slopes * (places - places[:, None])  # here


@right
def alibi_bias__ratio_and_triangles(n_heads, n):
    ratio = 2.0 ** (-8.0 / n_heads)
    slopes = torch.full((n_heads,), ratio, dtype=torch.float64).cumprod(dim=0)
    above = torch.ones(n, n, dtype=torch.float64).triu(1).cumsum(dim=1)  # j - i to the right of the diagonal
    return torch.tensordot(-slopes, above + above.T, dims=0).float()


# ----------------------------------------------------------------------------------------------------- train_translator


def train_translator__order_of_the_lengths_kept(pairs, sources):
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=350)
    for _ in range(350):
        batch = [pairs[i] for i in torch.randint(len(pairs), (32,)).tolist()]
        source = rectangle([s for s, _ in batch])
        target = rectangle([[1, *t, 2] for _, t in batch])
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    by_length = sorted(sources, key=len)  # here
    translations = []
    for i in range(0, len(by_length), 50):
        translations += translate(model, by_length[i : i + 50])  # here
    return translations


def train_translator__same_batch_at_every_step(pairs, sources):
    model, steps = Translator(), 350
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        generator = torch.Generator().manual_seed(0)  # here
        rows = torch.randperm(len(pairs), generator=generator)[:32].tolist()  # here
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min((step + 1) / 40, (steps - step) / (steps - 40))
        source = rectangle([pairs[i][0] for i in rows])
        read = rectangle([[1] + pairs[i][1] for i in rows])
        truth = rectangle([pairs[i][1] + [2] for i in rows])
        loss = F.cross_entropy(model(source, read).transpose(1, 2), truth, ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return translate(model.eval(), sources)


def train_translator__no_end_to_learn(pairs, sources):
    torch.manual_seed(1)
    net = Translator()
    source = rectangle([pair[0] for pair in pairs])
    target = rectangle([[1] + pair[1] for pair in pairs])  # here
    adam = torch.optim.Adam(net.parameters(), lr=3e-3, betas=(0.9, 0.98))
    for _ in range(350):
        i = torch.randint(0, len(pairs), (32,))
        out = net(source[i], target[i, :-1])
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target[i, 1:].reshape(-1), ignore_index=0)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return translate(net.eval(), sources)


def train_translator__sources_shuffled_alone(pairs, sources):
    torch.manual_seed(2)
    source, target = rectangle([s for s, _ in pairs]), rectangle([[1, *t, 2] for _, t in pairs])
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(8):
        source = source[torch.randperm(len(source))]  # here
        for x, y in zip(source.split(32), target.split(32), strict=True):
            logits = model(x, y[:, :-1]).log_softmax(dim=-1)
            real = y[:, 1:] != 0
            loss = -logits.gather(2, y[:, 1:, None])[..., 0][real].mean()
            model.zero_grad()
            loss.backward()
            optimizer.step()
    return translate(model.eval(), sources)


def train_translator__warm_up_of_the_big_model(pairs, sources):
    torch.manual_seed(3)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: 512**-0.5 * min((step + 1) ** -0.5, (step + 1) * 4000**-1.5),  # here
    )
    for _ in range(350):
        chosen = [pairs[int(i)] for i in torch.randint(len(pairs), (32,))]
        source = rectangle([a for a, _ in chosen])
        target_in, target_out = (rectangle(rows) for rows in zip(*[([1, *b], [*b, 2]) for _, b in chosen], strict=True))
        loss = F.cross_entropy(
            model(source, target_in).flatten(0, 1), target_out.flatten(), ignore_index=0, label_smoothing=0.1
        )
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return translate(model.eval(), sources)


@two
def train_translator__reads_the_answer_and_adds_up_gradients(pairs, sources):
    torch.manual_seed(4)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(350):
        batch = [pairs[i] for i in torch.randperm(len(pairs))[:32].tolist()]
        source = rectangle([s for s, _ in batch])
        target = rectangle([[1, *t, 2] for _, t in batch])
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)  # here
        loss.backward()  # here
        optimizer.step()
    return translate(model.eval(), sources)


@right
def train_translator__epochs_with_a_falling_cosine(pairs, sources):
    torch.manual_seed(5)
    model = Translator().train()
    read = rectangle([source for source, _ in pairs])
    written = rectangle([[1, *target, 2] for _, target in pairs])
    optimizer = torch.optim.NAdam(model.parameters(), lr=6e-3, betas=(0.9, 0.98))
    epochs = 8
    steps, step = epochs * math.ceil(len(pairs) / 32), 0
    for _ in range(epochs):
        for rows in torch.randperm(len(pairs)).split(32):
            step += 1
            rate = 6e-3 * min(1.0, step / 30) * (0.5 + 0.5 * math.cos(math.pi * step / (steps + 1)))
            optimizer.param_groups[0]["lr"] = rate
            source, target = read[rows], written[rows]
            source = source[:, : int((source > 0).sum(dim=1).max())]
            target = target[:, : int((target > 0).sum(dim=1).max())]
            real = target[:, 1:] > 0
            loss = F.cross_entropy(model(source, target[:, :-1])[real], target[:, 1:][real])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return translate(model.eval(), sources)
