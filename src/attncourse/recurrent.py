"""Recurrent sequence-to-sequence models: one decoder, and three kinds of memory that it may look at."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attncourse.attention import Score, attend, dot_score, lengths_to_mask

Summary = Literal["last state", "mean pool", "attention"]
SUMMARIES: tuple[Summary, ...] = ("last state", "mean pool", "attention")


class AttentionDecoderStep(nn.Module):
    """One step of a decoder that looks at the encoder: read a token, look, predict the next token.

        s = GRU([embedding(token); ã of the step before], s of the step before)
        α = softmax(score(s, h)),  a = Σ α h
        ã = tanh(W [a; s]),        logits = V ã

    `h` are the encoder's states, as wide as the decoder's. Feeding ã back tells the next step where this one looked.
    Luong et al. 2015, sections 3.1 (attention) and 3.3 (input feeding).
    """

    def __init__(self, vocabulary: int, d_embedding: int, d_hidden: int, score: Score = dot_score):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d_embedding)
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
        self.score = score
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocabulary)

    def forward(
        self,
        token: Int[Tensor, " batch"],
        state: Float[Tensor, "batch d_hidden"],
        attentional: Float[Tensor, "batch d_hidden"],
        encoder_states: Float[Tensor, "batch n_source d_hidden"],
        mask: Bool[Tensor, "batch n_source"],
    ) -> tuple[
        Float[Tensor, "batch vocabulary"],
        Float[Tensor, "batch d_hidden"],
        Float[Tensor, "batch d_hidden"],
        Float[Tensor, "batch n_source"],
    ]:
        """Returns (logits, state, attentional, weights); `mask` is True where there is a source token."""
        state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)     # (batch, d_hidden)
        attended, weights = attend(
            state.unsqueeze(1),                                                               # (batch, 1, d_hidden)
            encoder_states,
            encoder_states,
            mask.unsqueeze(1),                                                                # (batch, 1, n_source)
            self.score,
        )
        attended, weights = attended.squeeze(1), weights.squeeze(1)             # (batch, d_hidden), (batch, n_source)
        attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))          # (batch, d_hidden)
        return self.output(attentional), state, attentional, weights


class Memory(NamedTuple):
    """What the decoder may look at, and the state that it starts from."""

    states: Float[Tensor, "batch n_memory d_hidden"]
    mask: Bool[Tensor, "batch n_memory"]
    start: Float[Tensor, "batch d_hidden"]


class Seq2Seq(nn.Module):
    """A bidirectional GRU reads the source, an `AttentionDecoderStep` writes the target.

    `summary` is what the encoder hands over, and all that differs between the three rungs of lecture 03's ladder:

    * "last state": one vector, the state after the last token (Cho et al. 2014, who also show it to every step);
    * "mean pool": one vector, the mean of the states;
    * "attention": all the states.

    The decoder attends in each case, over a memory of one vector or of n_source, so the three have the same parameters
    to the last one. (A memory of one vector always gets the weight 1.)
    """

    def __init__(
        self,
        vocabulary_source: int,
        vocabulary_target: int,
        d_embedding: int,
        d_hidden: int,
        summary: Summary = "attention",
        score: Score = dot_score,
    ):
        super().__init__()
        if summary not in SUMMARIES:
            raise ValueError(f"summary: got {summary!r}, expected one of {', '.join(map(repr, SUMMARIES))}")
        if d_hidden % 2:
            raise ValueError(f"d_hidden: got {d_hidden}, expected an even number (each direction gets half)")
        self.summary = summary
        self.embedding = nn.Embedding(vocabulary_source, d_embedding)
        self.encoder = nn.GRU(d_embedding, d_hidden // 2, batch_first=True, bidirectional=True)
        self.decoder = AttentionDecoderStep(vocabulary_target, d_embedding, d_hidden, score)

    def encode(self, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"]) -> Memory:
        """Read the source. Nothing behind a sequence's length is ever read: packing stops both directions there."""
        n_source = source.shape[1]
        if int(lengths.min()) < 1:
            raise ValueError(f"lengths: got {lengths.tolist()}, expected at least one token in each source")
        mask = lengths_to_mask(lengths, n_source)                                          # (batch, n_source)
        packed = pack_padded_sequence(self.embedding(source), lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=n_source)   # (batch, n_source, d_hidden)
        start = torch.cat([last[0], last[1]], dim=-1)                                      # (batch, d_hidden)
        if self.summary == "attention":
            return Memory(states, mask, start)
        if self.summary == "mean pool":
            start = states.sum(dim=1) / lengths.unsqueeze(1)                               # (batch, d_hidden)
        return Memory(start.unsqueeze(1), mask[:, :1], start)                              # n_memory = 1

    def forward(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        with_weights: bool = False,
    ):
        """Teacher forcing: logits of each next token, given the true ones before it: (batch, n_target, vocabulary).

        `with_weights=True` returns (logits, weights), the weights (batch, n_target, n_memory).
        Raises ValueError for a source length outside 1..n_source.
        """
        memory = self.encode(source, lengths)
        state, attentional = memory.start, torch.zeros_like(memory.start)
        steps = []
        for token in target_in.unbind(dim=1):
            logits, state, attentional, weights = self.decoder(token, state, attentional, memory.states, memory.mask)
            steps.append((logits, weights))
        logits, weights = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return (logits, weights) if with_weights else logits
