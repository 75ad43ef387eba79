"""Recurrence: a language model, a decoder that looks at one of three kinds of memory, one that runs in parallel."""

from typing import Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attncourse._checks import check_one_of, check_shape, check_tokens, check_whole
from attncourse.attention import Score, attend, dot_score, lengths_to_mask

Summary = Literal["last state", "mean pool", "attention"]
SUMMARIES: tuple[Summary, ...] = ("last state", "mean pool", "attention")
Cell = Literal["rnn", "lstm", "gru"]
CELLS: tuple[Cell, ...] = ("rnn", "lstm", "gru")


class _LSTMCell(nn.LSTMCell):
    """An LSTM cell whose state is one tensor, [s; c], as it is with the other cells."""

    def forward(self, input, state):  # type: ignore[override]
        return torch.cat(super().forward(input, state.chunk(2, dim=-1)), dim=-1)              # (batch, 2 d_hidden)


class AttentionDecoderStep(nn.Module):
    """One step of a decoder that looks at the encoder: read a token, look, predict the next token.

        s = GRU([embedding(token); s̃ of the step before], s of the step before)
        α = softmax(score(s, h)),  c = Σ α h
        s̃ = tanh(W [c; s]),        logits = W_o s̃

    `h` are the encoder's states, as wide as the decoder's; c is the context vector, s̃ the attentional vector. Input
    feeding hands s̃ to the next step, which is so told what this one found; with `input_feeding=False` the cell reads
    the embedding alone. `cell` is "gru", "rnn" or "lstm". An LSTM carries a cell vector beside its hidden one, so its
    state is twice as wide: d_state = 2 d_hidden. With the others d_state = d_hidden.
    Raises ValueError for an unknown cell or a shape that does not fit, TypeError for tokens that are not whole numbers.
    Luong et al. 2015, sections 3.1 (attention) and 3.3 (input feeding).
    """

    def __init__(
        self,
        vocab_size: int,
        d_embedding: int,
        d_hidden: int,
        score: Score = dot_score,
        cell: Cell = "gru",
        input_feeding: bool = True,
    ):
        super().__init__()
        check_one_of("cell", cell, CELLS)
        self.d_hidden, self.input_feeding = d_hidden, input_feeding
        self.d_state = 2 * d_hidden if cell == "lstm" else d_hidden
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        build = {"rnn": nn.RNNCell, "lstm": _LSTMCell, "gru": nn.GRUCell}[cell]
        self.cell = build(d_embedding + d_hidden if input_feeding else d_embedding, d_hidden)
        self.score = score
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)

    def forward(
        self,
        token: Int[Tensor, " batch"],
        state: Float[Tensor, "batch d_state"],
        attentional: Float[Tensor, "batch d_hidden"],
        encoder_states: Float[Tensor, "batch n_source d_hidden"],
        mask: Bool[Tensor, "batch n_source"],
    ) -> tuple[
        Float[Tensor, "batch vocab_size"],
        Float[Tensor, "batch d_state"],
        Float[Tensor, "batch d_hidden"],
        Float[Tensor, "batch n_source"],
    ]:
        """Returns (logits, state, attentional, weights); `mask` is True where there is a source token."""
        self._check(token, state, attentional, encoder_states, mask)
        read = self.embedding(token)                                                          # (batch, d_embedding)
        if self.input_feeding:
            read = torch.cat([read, attentional], dim=-1)                           # (batch, d_embedding + d_hidden)
        state = self.cell(read, state)                                                        # (batch, d_state)
        s = state[:, : self.d_hidden] if self.d_state > self.d_hidden else state            # an LSTM's state is [s; c]
        attended, weights = attend(
            s.unsqueeze(1),                                                                   # (batch, 1, d_hidden)
            encoder_states,
            encoder_states,
            mask.unsqueeze(1),                                                                # (batch, 1, n_source)
            self.score,
        )
        attended, weights = attended.squeeze(1), weights.squeeze(1)             # (batch, d_hidden), (batch, n_source)
        attentional = torch.tanh(self.combine(torch.cat([attended, s], dim=-1)))              # (batch, d_hidden)
        return self.output(attentional), state, attentional, weights

    def _check(self, token: Tensor, state: Tensor, attentional: Tensor, encoder_states: Tensor, mask: Tensor) -> None:
        check_whole("token", token, "batch")
        batch = token.shape[0]
        check_shape("state", state, "batch d_state", batch=batch, d_state=self.d_state)
        check_shape("attentional", attentional, "batch d_hidden", batch=batch, d_hidden=self.d_hidden)
        axes = "batch n_source d_hidden"
        check_shape("encoder_states", encoder_states, axes, batch=batch, d_hidden=self.d_hidden)
        check_shape("mask", mask, "batch n_source", batch=batch, n_source=encoder_states.shape[1])


class Memory(NamedTuple):
    """What the decoder may look at, and the state that it starts from."""

    states: Float[Tensor, "batch n_memory d_hidden"]
    mask: Bool[Tensor, "batch n_memory"]
    start: Float[Tensor, "batch d_state"]


class DecoderState(NamedTuple):
    """All that the decoder needs to go on: what it may look at, its cell's state, and s̃ of the step before."""

    memory: Memory
    state: Float[Tensor, "batch d_state"]
    attentional: Float[Tensor, "batch d_hidden"]

    def select(self, rows: Int[Tensor, " n"]) -> "DecoderState":
        """The state of the sentences asked for, in that order; a row may be asked for more than once."""
        check_whole("rows", rows, "n")
        memory = Memory(*(each[rows] for each in self.memory))                                # (n, ...)
        return DecoderState(memory, self.state[rows], self.attentional[rows])                 # (n, ...)


class Seq2Seq(nn.Module):
    """A bidirectional recurrent network reads the source, an `AttentionDecoderStep` writes the target.

    `summary` is what the encoder hands over, and all that differs between the three rungs of lecture 03's ladder:

    * "last state": one vector, the state after the last token (Cho et al. 2014, who also show it to every step);
    * "mean pool": one vector, the mean of the states;
    * "attention": all the states.

    The decoder attends in each case, over a memory of one vector or of n_source, so the three have the same parameters
    to the last one. (A memory of one vector always gets the weight 1.)

    `cell` ("gru", "rnn" or "lstm") is both networks' kind; `score` and `input_feeding` are the decoder's. An LSTM's
    second vector, c, is handed over from the last token, except with "mean pool": there it starts from zero.
    Raises ValueError for a summary or cell that is unknown, or an odd d_hidden.

    To write without knowing the target, go step by step:

    >>> model = Seq2Seq(10, 10, d_embedding=4, d_hidden=8)
    >>> state = model.start(torch.tensor([[4, 5, 6], [7, 8, 0]]), lengths=torch.tensor([3, 2]))
    >>> logits, state, weights = model.step(torch.tensor([1, 1]), state, with_weights=True)
    >>> logits.shape, weights.shape
    (torch.Size([2, 10]), torch.Size([2, 3]))
    """

    max_positions: int | None = None  # no table of positions ends what it can write

    def __init__(
        self,
        vocabulary_source: int,
        target_vocab_size: int,
        d_embedding: int,
        d_hidden: int,
        summary: Summary = "attention",
        score: Score = dot_score,
        cell: Cell = "gru",
        input_feeding: bool = True,
    ):
        super().__init__()
        check_one_of("summary", summary, SUMMARIES)
        if d_hidden % 2:
            raise ValueError(f"d_hidden: got {d_hidden}, expected an even number (each direction gets half)")
        check_one_of("cell", cell, CELLS)
        self.summary = summary
        self.embedding = nn.Embedding(vocabulary_source, d_embedding)
        build = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.encoder = build(d_embedding, d_hidden // 2, batch_first=True, bidirectional=True)
        self.decoder = AttentionDecoderStep(target_vocab_size, d_embedding, d_hidden, score, cell, input_feeding)

    def encode(self, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"]) -> Memory:
        """Read the source. Nothing after a sequence's length is ever read: packing stops both directions there.

        Raises ValueError for a source length outside 1..n_source, a token outside the vocabulary, or a wrong shape.
        """
        check_tokens("source", source, self.embedding.num_embeddings)
        check_whole("lengths", lengths, "batch", batch=source.shape[0])
        n_source = source.shape[1]
        mask = lengths_to_mask(lengths, n_source, least=1)                                 # (batch, n_source)
        packed = pack_padded_sequence(self.embedding(source), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=n_source)   # (batch, n_source, d_hidden)
        last, *cell = last if isinstance(last, tuple) else [last]                          # (2, batch, d_hidden / 2)
        start = torch.cat([last[0], last[1]], dim=-1)                                      # (batch, d_hidden)
        if self.summary == "mean pool":
            start = states.sum(dim=1) / lengths.unsqueeze(1)                               # (batch, d_hidden)
            cell = [torch.zeros_like(c) for c in cell]
        if self.summary != "attention":
            states, mask = start.unsqueeze(1), mask[:, :1]                                 # n_memory = 1
        for c in cell:  # an LSTM's one: its state is [s; c]
            start = torch.cat([start, c[0], c[1]], dim=-1)                                 # (batch, 2 d_hidden)
        return Memory(states, mask, start)

    def start(self, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"]) -> DecoderState:
        """Read the source: the state before the first target token. Raises what `encode` raises."""
        memory = self.encode(source, lengths)
        return DecoderState(memory, memory.start, torch.zeros_like(memory.start[:, : self.decoder.d_hidden]))

    def step(
        self, token: Int[Tensor, " batch"], state: DecoderState, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocab_size"], DecoderState, Float[Tensor, "batch n_memory"] | None]:
        """Read one target token: (logits of the next one, the state to go on from, where the model looked or None).

        The state that came in is left as it was.
        """
        memory = state.memory
        logits, cell, fed, weights = self.decoder(token, state.state, state.attentional, memory.states, memory.mask)
        return logits, DecoderState(memory, cell, fed), weights if with_weights else None

    def forward(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        with_weights: bool = False,
    ):
        """Teacher forcing: logits of each next token, given the true ones before it: (batch, n_target, vocab_size).

        `with_weights=True` returns (logits, weights), the weights (batch, n_target, n_memory).
        Raises ValueError for a source length outside 1..n_source, a token outside its vocabulary, or a wrong shape.
        """
        state = self.start(source, lengths)
        vocab_size = self.decoder.embedding.num_embeddings
        check_tokens("target_in", target_in, vocab_size, batch=source.shape[0])
        steps = []
        for token in target_in.unbind(dim=1):
            logits, state, weights = self.step(token, state, with_weights=True)
            steps.append((logits, weights))
        logits, weights = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return (logits, weights) if with_weights else logits


class RecurrentState:
    """Where the reading of a text stands: what the network carries along, nothing before the first token."""

    def __init__(self) -> None:
        self.carried: tuple[Float[Tensor, "1 batch d_hidden"], ...] | None = None          # h; an LSTM's: h and c

    def select(self, rows: Int[Tensor, " n"]) -> Self:
        """Keep these rows of the batch, in this order; a row may be kept more than once. Returns the state, changed."""
        check_whole("rows", rows, "n")
        if self.carried is not None:
            self.carried = tuple(each.index_select(1, rows) for each in self.carried)
        return self


class RecurrentLanguageModel(nn.Module):
    """Reads a text token by token and says, after each, what comes next.

        x_t = E y_t,   h_t = cell(x_t, h_{t−1}),   logits_t = E h_t + b

    All that it knows of the past is h: d_hidden numbers, however long the past, and as many again in an LSTM. One
    table E reads the tokens and scores them (Press and Wolf 2017). `cell` is "gru", "rnn" or "lstm".
    Raises ValueError for an unknown cell. Mikolov et al. 2010.

    >>> model = RecurrentLanguageModel(10, d_hidden=8)
    >>> model(torch.tensor([[1, 4, 5], [1, 6, 2]])).shape
    torch.Size([2, 3, 10])
    """

    max_positions: int | None = None  # it reads on as long as there is something to read

    def __init__(self, vocab_size: int, d_hidden: int, cell: Cell = "gru"):
        super().__init__()
        check_one_of("cell", cell, CELLS)
        self.embedding = nn.Embedding(vocab_size, d_hidden)
        nn.init.normal_(self.embedding.weight, std=d_hidden**-0.5)       # logits of about the size of a state's numbers
        build = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.network = build(d_hidden, d_hidden, batch_first=True)
        self.output = nn.Linear(d_hidden, vocab_size)
        self.output.weight = self.embedding.weight

    def forward(
        self, tokens: Int[Tensor, "batch n"], state: RecurrentState | None = None
    ) -> Float[Tensor, "batch n vocab_size"]:
        """Logits of each next token. Padding after a text changes nothing before it.

        With a `state`, `tokens` are the next ones after all that it has read, and it changes.
        Raises ValueError for tokens outside the vocabulary.
        """
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        carried = None if state is None or state.carried is None else state.carried
        if carried is not None and not isinstance(self.network, nn.LSTM):
            carried = carried[0]  # type: ignore[assignment]
        states, carried = self.network(self.embedding(tokens), carried)                    # (batch, n, d_hidden)
        if state is not None:
            state.carried = carried if isinstance(carried, tuple) else (carried,)
        return self.output(states)                                                         # (batch, n, vocab_size)

    def start(self) -> RecurrentState:
        """Nothing is read yet."""
        return RecurrentState()

    def read(self, tokens: Int[Tensor, "batch n"], state: RecurrentState) -> Float[Tensor, "batch vocab_size"]:
        """Read n tokens more; logits of what follows the last of them. The state changes."""
        return self(tokens, state)[:, -1]                                                  # (batch, vocab_size)

    def step(
        self, token: Int[Tensor, " batch"], state: RecurrentState, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocab_size"], RecurrentState, None]:
        """Read one token more: (logits of the next, the state, which has changed, and nowhere to have looked)."""
        return self.read(token.unsqueeze(1), state), state, None


def linear_recurrence(
    decay: Float[Tensor, "*#batch #n #d"],
    inputs: Float[Tensor, "*batch n d"],
    start: Float[Tensor, "*#batch #d"] | None = None,
) -> Float[Tensor, "*batch n d"]:
    """h_t = decay_t ∘ h_{t−1} + inputs_t for all t at once; h before the first is `start`, or zero.

    A step takes h to a h + b, and so do two in a row: (a, b), then (a′, b′), is (a′ a, a′ b + b′). Each position holds
    its own step, then the last 2 as one, the last 4, 8, …: ⌈log₂ n⌉ rounds that do all positions at once, where the
    loop has n rounds of one. Decays within 0..1 keep it finite at any length.
    Raises ValueError where `decay` or `start` does not broadcast, TypeError for what is not a tensor.
    Hillis & Steele 1986 (the doubling); Blelloch 1990, section 1.4 (recurrences as scans).

    >>> linear_recurrence(torch.tensor(0.5), torch.ones(4, 1)).flatten()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    _check_recurrence(decay, inputs, start)
    a, b, span = decay.expand_as(inputs), inputs, 1                                     # (*batch, n, d)
    while span < inputs.shape[-2]:
        b = torch.cat([b[..., :span, :], a[..., span:, :] * b[..., :-span, :] + b[..., span:, :]], dim=-2)
        a = torch.cat([a[..., :span, :], a[..., span:, :] * a[..., :-span, :]], dim=-2)
        span *= 2
    if start is not None:
        start = start.expand(inputs.shape[:-2] + inputs.shape[-1:])                     # (*batch, d)
    return b if start is None else a * start.unsqueeze(-2) + b                          # (*batch, n, d)


class LinearRecurrence(nn.Module):
    """A gated recurrent network that is linear in its state, so that it trains in parallel over the sequence.

        z = σ(W_z x),  h̃ = W_h x,  h = (1 − z) ∘ h of the step before + z ∘ h̃

    Gate and candidate depend on the input alone; a GRU's read the state before as well, and have to wait for it.
    Causal, with a state of d_hidden numbers (by default d_model) however long the past is.
    Feng et al. 2024 (minGRU).

    >>> layer, x = LinearRecurrence(3), torch.randn(2, 5, 3)
    >>> h = torch.zeros(2, 3)
    >>> for t in range(5):
    ...     h = layer.step(x[:, t], h)
    >>> torch.allclose(h, layer(x)[:, -1], atol=1e-6)
    True
    """

    def __init__(self, d_model: int, d_hidden: int | None = None):
        super().__init__()
        d_hidden = d_model if d_hidden is None else d_hidden
        self.gate = nn.Linear(d_model, d_hidden)
        self.candidate = nn.Linear(d_model, d_hidden)

    def forward(
        self, x: Float[Tensor, "batch n d_model"], start: Float[Tensor, "batch d_hidden"] | None = None
    ) -> Float[Tensor, "batch n d_hidden"]:
        """The states at all positions, going on from `start` (zero where there is none)."""
        check_shape("x", x, "batch n d_model", d_model=self.gate.in_features)
        z = torch.sigmoid(self.gate(x))                                                 # (batch, n, d_hidden)
        return linear_recurrence(1 - z, z * self.candidate(x), start)                   # (batch, n, d_hidden)

    def step(
        self, x: Float[Tensor, "batch d_model"], state: Float[Tensor, "batch d_hidden"]
    ) -> Float[Tensor, "batch d_hidden"]:
        """The state after one more input: `forward`, one position at a time."""
        check_shape("x", x, "batch d_model", d_model=self.gate.in_features)
        check_shape("state", state, "batch d_hidden", batch=x.shape[0], d_hidden=self.gate.out_features)
        z = torch.sigmoid(self.gate(x))                                                 # (batch, d_hidden)
        return (1 - z) * state + z * self.candidate(x)


def _check_recurrence(decay: Tensor, inputs: Tensor, start: Tensor | None) -> None:
    check_shape("inputs", inputs, "*batch n d")
    for name, x, shape in (("decay", decay, inputs.shape), ("start", start, inputs.shape[:-2] + inputs.shape[-1:])):
        if x is None and name == "start":
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor")
        try:
            x.expand(shape)
        except RuntimeError:
            expected = f"one that broadcasts to {tuple(shape)}"
            raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {expected}") from None
