"""Activation patching in models that read gossip: which verbs to ask, and vectors of one run put into another."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from statistics import mean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attncourse.attention import MultiHeadAttention
from attncourse.data.gossip import MEN, NAMES, QUESTIONS, VOCABULARY, WOMEN, Gossip, gossip
from attncourse.training import descend
from attncourse.transformer import Block, Encoder, TransformerConfig, Weights


class Reader(nn.Module):
    """The lecture's model: two blocks of four heads; at each word that asks, a name for each kind of question."""

    def __init__(self, d_model: int = 64):
        super().__init__()
        self.encoder = Encoder(
            TransformerConfig(
                vocab_size=len(VOCABULARY), d_model=d_model, n_layers=2, n_heads=4, d_ff=2 * d_model,
                positions="rope", max_length=64, dropout=0.0,
            )
        )  # fmt: skip
        self.read = nn.Linear(d_model, len(QUESTIONS) * len(NAMES))

    def forward(self, told: Gossip) -> Float[Tensor, "m names"]:
        states = self.encoder(told.tokens, told.lengths)                         # (batch, n, d_model)
        asking = states[told.sentence, told.asker]                               # (m, d_model)
        names = self.read(asking).unflatten(-1, (len(QUESTIONS), -1))            # (m, questions, names)
        return names[torch.arange(len(told.kind)), told.kind]                    # (m, names)


def trained(seed: int) -> Reader:
    """A model, trained from a seed as the lecture does."""
    torch.manual_seed(seed)
    model, rng = Reader(), random.Random(seed)

    def losses() -> Iterator[Tensor]:
        while True:
            told = gossip(24, rng)
            yield nn.functional.cross_entropy(model(told), told.answer)

    descend(model, losses(), steps=200, lr=5e-3, progress=False)
    return model


class Givers(NamedTuple):
    """Which of a batch's questions ask "who gave", by what stands in the sentence as the giver."""

    name: Int[Tensor, " m_name"]
    pronoun: Int[Tensor, " m_pronoun"]
    means: Int[Tensor, " m_pronoun"]
    """For each of `pronoun`, the question that its pronoun asks: whom it means."""


def givers(told: Gossip) -> Givers:
    """Sort the questions "who gave". The question of a giving pronoun comes just before that of its verb."""
    gave = (told.kind == QUESTIONS.index("who gave")).nonzero()[:, 0]
    before = (gave - 1).clamp(min=0)
    by_pronoun = (told.kind[before] == QUESTIONS.index("he / she is")) & (told.sentence[before] == told.sentence[gave])
    return Givers(gave[~by_pronoun], gave[by_pronoun], before[by_pronoun])


class Renamed(NamedTuple):
    """Sentences with one question each, "who gave", whose giver is a pronoun; and the same ones with another name."""

    told: Gossip
    other: Gossip
    """The same, but the one whom the pronoun means has another name, of the same sex, that was not in the sentence."""
    pronoun: Int[Tensor, " m"]
    """Where the pronoun stands."""


def renamed(told: Gossip) -> Renamed:
    """A sentence for each verb whose giver is a pronoun, if a name is left that the sentence does not have."""
    _, verbs, pronouns = givers(told)
    one_each, other, kept = _with_another_name(told, verbs)
    return Renamed(one_each, other, told.asker[pronouns[kept]])


def renamed_receivers(told: Gossip) -> tuple[Gossip, Gossip]:
    """A sentence for each verb, "who got", and the same with another name for who got, if one is left."""
    one_each, other, _ = _with_another_name(told, (told.kind == QUESTIONS.index("who got")).nonzero()[:, 0])
    return one_each, other


def _with_another_name(told: Gossip, questions: Int[Tensor, " q"]) -> tuple[Gossip, Gossip, Int[Tensor, " m"]]:
    """A sentence for each of the questions; the same with another name as its answer; which questions have one."""
    rows, kept, names = [], [], []
    for i, question in enumerate(questions.tolist()):
        tokens = told.tokens[told.sentence[question]]
        meant = NAMES[int(told.answer[question])]
        said = {VOCABULARY[token] for token in tokens.tolist()}
        unused = [name for name in (WOMEN if meant in WOMEN else MEN) if name not in said]
        if unused:
            rows.append(tokens)
            kept.append(i)
            names.append(VOCABULARY.index(unused[0]))
    tokens, verb, m = torch.stack(rows), questions[kept], torch.arange(len(rows))
    one_each = Gossip(tokens, told.lengths[told.sentence[verb]], m, told.asker[verb], told.kind[verb], told.place[verb])
    changed = tokens.clone()                                                 # (m, n)
    changed[m, one_each.place] = torch.tensor(names)
    return one_each, one_each._replace(tokens=changed), torch.tensor(kept)


def one_by_one(told: Gossip) -> Iterator[Gossip]:
    """Each sentence with its one question, without padding."""
    for i, length in enumerate(told.lengths.tolist()):
        one = slice(i, i + 1)
        yield Gossip(told.tokens[one, :length], told.lengths[one], torch.tensor([0]), *(x[one] for x in told[3:]))


@contextmanager
def put(module: nn.Module, told: Gossip, place: Int[Tensor, " m"], rows: Tensor) -> Iterator[None]:
    """Within it, the module puts out `rows` (m, d) at these places, and elsewhere what it does anyway."""

    def hook(_, inputs: object, output: Tensor) -> Tensor:
        output = output.clone()                                              # (batch, n, d)
        output[told.sentence, place] = rows
        return output

    held = module.register_forward_hook(hook)
    try:
        yield
    finally:
        held.remove()


def rows_at(model: nn.Module, module: nn.Module, told: Gossip, place: Int[Tensor, " m"]) -> Tensor:
    """What a module of the model puts out at one place of each sentence, (m, d), while the model reads them."""
    kept: list[Tensor] = []
    hook = module.register_forward_hook(lambda _, inputs, output: kept.append(output[told.sentence, place]))
    with torch.no_grad():
        model(told)
    hook.remove()
    return kept[0]


def answers_with(
    model: nn.Module, told: Gossip, module: nn.Module, place: Int[Tensor, " m"], rows: Tensor
) -> Int[Tensor, " m"]:
    """The model's answers if a module puts out `rows` (m, d) at these places."""
    with torch.no_grad(), put(module, told, place, rows):
        return model(told).argmax(dim=-1)                                    # (m,)


def weight_on(
    model: Reader,
    told: Gossip,
    place: Int[Tensor, " m"],
    module: nn.Module | None = None,
    rows: Tensor | None = None,
) -> Float[Tensor, " heads"]:
    """The mean weight of each head of layer 1 from who asks to these places; with `module`, if it puts out `rows`."""
    seen = Weights()
    with torch.no_grad(), nullcontext() if module is None or rows is None else put(module, told, place, rows):
        model.encoder(told.tokens, told.lengths, weights=seen)
    return seen.self_attn[1][told.sentence, :, told.asker, place].mean(dim=0)


def _attention(model: Reader, layer: int) -> MultiHeadAttention:
    block = model.encoder.stack.blocks[layer]
    assert isinstance(block, Block)
    attention = block.attention.sublayer
    assert isinstance(attention, MultiHeadAttention)
    return attention


def answers_with_heads(
    model: Reader, told: Gossip, other: Gossip, layer: int, heads: Sequence[int]
) -> Int[Tensor, " m"]:
    """The model's answers if these heads put out, at the words that ask, what they put out when it reads `other`."""
    attention = _attention(model, layer)
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor]) -> None:
        kept.append(inputs[0])                                               # the heads side by side, (m, n, d_model)

    def exchange(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()
        for head in heads:
            columns = slice(head * attention.d_head, (head + 1) * attention.d_head)
            x[told.sentence, told.asker, columns] = kept[0][told.sentence, told.asker, columns]
        return (x,)

    with torch.no_grad():
        for hook, read in ((keep, other), (exchange, told)):
            held = attention.output.register_forward_pre_hook(hook)
            try:
                answers = model(read).argmax(dim=-1)                         # (m,)
            finally:
                held.remove()
    return answers


@contextmanager
def mean_ablated(model: Reader, told: Gossip, layer: int, head: int) -> Iterator[None]:
    """Within it, the head's output is replaced by its mean over all tokens of `told`."""
    attention = _attention(model, layer)
    columns = slice(head * attention.d_head, (head + 1) * attention.d_head)
    is_token = torch.arange(told.tokens.shape[1]) < told.lengths[:, None]        # (batch, n)

    def mean_for_head(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()                                                    # (batch, n, d_model)
        x[..., columns] = x[is_token][:, columns].mean(dim=0)
        return (x,)

    hook = attention.output.register_forward_pre_hook(mean_for_head)
    try:
        yield
    finally:
        hook.remove()


def weight_on_name(model: Reader, told: Gossip) -> Float[Tensor, "heads questions"]:
    """The mean weight from who asks to the name that is the answer, for each head of layer 0, then of layer 1."""
    seen = Weights()
    with torch.no_grad():
        model.encoder(told.tokens, told.lengths, weights=seen)
    on_name = torch.cat([weights[told.sentence, :, told.asker, told.place] for weights in seen.self_attn], dim=1)
    return torch.stack([on_name[told.kind == kind].mean(dim=0) for kind in range(len(QUESTIONS))], dim=1)


class Excess(NamedTuple):
    """What is lost beyond the sum of two ablations: with the partner, and with another head."""

    cases: list[tuple[float, float, float]]
    """(with the partner, with another head as the mean of six, the most with another head) for each case."""
    seeds: dict[str, tuple[float, float]]
    """The means over each seed's cases: with the partner, with another head."""


def beyond_the_sum(runs: Sequence[Mapping[str, Any]]) -> Excess:
    """Of the record `gossip_heads`: for each head and question that lose little alone."""
    cases, seeds = [], {}
    for run in runs:
        of_run = []
        for pair in run["unmissed"]:
            first, second, both = pair["lost"]
            of_run.append((both - first - second, mean(pair["control"]), max(pair["control"])))
        seeds[str(run["seed"])] = mean(case[0] for case in of_run), mean(case[1] for case in of_run)
        cases += of_run
    return Excess(cases, seeds)
