"""train_translator: Train a small encoder–decoder on a language that it has never seen, and translate with it."""

from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import torch
import torch.nn.functional as F
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.local_runner import AspectFailed
from lessonkit.exercises.observe import Draw

PAD, BOS, EOS = 0, 1, 2
TRAINING, UNSEEN = 1500, 200  # pairs
# What there is to say of numbers below 1000, in the source's tokens; the target's are in another order each time.
UNITS, TENS, HUNDRED, COMMA, ZERO, LINK = 0, 19, 27, 28, 29, 30


class Translator(nn.Module):
    """The notebook's own: one block of encoder, one of decoder, torch's layers."""

    def __init__(self, vocab_size=40, d_model=48, max_length=24):
        super().__init__()
        self.source_tokens, self.target_tokens = nn.Embedding(vocab_size, d_model), nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        options = dict(d_model=d_model, nhead=4, dim_feedforward=2 * d_model, dropout=0.0)
        self.encoder = nn.TransformerEncoderLayer(**options, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoderLayer(**options, batch_first=True, norm_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, source, target):
        n_source, n_target = source.shape[1], target.shape[1]
        padding = source == 0
        x = self.source_tokens(source) + self.positions.weight[:n_source]
        memory = self.norms[0](self.encoder(x, src_key_padding_mask=padding))
        future = torch.ones(n_target, n_target, dtype=torch.bool).triu(1)
        y = self.target_tokens(target) + self.positions.weight[:n_target]
        y = self.decoder(y, memory, tgt_mask=future, memory_key_padding_mask=padding)
        return self.output(self.norms[1](y))


def rectangle(rows):
    """The notebook's own."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@torch.no_grad()
def translate(model, sources):
    """The notebook's own."""
    source, written = rectangle(sources), torch.ones(len(sources), 1).long()
    for _ in range(20):
        best = model(source, written)[:, -1].argmax(dim=-1)
        written = torch.cat([written, best[:, None]], dim=1)
    return [row[: row.index(2)] if 2 in row else row for row in written[:, 1:].tolist()]


class _Language:
    """Numbers in the words of an invented language: its lexicon and four rules of its grammar are drawn."""

    def __init__(self, draw: Draw):
        self.lexicon = (3 + torch.randperm(37, generator=draw.generator)).tolist()
        self.units_first, self.linked, self.bare_hundred, self.backwards = draw.integers(2, 4).bool().tolist()

    def says(self, items: list[int]) -> list[int]:
        sentence: list[int] = []
        for item in reversed(items) if self.backwards else items:
            sentence += [self.lexicon[COMMA]] if sentence else []
            hundreds, rest = divmod(item, 100)
            if hundreds:
                one_hundred = hundreds == 1 and self.bare_hundred
                sentence += ([] if one_hundred else [self.lexicon[hundreds - 1]]) + [self.lexicon[HUNDRED]]
            tens, units = divmod(rest, 10)
            if rest >= 20:
                parts = [self.lexicon[TENS + tens - 2]]
                if units:
                    parts += ([self.lexicon[LINK]] if self.linked else []) + [self.lexicon[units - 1]]
                sentence += parts[::-1] if self.units_first else parts
            elif rest or not hundreds:
                sentence.append(self.lexicon[rest - 1 if rest else ZERO])
        return sentence


def _source(items: list[int]) -> list[int]:
    plain = _Language.__new__(_Language)
    plain.lexicon, plain.units_first, plain.linked = list(range(3, 40)), False, False
    plain.bare_hundred, plain.backwards = False, False
    return plain.says(items)


@lru_cache(maxsize=4)
def _pairs(seed: int, count: int) -> list[list[list[int]]]:
    """[source, target] of lists of one or two numbers; no source comes twice."""
    draw = Draw(seed, "train_translator")
    language, found = _Language(draw), dict[tuple[int, ...], list[int]]()
    while len(found) < count:
        lengths, digits = draw.integers(2, count).tolist(), draw.integers(3, count, 2).tolist()
        shares = draw.uniform(count, 2).tolist()
        for n, d, u in zip(lengths, digits, shares, strict=True):
            items = [int(10 ** (1 + d[i]) * u[i]) for i in range(1 + n)]
            found.setdefault(tuple(_source(items)), language.says(items))
    return [[list(source), target] for source, target in list(found.items())[:count]]


_TRUTHS: dict[str, dict[tuple[int, ...], list[int]]] = {}  # of the tests drawn last, by their training pairs


def reference(pairs, sources):
    """The truth, which it is told: what a perfect translator would say."""
    truth = _TRUTHS[str(pairs[:20])]
    return [truth[tuple(source)] for source in sources]


def solution(pairs, sources, rate=None, steps=350):
    rate = rate or 0.01                                           # None: the sweep's best
    torch.manual_seed(17)
    model, size = Translator(), 32
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    one_cycle = torch.optim.lr_scheduler.OneCycleLR
    schedule = one_cycle(optimizer, rate, steps, cycle_momentum=False)      # else it moves β₁
    by_length = sorted(pairs, key=lambda pair: len(pair[1]))      # little padding in a batch
    for i in torch.randint(len(by_length) // size, (steps,)).tolist():
        batch = by_length[size * i : size * (i + 1)]
        source = rectangle([source for source, _ in batch])
        target = rectangle([[1, *target, 2] for _, target in batch])
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return translate(model, sources)


exercise = Exercise(
    "train_translator",
    reference=reference,
    solution=solution,
    returns=("translations",),
    lists=True,
    metric="% of the unseen sentences right",
    seeds=1,
    difficulty=3,
    minutes=25,
    hints=(
        "Begin with the loop: a batch of pairs, both sides padded to rectangles with 0, <bos> in front of the target "
        "on its way in and <eos> behind it on its way out. Does the loss on one single batch go to zero, and does "
        "`translate` then write the targets of that batch? If not, nothing else matters.",
        "AdamW, at its highest the rate that is best in your sweep, with a warm-up and a decline to zero, gradients "
        "clipped to norm 1, batches of about 32 pairs of like length, some 300 steps: the loss should end below 0.05.",
        "`translate(model, sources)` writes for all sources at once, in their order, without <bos> and <eos>. It asks "
        "the model for the token after each token that it has written. So in training, put the target in without its "
        "last token, and ask for the target without its first.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

_TRANSLATED: list[tuple[Any, int, Any]] = []  # (runner, seed, what came back): a run is looked at by every aspect


def _translated(answer, draw):
    """(sources, truths, what the answer says of them). It is asked once for all aspects: a training run takes long."""
    found = _pairs(draw.seed, TRAINING + UNSEEN)
    unseen, training = found[:UNSEEN], found[UNSEEN:]
    sources, truths = [source for source, _ in unseen], [target for _, target in unseen]
    _TRUTHS.clear()
    _TRUTHS[str(training[:20])] = dict(zip(map(tuple, sources), truths, strict=True))
    if not (_TRANSLATED and _TRANSLATED[0][0] is answer.runner and _TRANSLATED[0][1] == draw.seed):
        try:
            said = answer(training, sources)
        except AspectFailed as failed:
            said = failed
        _TRANSLATED[:] = [(answer.runner, draw.seed, said)]
    if isinstance(_TRANSLATED[0][2], AspectFailed):
        raise _TRANSLATED[0][2]
    return sources, truths, _TRANSLATED[0][2]


def _share(answer, draw, right, enough):
    """The share of sentences for which `right(said, truth)`, as a share of `enough`, which is all that is asked for.

    Beside it, where it is less, a number that stands for what was said: of two answers that fall short only those that
    say the same do the same, so that no model that is simply bad gets the name of a known mistake.
    """
    _, truths, said = _translated(answer, draw)
    said = [*said, *([[]] * len(truths))][: len(truths)]
    share = sum(map(right, said, truths)) / len(truths)
    said_so = 0 if share >= enough else 1 + crc32(str(said).encode()) % 9973
    return share, torch.tensor([min(1.0, share / enough), float(said_so)])


def _odd(got, expected):
    return "a <pad>, <bos> or <eos> stands in a translation" if got[0] else "there are not as many as sources"


def _of_all(got, expected, enough):
    return f"{float(got[0]) * enough:.0%} of the unseen sentences, {enough:.0%} asked for"


def _explained(enough):
    return partial(_of_all, enough=enough)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one for each", points=1, hint=3, explain=_odd)
def one_for_each(answer, draw):
    """a translation for each source, without <pad>, <bos> and <eos>"""
    sources, _, said = _translated(answer, draw)
    return torch.tensor([len(said) == len(sources), all(token > EOS for row in said for token in row)])


@aspect("first word", points=1, hint=1, explain=_explained(0.9))
def first_word(answer, draw):
    """nine in ten begin with the right word"""
    return _share(answer, draw, lambda said, truth: said[:1] == truth[:1], 0.9)[1]


@aspect("a third", points=2, hint=2, explain=_explained(1 / 3))
def a_third(answer, draw):
    """a third of the unseen sentences are right to the last token"""
    share, enough = _share(answer, draw, lambda said, truth: said == truth, 1 / 3)
    answer.measure(100 * share)
    return enough


@aspect("two thirds", points=2, hint=2, explain=_explained(2 / 3))
def two_thirds(answer, draw):
    """two thirds are"""
    return _share(answer, draw, lambda said, truth: said == truth, 2 / 3)[1]


@aspect("four fifths", points=2, hint=2, explain=_explained(0.8))
def four_fifths(answer, draw):
    """four fifths are"""
    return _share(answer, draw, lambda said, truth: said == truth, 0.8)[1]


# -------------------------------------------------------------------- further from it: nothing is trained, all is quick

ALL = ("first word", "a third", "two thirds", "four fifths")


@misconception("the source for a translation", fails=ALL)
def the_source_for_a_translation(pairs, sources, rate=0.01, steps=350):
    """The sources came back. The two languages share their token numbers, and nothing else: token 7 of the one is not
    token 7 of the other. Did the model learn to copy its own input? Then the target went in without being shifted."""
    return [list(source) for source in sources]


@misconception("the nearest training sentence", fails=ALL)
def the_nearest_training_sentence(pairs, sources, rate=0.01, steps=350):
    """Each source got the translation of a training sentence that looks like it. That is memory: none of these sources
    is among the training sentences, and what is not quite the same is not right."""
    def alike(one, other):
        return sum(a == b for a, b in zip(one, other, strict=False)) - abs(len(one) - len(other))

    return [max(pairs, key=lambda pair: alike(pair[0], source))[1] for source in sources]


@misconception("the same for all", fails=ALL)
def the_same_for_all(pairs, sources, rate=0.01, steps=350):
    """Every source got the same translation. So the decoder has learned what sentences look like and does not look at
    the source: is the memory handed over, and has it trained long enough for the loss to fall below that of a language
    model?"""
    return [pairs[0][1] for _ in sources]


@misconception("<eos> comes along", fails=("one for each", *ALL))
def eos_comes_along(pairs, sources, rate=0.01, steps=350):
    """The rows still have <eos> and what was written after it. Cut each off before its first <eos>."""
    return [[*pairs[0][1], 2, 2, 2] for _ in sources]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a rate by hand, batches as they come")
def a_rate_by_hand_batches_as_they_come(pairs, sources, rate=0.008, steps=350):
    """Adam, one rectangle for all, cut to what a batch needs."""
    torch.manual_seed(1)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    x = nn.utils.rnn.pad_sequence([torch.tensor(s) for s, _ in pairs], batch_first=True)
    y = nn.utils.rnn.pad_sequence([torch.tensor([1, *t, 2]) for _, t in pairs], batch_first=True)
    for step in range(1, steps + 1):
        rows = torch.randint(len(pairs), (32,))
        source, target = x[rows], y[rows]
        log_p = model(source, target[:, :-1]).log_softmax(dim=-1).flatten(0, 1)
        loss = F.nll_loss(log_p, target[:, 1:].reshape(-1), ignore_index=0)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(step / 60, (steps + 1 - step) / 250, 1)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    texts = [[1] for _ in sources]
    source = nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sources], batch_first=True)
    with torch.no_grad():
        for _ in range(16):
            for text, token in zip(texts, model(source, torch.tensor(texts))[:, -1].argmax(-1).tolist(), strict=True):
                text.append(token)
    return [text[1 : text.index(2)] if 2 in text else text[1:] for text in texts]


@alternative("epochs, each sentence decoded by itself")
def epochs_each_sentence_decoded_by_itself(pairs, sources, rate=0.008, steps=333):
    """Shuffled epochs, a cosine, label smoothing."""
    torch.manual_seed(2)
    model, n = Translator(), len(pairs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    epochs = max(1, steps // (n // 40))
    total = epochs * (n // 40)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    for _ in range(epochs):
        order = torch.randperm(n).tolist()
        for start in range(0, 40 * (n // 40), 40):
            chosen = [pairs[i] for i in order[start : start + 40]]
            width, longest = max(len(s) for s, _ in chosen), max(len(t) for _, t in chosen) + 2
            x = torch.tensor([s + [0] * (width - len(s)) for s, _ in chosen])
            y = torch.tensor([[1, *t, 2] + [0] * (longest - 2 - len(t)) for _, t in chosen])
            logits = model(x, y[:, :-1])
            loss = F.cross_entropy(logits.mT, y[:, 1:], ignore_index=0, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            cosine.step()
    model.requires_grad_(False)
    texts = []
    for source in sources:
        text = [1]
        while len(text) < 18 and (len(text) == 1 or text[-1] != 2):
            text.append(int(model(torch.tensor([source]), torch.tensor([text]))[0, -1].argmax()))
        texts.append(text[1:-1] if text[-1] == 2 else text[1:])
    return texts
