"""A tenth draw: four wrong answers with one mistake each, one with two, and a right one, to five exercises.

Written from the released notebooks alone (assignments 08, 09, 10 and 14), the exercises' modules, their solutions and
the lectures unopened. No check and no search for the line was run on the answers. What the notebooks give (the block,
the model with its two functions) is the exercises' own, which is the same.
"""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import nn
from unseen import right, two

from attncourse_lessons.l09_transformer.exercises.decoder_lm import Block
from attncourse_lessons.l10_training.exercises.train_translator import Translator, rectangle, translate

# ------------------------------------------------------------------------------------------------------- pre_norm_block


def pre_norm_block__side_by_side(x, attend, feed_forward, norm_1, norm_2):
    attended = attend(norm_1(x))
    fed = feed_forward(norm_2(x))  # here
    return x + attended + fed


def pre_norm_block__second_sum_begins_at_the_input(x, attend, feed_forward, norm_1, norm_2):
    skip = x
    h = attend(norm_1(x)) + skip
    h = feed_forward(norm_2(h)) + skip  # here
    return h


def pre_norm_block__second_norm_after_the_network(x, attend, feed_forward, norm_1, norm_2):
    def attention_branch(y):
        return attend(norm_1(y))

    def network_branch(y):
        return norm_2(feed_forward(y))  # here

    for branch in (attention_branch, network_branch):
        x = torch.add(x, branch(x))
    return x


def pre_norm_block__a_view_for_a_copy(x, attend, feed_forward, norm_1, norm_2):
    stream = x.view(x.shape)  # here
    stream += attend(norm_1(x))  # here
    return stream + feed_forward(norm_2(stream))


@two
def pre_norm_block__first_sum_from_the_norm_and_one_norm_for_both(x, attend, feed_forward, norm_1, norm_2):
    normed = norm_1(x)
    x = normed + attend(normed)  # here
    normed = norm_1(x)  # here
    return x + feed_forward(normed)


@right
def pre_norm_block__the_sum_of_all_that_was_written(x, attend, feed_forward, norm_1, norm_2):
    written = x[None]
    for norm, sublayer in zip((norm_1, norm_2), (attend, feed_forward), strict=True):
        read = norm(torch.einsum("w...->...", written))
        written = torch.cat([written, sublayer(read)[None]])
    return written.sum(dim=0)


# ------------------------------------------------------------------------------------------------------------ DecoderLM


class DecoderLM__deviation_given_as_the_mean(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, 0.02)  # here
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        n = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[:n]
        mask = torch.ones(n, n, dtype=torch.bool, device=tokens.device).tril()
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.mT


class DecoderLM__shifted_right_once_more(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)
        self.tokens.weight.data.normal_(0.0, 0.02)
        self.positions.weight.data.normal_(0.0, 0.02)
        self.blocks = nn.ModuleList()
        for _ in range(n_layers):
            self.blocks.append(Block(d_model, n_heads))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        n = tokens.size(1)
        place = torch.arange(n, device=tokens.device)
        read = F.pad(tokens, (1, 0))[:, :-1]  # here
        x = self.tokens(read) + self.positions(place)  # here
        mask = place[:, None] >= place[None, :]
        for block in self.blocks:
            x = block(x, mask)
        return torch.einsum("bnd,vd->bnv", self.norm(x), self.tokens.weight)


class DecoderLM__no_gradient_through_the_output(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        batch, n = tokens.shape
        places = torch.arange(n, device=tokens.device).expand(batch, n)
        x = self.tokens(tokens) + self.positions(places)
        future = torch.ones(n, n, device=tokens.device).triu(1).bool()
        for block in self.blocks:
            x = block(x, ~future)
        return F.linear(self.norm(x), self.tokens.weight.data)  # here


class DecoderLM__norm_after_every_block(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        with torch.no_grad():
            self.tokens.weight.copy_(0.02 * torch.randn_like(self.tokens.weight))
            self.positions.weight.copy_(0.02 * torch.randn_like(self.positions.weight))
        self.blocks = nn.ModuleList([Block(d_model, n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        n = tokens.shape[-1]
        mask = torch.tril(torch.ones((n, n), dtype=torch.bool, device=tokens.device))
        x = self.tokens(tokens) + self.positions.weight[None, :n]
        for block in self.blocks:
            x = self.norm(block(x, mask))  # here
        return torch.matmul(x, self.tokens.weight.t())  # here


@two
class DecoderLM__one_block_many_times_and_the_next_token_seen(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, mean=0.0, std=0.02)
        self.blocks = nn.ModuleList([Block(d_model, n_heads)] * n_layers)  # here
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        i = torch.arange(tokens.shape[1], device=tokens.device)
        mask = i <= i[:, None] + 1  # here
        x = self.tokens(tokens) + self.positions(i)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x) @ self.tokens.weight.T


@right
class DecoderLM__tables_read_by_products(nn.Module):
    def __init__(self, vocab_size, max_length, d_model, n_heads, n_layers):
        super().__init__()
        drawn = 0.02 * torch.randn(vocab_size + max_length, d_model)
        tables = (table.clone() for table in drawn.split([vocab_size, max_length]))
        self.tokens, self.positions = (nn.Embedding.from_pretrained(table, freeze=False) for table in tables)
        self.blocks = nn.Sequential(*(Block(d_model, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        table = self.tokens.weight
        n = tokens.shape[1]
        which = F.one_hot(tokens, len(table)).to(table.dtype)
        # Row i of the mask is the sum of the first i + 1 rows of the identity.
        mask = torch.eye(n, dtype=torch.long, device=tokens.device).cumsum(dim=0) > 0
        x = torch.add(which @ table, self.positions.weight.narrow(0, 0, n))
        x = reduce(lambda y, block: block(y, mask), self.blocks, x)
        return (table @ self.norm(x).mT).mT


# ------------------------------------------------------------------------------------------------------------ TrainStep


def TrainStep__each_parameter_clipped_alone(self, micro_batches, held_out, lr, clip):
    self.train()
    self.optimizer.zero_grad()
    n_tokens = sum(len(target) for _, target in micro_batches)
    loss = 0.0
    for x, target in micro_batches:
        part = F.nll_loss(self.model(x), target, reduction="sum") / n_tokens
        part.backward()
        loss += part.item()
    norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
    for parameter in self.model.parameters():
        nn.utils.clip_grad_norm_(parameter, clip)  # here
    self.optimizer.step(lr)
    self.eval()
    with torch.no_grad():
        x, target = held_out
        after = F.nll_loss(self.model(x), target)
    return loss, norm, after


def TrainStep__mean_of_the_means_reported(self, micro_batches, held_out, lr, clip):
    self.model.train()
    self.optimizer.zero_grad()
    total = sum(x.shape[0] for x, _ in micro_batches)
    losses = []
    for x, target in micro_batches:
        loss = F.nll_loss(self.model(x), target)
        (loss * (len(x) / total)).backward()
        losses.append(loss.detach())
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.inference_mode():
        held_out_loss = F.nll_loss(self.model(held_out[0]), held_out[1]).item()
    return torch.stack(losses).mean(), norm, held_out_loss  # here


def TrainStep__no_grad_for_eval(self, micro_batches, held_out, lr, clip):
    model, parameters = self.model, list(self.model.parameters())
    model.train()
    sums = [F.nll_loss(model(x), target, reduction="sum") for x, target in micro_batches]
    loss = sum(sums) / sum(target.numel() for _, target in micro_batches)
    self.optimizer.zero_grad()
    loss.backward()
    norm = sum(p.grad.square().sum() for p in parameters).sqrt()
    if norm > clip:
        for p in parameters:
            p.grad *= clip / norm
    self.optimizer.step(lr)  # here
    with torch.no_grad():  # here
        x, target = held_out
        after = -model(x).gather(1, target[:, None]).mean()
    return loss.detach(), norm, after


def TrainStep__training_mode_never_again(self, micro_batches, held_out, lr, clip):
    self.optimizer.zero_grad()  # here
    summed, count = 0.0, 0
    for x, target in micro_batches:
        loss = F.nll_loss(self.model(x), target, reduction="sum")
        loss.backward()
        summed, count = summed + loss.item(), count + len(target)
    for p in self.model.parameters():
        p.grad /= count
    norm = torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm()
    scale = min(1.0, clip / float(norm)) if norm > 0 else 1.0
    for p in self.model.parameters():
        p.grad *= scale
    self.optimizer.step(lr)
    self.model.eval()  # here
    with torch.no_grad():
        after = F.nll_loss(self.model(held_out[0]), held_out[1])
    return summed / count, norm, after


@two
def TrainStep__short_gradients_lengthened_and_held_out_before_the_step(self, micro_batches, held_out, lr, clip):
    self.train()
    self.optimizer.zero_grad()
    total, loss = sum(len(target) for _, target in micro_batches), torch.zeros(())
    for x, target in micro_batches:
        part = F.nll_loss(self.model(x), target) * len(target) / total
        part.backward()
        loss = loss + part.detach()
    grads = [p.grad for p in self.model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    scale = max(1.0, clip / norm.item())  # here
    for g in grads:
        g.mul_(scale)
    self.eval()
    with torch.no_grad():
        after = F.nll_loss(self.model(held_out[0]), held_out[1])  # here
    self.optimizer.step(lr)  # here
    return loss, norm, after


@right
def TrainStep__one_long_vector_and_a_model_without_its_dropout(self, micro_batches, held_out, lr, clip):
    parameters = list(self.model.parameters())
    self.model.train()
    loss, flat, n_seen = 0.0, torch.zeros_like(nn.utils.parameters_to_vector(parameters)), 0
    for x, target in micro_batches:
        # The mean so far moves towards this micro-batch by its share of all tokens so far.
        n_seen += len(target)
        share = len(target) / n_seen
        part = F.nll_loss(self.model(x), target)
        gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(part, parameters)])
        loss, flat = loss + share * (part.item() - loss), flat.lerp(gradient, share)
    norm = flat.norm()
    pieces = (flat * (clip / norm).clamp(max=1.0)).split([p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter)
    self.optimizer.step(lr)
    with torch.no_grad():
        x, target = held_out
        for layer in self.model:
            x = x if isinstance(layer, nn.Dropout) else layer(x)
        after = F.nll_loss(x, target)
    return loss, norm, after


# ----------------------------------------------------------------------------------------------------- train_translator


def train_translator__sorted_by_length_and_left_so(pairs, sources):
    torch.manual_seed(0)
    source, target = rectangle([s for s, _ in pairs]), rectangle([[1, *t, 2] for _, t in pairs])
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=300, pct_start=0.2)
    for _ in range(300):
        rows = torch.randint(len(pairs), (32,))
        logits = model(source[rows], target[rows, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[rows, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    by_length = sorted(sources, key=len)  # sources of one length need no padding  # here
    translations = []
    for start in range(0, len(by_length), 50):
        translations += translate(model, by_length[start : start + 50])
    return translations  # here


def train_translator__end_appended_in_place(pairs, sources):
    torch.manual_seed(1)
    for _, target in pairs:
        target.append(2)  # here
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * min((step + 1) / 50, (300 - step) / 250)
        batch = [pairs[i] for i in torch.randint(len(pairs), (32,)).tolist()]
        labels = rectangle([target for _, target in batch])
        inputs = F.pad(labels, (1, 0), value=1)[:, :-1]
        log_p = model(rectangle([source for source, _ in batch]), inputs).log_softmax(dim=-1)
        loss = -log_p.gather(2, labels.unsqueeze(2)).squeeze(2)[labels != 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return translate(model, sources)


def train_translator__never_taught_to_end(pairs, sources):
    torch.manual_seed(2)
    source = rectangle([source for source, _ in pairs])
    target = rectangle([[1, *target] for _, target in pairs])  # here
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.98))
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min((t + 1) / 50, 1 - t / 300))
    criterion = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.05)
    for _ in range(6):
        for rows in torch.randperm(len(pairs)).split(32):
            y = target[rows]
            loss = criterion(model(source[rows], y[:, :-1]).mT, y[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
    return translate(model, sources)


def train_translator__warm_up_longer_than_the_training(pairs, sources):
    torch.manual_seed(3)
    d_model, warmup_steps = 48, 4000  # here
    model = Translator(d_model=d_model)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    x, y = rectangle([p[0] for p in pairs]), rectangle([[1] + p[1] + [2] for p in pairs])
    for step in range(1, 351):
        rows = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[rows], y[rows][:, :-1]).transpose(1, 2), y[rows][:, 1:], ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)  # here
        optimizer.step()
    return translate(model, sources)


@two
def train_translator__drawn_apart_and_the_end_kept(pairs, sources):
    torch.manual_seed(4)
    x, y = rectangle([s for s, _ in pairs]), rectangle([[1, *t, 2] for _, t in pairs])
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    for _ in range(200):
        source = x[torch.randint(len(x), (32,))]  # here
        target = y[torch.randint(len(y), (32,))]  # here
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, written = rectangle(sources), torch.full((len(sources), 1), 1)
    with torch.no_grad():
        while written.shape[1] < 21:
            best = model(source, written)[:, -1:].argmax(dim=-1)
            written = torch.cat([written, best], dim=1)
    rows = written[:, 1:].tolist()
    return [row[: row.index(2) + 1] if 2 in row else row for row in rows]  # here


@right
def train_translator__one_stack_that_continues_the_source(pairs, sources):
    torch.manual_seed(0)
    # A text is a source, right-aligned in 11 places, <bos>, the target (its ids after the source's) and <eos>.
    texts = torch.zeros(len(pairs), 24, dtype=torch.long)
    for text, (source, target) in zip(texts, pairs, strict=True):
        text[11 - len(source) : 11] = torch.tensor(source)
        text[11 : len(target) + 13] = torch.tensor([1, *(token + 40 for token in target), 2])
    tokens, places = nn.Embedding(80, 48), nn.Embedding(24, 48)
    layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
    stack = nn.TransformerEncoder(layer, 2, nn.LayerNorm(48), enable_nested_tensor=False)
    output = nn.Linear(48, 80)
    future = torch.ones(24, 24, dtype=torch.bool).triu(1)
    future[:, :12] = False
    for table in (tokens, places):
        nn.init.normal_(table.weight, std=0.5)

    def continued(text):
        n = text.shape[1]
        return output(stack(tokens(text) + places.weight[:n], mask=future[:n, :n])[:, 11:])

    steps, rate = 260, 0.007
    optimizer = torch.optim.AdamW(nn.ModuleList([tokens, places, stack, output]).parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        text = texts[torch.randint(len(texts), (48,))]
        loss = F.cross_entropy(continued(text[:, :-1]).mT, text[:, 12:], ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()

    text = torch.tensor([[0] * (11 - len(source)) + list(source) + [1] for source in sources])
    with torch.no_grad():
        for _ in range(12):
            text = torch.cat([text, continued(text)[:, -1:].argmax(dim=-1)], dim=1)
    written = [row[: row.index(2)] if 2 in row else row for row in text[:, 12:].tolist()]
    return [[token - 40 for token in row if token > 42] for row in written]


# ---------------------------------------------------------------------------------------------------------- repair_past


def repair_past__only_the_words_before(x, W_Q, W_K, W_V):
    rows = []
    for t, newest in enumerate(x):
        past = x[: max(t, 1)]  # here
        scores = past @ W_K @ (newest @ W_Q) / math.sqrt(W_K.shape[1])
        rows.append(scores.softmax(dim=0) @ (past @ W_V))
    return torch.stack(rows)


def repair_past__root_of_the_width_of_a_token(x, W_Q, W_K, W_V):
    n, d = x.shape
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    scores = torch.einsum("ik,jk->ij", query, key) / math.sqrt(d)  # here
    future = torch.ones(n, n, dtype=torch.bool).triu(diagonal=1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=1) @ value


def repair_past__cache_without_gradient(x, W_Q, W_K, W_V):
    keys, values = x.new_empty(0, W_K.shape[1]), x.new_empty(0, W_V.shape[1])
    rows = []
    for token in x.split(1):
        keys = torch.cat([keys.detach(), token @ W_K])  # here
        values = torch.cat([values, token @ W_V])
        weights = torch.softmax(token @ W_Q @ keys.mT * keys.shape[1] ** -0.5, dim=-1)
        rows.append(weights @ values)
    return torch.cat(rows)


def repair_past__future_weights_set_to_zero(x, W_Q, W_K, W_V):
    queries, keys, values = (x @ W for W in (W_Q, W_K, W_V))
    scores = queries @ keys.T / keys.size(-1) ** 0.5  # here
    weights = torch.softmax(scores, dim=-1).tril()  # here
    return weights @ values


@two
def repair_past__softmax_over_the_queries_and_no_scale(x, W_Q, W_K, W_V):
    n = len(x)
    i = torch.arange(n)
    scores = (x @ W_Q) @ (x @ W_K).mT  # here
    scores = torch.where(i[None, :] <= i[:, None], scores, -torch.inf)
    weights = torch.softmax(scores, dim=0)  # here
    return weights @ (x @ W_V)


@right
def repair_past__by_distance_with_a_running_softmax(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q / math.sqrt(W_Q.shape[1]), x @ W_K, x @ W_V
    # First every token reads itself, then all at once the token before, then the one before that.
    largest = (query * key).sum(dim=1, keepdim=True)
    total, output = torch.ones_like(largest), value
    for back in range(1, len(x)):
        score = (query[back:] * key[:-back]).sum(dim=1, keepdim=True)
        top = torch.maximum(largest[back:], score)
        old, new = (largest[back:] - top).exp(), (score - top).exp()
        largest = torch.cat([largest[:back], top])
        total = torch.cat([total[:back], old * total[back:] + new])
        output = torch.cat([output[:back], old * output[back:] + new * value[:-back]])
    return output / total
