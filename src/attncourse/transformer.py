"""The Transformer, every choice a field of its config: blocks, encoder, decoder, and the models made of them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Self, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attncourse import positions
from attncourse._checks import (
    check_at_least,
    check_dropout,
    check_heads,
    check_one_of,
    check_rows,
    check_tokens,
    check_whole,
    values_are_cheap_to_read,
)
from attncourse.attention import KeyValueCache, KeyValues, MultiHeadAttention, combine_masks, lengths_to_mask
from attncourse.layers import ACTIVATIONS, Activation, FeedForward, LayerNorm, RMSNorm, make_dropout
from attncourse.positions import RotationStyle

Positions = Literal["none", "integer", "binary", "sinusoidal", "learned", "shaw", "bucketed", "rope"]

# What a config may say, beside the numbers that must be at least 1.
CHOICES: dict[str, tuple[str, ...]] = {
    "activation": ACTIVATIONS,
    "norm": ("layer", "rms"),
    "norm_place": ("pre", "post"),
    "positions": get_args(Positions),
    "rope_style": get_args(RotationStyle),
}
SIZES = (
    *("vocab_size", "target_vocab_size", "d_model", "n_layers", "n_layers_decoder", "n_heads", "n_kv_heads"),
    *("d_head", "d_ff", "max_length", "max_distance", "n_buckets", "window"),
)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Every choice of a Transformer. The defaults are a small model for a laptop, with the norms in front.

    Raises ValueError for sizes and choices that are wrong by themselves; the parts refuse what does not fit together.
    """

    vocab_size: int
    """How many tokens there are: on both sides, unless `target_vocab_size` says otherwise for the target."""
    target_vocab_size: int | None = None
    d_model: int = 256
    n_layers: int = 3
    """Blocks in the encoder, or in the only stack; the decoder has as many unless `n_layers_decoder` says otherwise."""
    n_layers_decoder: int | None = None
    n_heads: int = 4
    n_kv_heads: int | None = None
    """Heads of keys and values: fewer than n_heads makes groups (GQA), one is multi-query."""
    d_head: int | None = None
    """Width of a head; d_model / n_heads unless given."""
    d_ff: int | None = None
    """Width of the feed-forward network; 4 d_model unless given."""
    window: int | None = None
    """Self-attention sees only tokens fewer than `window` positions away: with the future hidden, a token and the
    window - 1 before it (`sliding_window` of Mistral's configs). Decoding keeps no more than these."""
    activation: Activation = "relu"
    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    final_norm: bool | None = None
    """A norm after the last block: with norm_place="pre" unless said otherwise, as nothing else normalises its sum."""
    embedding_norm: bool = False
    """A norm after the embedding, as in BERT and BART."""
    positions: Positions = "sinusoidal"
    max_length: int = 512
    """The most positions of a table or of RoPE. "shaw" and "bucketed" clip distances and know no maximum.

    To try a trained model on longer texts, build `type(model)(replace(model.config, max_length=…))` and load the
    trained one's state: only learned positions have parameters that this changes.
    """
    max_distance: int = 128
    """Where "shaw" clips distances (Shaw et al. 2018: 16), and "bucketed" puts all beyond in one bucket (T5: 128)."""
    n_buckets: int = 32
    rope_base: float = 10000.0
    rope_style: RotationStyle = "half"
    scale_scores: bool = True
    """Divide the scores by √d_head. T5 does not."""
    scale_embedding: bool | None = None
    """Multiply embeddings by √d_model (Vaswani et al. 2017, section 3.4): with a fixed table of positions unless said
    otherwise. A sinusoid's numbers are about 1; an unscaled embedding's, about 1 / √d_model, would drown in them."""
    n_segments: int = 0
    """Learned vectors for the segments of the input, as BERT has for its two sentences."""
    tie_output: bool = True
    """The output's matrix is the (target's) embedding. Press and Wolf 2017."""
    output_bias: bool = False
    """A bias on the logits, as Marian's checkpoints have."""
    share_embedding: bool = True
    """Source and target have one table of embeddings, if they have one vocabulary."""
    bias: bool = True
    """Biases in the linear layers and in LayerNorm."""
    dropout: float = 0.1
    """On the embedding and on the output of every sublayer."""
    dropout_attention: float = 0.0
    dropout_ff: float = 0.0
    """On the hidden layer of the feed-forward network."""

    def __post_init__(self) -> None:
        sizes = {name: value for name, value in vars(self).items() if name in SIZES and value is not None}
        check_at_least(1, **sizes)
        check_at_least(0, n_segments=self.n_segments)
        for name, allowed in CHOICES.items():
            check_one_of(name, getattr(self, name), allowed)
        if not self.norm_eps >= 0:
            raise ValueError(f"norm_eps: got {self.norm_eps}, expected 0 or more")
        if not self.rope_base > 0:
            raise ValueError(f"rope_base: got {self.rope_base}, expected more than 0")
        check_dropout(dropout=self.dropout, dropout_attention=self.dropout_attention, dropout_ff=self.dropout_ff)
        check_heads(self.d_model, self.n_heads, self.kv_heads, self.d_head)

    # What is left to follow from the rest, settled.

    @property
    def width_head(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def width_ff(self) -> int:
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def decoder_layers(self) -> int:
        return self.n_layers if self.n_layers_decoder is None else self.n_layers_decoder

    @property
    def decoder_vocab_size(self) -> int:
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def ends_in_norm(self) -> bool:
        return self.norm_place == "pre" if self.final_norm is None else self.final_norm

    @property
    def shares_embedding(self) -> bool:
        return self.share_embedding and self.decoder_vocab_size == self.vocab_size

    @property
    def scales_embedding(self) -> bool:
        return self.positions in positions.TABLES if self.scale_embedding is None else self.scale_embedding

    @property
    def max_positions(self) -> int | None:
        """The most tokens that the positions allow; None where they know no maximum."""
        return None if self.positions in ("none", "shaw", "bucketed") else self.max_length


def make_norm(config: TransformerConfig) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps)
    return LayerNorm(config.d_model, config.norm_eps, config.bias)


class Embedding(nn.Module):
    """Tokens to vectors: a row of the table for each, scaled, its position added, normalised, as the config says.

    Raises ValueError for positions past the maximum, and for tokens outside of the vocabulary (looked at on the CPU
    alone: on a GPU that would mean waiting).
    """

    def __init__(self, config: TransformerConfig, vocab_size: int):
        super().__init__()
        d_model = config.d_model
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.scale = d_model**0.5 if config.scales_embedding else 1.0
        self.positions = positions.make_table(config.positions, config.max_length, d_model)
        self.segments = nn.Embedding(config.n_segments, d_model) if config.n_segments else None
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = make_dropout(config.dropout)
        for table in (self.tokens, self.segments):
            if table is not None:                                 # tied, it gives logits of variance about one
                nn.init.normal_(table.weight, std=d_model**-0.5)

    def forward(
        self, tokens: Int[Tensor, "batch n"], start: int = 0, segments: Int[Tensor, "batch n"] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """`start` is the position of the first token."""
        check_tokens("tokens", tokens, self.tokens.num_embeddings)
        x = self.tokens(tokens) * self.scale                                              # (batch, n, d_model)
        if self.positions is not None:
            x = x + self.positions(tokens.shape[1], start)
        if self.segments is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            check_tokens("segments", segments, self.segments.num_embeddings, batch=tokens.shape[0], n=tokens.shape[1])
            x = x + self.segments(segments)
        elif segments is not None:
            raise ValueError(f"segments: got shape {tuple(segments.shape)}, expected None: the model has no n_segments")
        return self.dropout(self.norm(x))


class Memory(NamedTuple):
    """What a decoder looks at: an encoder's states, or what one block's cross-attention has made of them.

    `mask` is True where there is a real token; None stands for no padding.
    """

    states: Float[Tensor, "batch n_memory d_model"] | KeyValues
    mask: Bool[Tensor, "batch 1 n_memory"] | None = None

    def select(self, rows: Int[Tensor, " n"]) -> "Memory":
        """These rows of the batch, in this order. Raises ValueError for one that is not there."""
        if isinstance(self.states, KeyValues):
            states: Tensor | KeyValues = self.states.select(rows)
        else:
            check_rows(rows, self.states.shape[0])
            states = self.states.index_select(0, rows)
        return Memory(states, None if self.mask is None else self.mask.index_select(0, rows))


@dataclass
class Weights:
    """The attention weights of a stack: a tensor (batch, n_heads, n_query, n_key) for each block, from the first up."""

    self_attn: list[Tensor] = field(default_factory=list)
    cross_attn: list[Tensor] = field(default_factory=list)


class Residual(nn.Module):
    """A sublayer and the norm of its residual connection; in which order they come, `Block.forward` says."""

    def __init__(self, norm: nn.Module, sublayer: nn.Module):
        super().__init__()
        self.norm = norm
        self.sublayer = sublayer


class Block(nn.Module):
    """Look around, look at the memory (if `cross`), think: each on a residual path of its own.

    "rope" and "bucketed" positions belong to the stack, which hands them to its blocks: a block by itself has none.
    Vaswani et al. 2017, section 3.1; with norm_place="pre", Xiong et al. 2020, figure 1b.
    """

    def __init__(
        self, config: TransformerConfig, causal: bool = False, cross: bool = False, rope: positions.RoPE | None = None
    ):
        super().__init__()
        self.causal, self.norm_place = causal, config.norm_place
        shaw = config.positions == "shaw"
        relative = positions.ShawRelative(config.max_distance, config.width_head) if shaw else None
        self.attention = Residual(make_norm(config), self._attention(config, rope, relative, config.window))
        self.cross = Residual(make_norm(config), self._attention(config)) if cross else None
        self.ff = Residual(
            make_norm(config),
            FeedForward(config.d_model, config.width_ff, config.activation, config.bias, config.dropout_ff),
        )
        self.dropout = make_dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        mask: Bool[Tensor, "*#batch #n n_key"] | None = None,
        memory: Memory | None = None,
        bias: Float[Tensor, "n_heads n n_key"] | None = None,
        cache: KeyValueCache | None = None,
        weights: Weights | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """`mask`, `bias` and `cache` are the self-attention's, as `MultiHeadAttention` takes them.

        Raises ValueError for a memory that is missing, or given to a block that looks at none; TypeError for one that
        is no Memory.
        """
        _check_memory(memory, self.cross is not None)

        def attention(x):
            kept = None if weights is None else weights.self_attn
            return self.dropout(self.attention.sublayer(x, None, mask, self.causal, bias, cache, kept))

        def cross_attention(x):
            kept = None if weights is None else weights.cross_attn
            states, where = memory.states, memory.mask  # type: ignore[union-attr]
            return self.dropout(self.cross.sublayer(x, states, where, weights=kept))  # type: ignore[union-attr]

        def feed_forward(x):
            return self.dropout(self.ff.sublayer(x))

        if self.norm_place == "pre":
            x = x + attention(self.attention.norm(x))
            if self.cross is not None:
                x = x + cross_attention(self.cross.norm(x))
            return x + feed_forward(self.ff.norm(x))

        x = self.attention.norm(x + attention(x))
        if self.cross is not None:
            x = self.cross.norm(x + cross_attention(x))
        return self.ff.norm(x + feed_forward(x))

    @staticmethod
    def _attention(config: TransformerConfig, rope=None, relative=None, window=None) -> MultiHeadAttention:
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            config.n_kv_heads,
            config.d_head,
            config.bias,
            config.dropout_attention,
            scale=None if config.scale_scores else 1.0,
            rope=rope,
            relative=relative,
            window=window,
        )


class Stack(nn.Module):
    """Blocks one above the other, and the norm after the last: what all the models below, and ViT, are made of.

    `activation_checkpointing`, set on a stack, makes training keep the input of each block alone and compute what is in
    the block a second time for the gradients: less memory, one forward pass more. The gradients stay the same.
    Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """

    activation_checkpointing = False
    within: Callable[[Block], AbstractContextManager] = nullcontext
    """What a block is computed within (see `attncourse.unpadding`)."""

    def __init__(
        self, config: TransformerConfig, n_layers: int | None = None, causal: bool = False, cross: bool = False
    ):
        super().__init__()
        _check_config(config)
        n_layers = config.n_layers if n_layers is None else n_layers
        check_at_least(1, n_layers=n_layers)
        rope, self.bias = None, None
        if config.positions == "rope":
            rope = positions.RoPE(config.width_head, config.max_length, config.rope_base, config.rope_style)
        if config.positions == "bucketed":
            self.bias = positions.BucketedBias(
                config.n_heads, config.n_buckets, config.max_distance, bidirectional=not causal
            )
        self.blocks = nn.ModuleList(Block(config, causal, cross, rope) for _ in range(n_layers))
        self.norm = make_norm(config) if config.ends_in_norm else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        mask: Bool[Tensor, "*#batch #n n_key"] | None = None,
        memory: Memory | list[Memory] | None = None,
        caches: Sequence[KeyValueCache] | None = None,
        weights: Weights | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """The arguments are those of a block: one memory for all, or each block's own from `project`; a cache for each.
        """
        n, n_kept = x.shape[1], caches[0].n_kept if caches else 0
        bias = None if self.bias is None else self.bias(n, n_kept + n, n_kept)                # (n_heads, n, n_kept + n)
        recompute = self.activation_checkpointing and torch.is_grad_enabled() and not caches and weights is None
        for i, block in enumerate(self.blocks):
            call = partial(checkpoint, self._again(block), use_reentrant=False) if recompute else block
            x = call(
                x,
                mask=mask,
                memory=memory[i] if isinstance(memory, list) else memory,
                bias=bias,
                cache=caches[i] if caches else None,
                weights=weights,
            )
        return self.norm(x)

    def _again(self, block: Any) -> Callable[..., Tensor]:
        """The block, to be computed now and once more on the way back, each time within the same."""
        now = self.within

        def run(*args, **kwargs):
            with nullcontext() if self.within is now else now(block):
                return block(*args, **kwargs)

        return run

    def project(self, memory: Memory) -> list[Memory]:
        """What each block's cross-attention makes of the memory, once for all the steps that will look at it."""
        layers: list[Any] = [block.cross.sublayer for block in self.blocks]  # type: ignore[union-attr]
        projected = [layer.keys_values(memory.states) for layer in layers]
        # Head by head in memory, as each step will read them and `select` copy them.
        return [Memory(KeyValues(key.contiguous(), value.contiguous()), memory.mask) for key, value in projected]


class Encoder(nn.Module):
    """Tokens to states, each of which may look everywhere: BERT's shape, and the first half of an encoder–decoder."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        _check_config(config)
        self.config = config
        self.embedding = Embedding(config, config.vocab_size)
        self.stack = Stack(config)
        initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"] | None = None,
        segments: Int[Tensor, "batch n"] | None = None,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
        weights: Weights | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """Nothing after a sequence's length is looked at, and what comes out there means nothing.

        Without `lengths` all tokens are real. `mask` forbids more. `weights` collects the attention
        weights.
        """
        x = self.embedding(tokens, segments=segments)                                     # (batch, n, d_model)
        mask = mask if lengths is None else combine_masks(source_mask(tokens, lengths), mask)
        return self.stack(x, mask, weights=weights)


class State:
    """Where a decoding stands: what each block remembers of the tokens read so far, and what it sees of the memory."""

    def __init__(self, n_layers: int, memory: list[Memory] | None = None, window: int | None = None):
        self.caches = [KeyValueCache(window) for _ in range(n_layers)]
        self.memory = memory

    @property
    def length(self) -> int:
        return self.caches[0].length

    def select(self, rows: Int[Tensor, " n"]) -> Self:
        """Keep these rows of the batch, in this order; a row may be kept more than once. Returns the state, changed."""
        for cache in self.caches:
            cache.select(rows)
        if self.memory is not None:
            self.memory = [memory.select(rows) for memory in self.memory]
        return self


class Decoder(nn.Module):
    """Tokens to states that see their own past alone, and the memory of an encoder if `cross`."""

    def __init__(self, config: TransformerConfig, cross: bool = True):
        super().__init__()
        _check_config(config)
        self.embedding = Embedding(config, config.decoder_vocab_size)
        self.stack = Stack(config, config.decoder_layers, causal=True, cross=cross)
        initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        memory: Memory | list[Memory] | None = None,
        caches: Sequence[KeyValueCache] | None = None,
        weights: Weights | None = None,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """`memory` is `Memory(what the encoder gives, mask)`; a `State` has it as each block sees it.

        With a state's `caches`, `tokens` are the next ones and all before them are remembered in these. `mask` forbids
        more than the future.
        """
        x = self.embedding(tokens, start=caches[0].length if caches else 0)               # (batch, n, d_model)
        return self.stack(x, mask, memory, caches, weights)


class AttentionWeights(NamedTuple):
    """Where an encoder–decoder looked: (batch, n_layers, n_heads, n_query, n_key) each."""

    encoder: Float[Tensor, "batch n_layers n_heads n_source n_source"]
    decoder: Float[Tensor, "batch n_layers n_heads n_target n_target"]
    cross: Float[Tensor, "batch n_layers n_heads n_target n_source"]


class _Writer(nn.Module):
    """What writes tokens: a decoder, and an output that makes logits of its states."""

    config: TransformerConfig
    decoder: Decoder
    output: nn.Linear

    def tie(self) -> None:
        """Share the matrices that the config says are one. Call it again where torch has parted them: in `to_empty`."""
        if self.config.tie_output:
            self.output.weight = self.decoder.embedding.tokens.weight

    @property
    def max_positions(self) -> int | None:
        """The most tokens that its positions allow."""
        return self.config.max_positions


class EncoderDecoder(_Writer):
    """The Transformer of "Attention is all you need": an encoder reads the source, a decoder writes the target.

    Called and decoded like `attncourse.recurrent.Seq2Seq`. Vaswani et al. 2017, figure 1.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(config.d_model, config.decoder_vocab_size, bias=config.output_bias)
        initialise(self.output)
        self.tie()

    def tie(self) -> None:
        if self.config.shares_embedding:
            self.decoder.embedding.tokens = self.encoder.embedding.tokens
        super().tie()

    def forward(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        with_weights: bool = False,
    ):
        """Teacher forcing in one pass: logits of each next token, given the true ones before it.

        They are (batch, n_target, vocab_size); `with_weights=True` returns (logits, AttentionWeights).
        Raises ValueError for a source length outside 1..n_source, positions past the maximum, tokens out of the
        vocabulary.
        """
        seen, written = (Weights(), Weights()) if with_weights else (None, None)
        check_tokens("target_in", target_in, self.config.decoder_vocab_size, batch=source.shape[0])
        mask = source_mask(source, lengths, least=1)                                      # (batch, 1, n_source)
        memory = Memory(self.encoder(source, mask=mask, weights=seen), mask)              # (batch, n_source, d_model)
        logits = self.output(self.decoder(target_in, memory, weights=written))
        if seen is None or written is None:
            return logits
        stacked = (torch.stack(each, dim=1) for each in (seen.self_attn, written.self_attn, written.cross_attn))
        return logits, AttentionWeights(*stacked)

    def loss(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        target_out: Int[Tensor, "batch n_target"],
        label_smoothing: float = 0.0,
        pad: int = 0,
    ) -> Float[Tensor, ""]:
        """Cross entropy in nats, averaged over the real target tokens. (`attncourse.unpadding` computes it sooner.)

        `pad` is a token of the vocabulary that is never an answer.
        Raises ValueError as `forward`, and for a `target_out` of another shape or of padding alone.
        """
        logits = self(source, lengths, target_in)                                 # (batch, n_target, vocab_size)
        check_answers("target_out", target_out, target_in, self.config.decoder_vocab_size, pad)
        return cross_entropy(logits, target_out, label_smoothing, pad)

    def start(self, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"]) -> State:
        """Read the source; nothing is written yet."""
        mask = source_mask(source, lengths, least=1)                                      # (batch, 1, n_source)
        memory = Memory(self.encoder(source, mask=mask), mask)                            # (batch, n_source, d_model)
        return State(self.config.decoder_layers, self.decoder.stack.project(memory), self.config.window)

    def step(
        self, token: Int[Tensor, " batch"], state: State, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocab_size"], State, Float[Tensor, "batch n_source"] | None]:
        """Read one token more: (logits of the next, the state, which has changed, weights).

        The weights are the mean over the heads of the last block's cross-attention; None unless asked for.
        """
        weights = Weights() if with_weights else None
        states = self.decoder(token.unsqueeze(1), state.memory, state.caches, weights)        # (batch, 1, d_model)
        looked = None if weights is None else weights.cross_attn[-1].mean(dim=1).squeeze(1)   # (batch, n_source)
        return self.output(states).squeeze(1), state, looked                              # (batch, vocab_size)


class LanguageModel(_Writer):
    """A decoder alone: each token is predicted from those before it. GPT's and Llama's shape."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.decoder = Decoder(config, cross=False)
        self.output = nn.Linear(config.d_model, config.decoder_vocab_size, bias=config.output_bias)
        initialise(self.output)
        self.tie()

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        *,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
        with_weights: bool = False,
    ):
        """Logits of each next token, (batch, n, vocab_size). Padding after a sequence changes nothing before it.

        `mask` forbids more than the future, in this pass alone: other documents of the row, say. Decoding knows nothing
        of it, so what holds there, too, such as a window, belongs into the config.
        `with_weights=True` returns (logits, weights), the weights (batch, n_layers, n_heads, n, n).
        Raises ValueError for positions past the maximum, tokens out of the vocabulary.
        """
        weights = Weights() if with_weights else None
        logits = self.output(self.decoder(tokens, weights=weights, mask=mask))            # (batch, n, vocab_size)
        return logits if weights is None else (logits, torch.stack(weights.self_attn, dim=1))

    def loss(
        self,
        tokens_in: Int[Tensor, "batch n"],
        tokens_out: Int[Tensor, "batch n"],
        label_smoothing: float = 0.0,
        pad: int = 0,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
    ) -> Float[Tensor, ""]:
        """Cross entropy in nats, averaged over the real tokens of `tokens_out`: those of `tokens_in`, one later.

        `pad` is a token of the vocabulary that is never an answer: in front, it takes a prompt out of the loss.
        Raises ValueError as `forward`, and for a `tokens_out` of another shape or of padding alone.
        """
        check_tokens("tokens_in", tokens_in, self.config.decoder_vocab_size)
        check_answers("tokens_out", tokens_out, tokens_in, self.config.decoder_vocab_size, pad)
        logits = self(tokens_in, mask=mask)                                               # (batch, n, vocab_size)
        return cross_entropy(logits, tokens_out, label_smoothing, pad)

    def start(self) -> State:
        """Nothing is read yet."""
        return State(self.config.decoder_layers, window=self.config.window)

    def read(self, tokens: Int[Tensor, "batch n"], state: State) -> Float[Tensor, "batch vocab_size"]:
        """Read n tokens more, at once; logits of what follows the last of them. The state changes."""
        return self.output(self.decoder(tokens, caches=state.caches)[:, -1])              # (batch, vocab_size)

    def step(
        self, token: Int[Tensor, " batch"], state: State, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocab_size"], State, Float[Tensor, "batch n"] | None]:
        """Read one token more: (logits of the next, the state, which has changed, weights over the tokens read).

        The weights are the mean over the heads of the last block, 0 outside of its window; None unless asked for.
        """
        weights = Weights() if with_weights else None
        states = self.decoder(token.unsqueeze(1), None, state.caches, weights)             # (batch, 1, d_model)
        looked = None if weights is None else weights.self_attn[-1].mean(dim=1).squeeze(1)    # (batch, n_key)
        if looked is not None:
            looked = F.pad(looked, (state.length - looked.shape[1], 0))                       # (batch, n)
        return self.output(states).squeeze(1), state, looked


def source_mask(
    source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"], least: int = 0
) -> Bool[Tensor, "batch 1 n_source"]:
    """`lengths_to_mask` for sequences of at least `least` tokens. Raises ValueError for other lengths."""
    check_whole("source", source, "batch n_source")
    check_whole("lengths", lengths, "batch", batch=source.shape[0])
    return lengths_to_mask(lengths, source.shape[1], least)[:, None]                      # (batch, 1, n_source)


def _check_config(config: TransformerConfig) -> None:
    if not isinstance(config, TransformerConfig):
        raise TypeError(f"config: got {type(config).__name__}, expected a TransformerConfig")


def _check_memory(memory: Memory | None, looks: bool) -> None:
    if memory is None and looks:
        raise ValueError("memory: got None, expected what the encoder gives")
    if memory is not None and not looks:
        raise ValueError(f"memory: got {type(memory).__name__}, expected None: this block does not look at one")
    if memory is not None and not isinstance(memory, Memory):
        raise TypeError(f"memory: got {type(memory).__name__}, expected Memory(states, mask)")


def check_answers(name: str, answers: Tensor, tokens: Tensor, vocab_size: int, pad: int) -> None:
    """One answer for each token, at least one of them real (where they may be looked at). Raises ValueError."""
    batch, n = tokens.shape
    check_tokens(name, answers, vocab_size, batch=batch, n=n)
    if values_are_cheap_to_read(answers) and not (answers != pad).any():
        raise ValueError(f"{name}: got padding alone, expected at least one real token")


def cross_entropy(
    logits: Float[Tensor, "*batch vocab_size"], answers: Int[Tensor, "*batch"], label_smoothing: float, pad: int
) -> Float[Tensor, ""]:
    """Nats a token, averaged over the answers that are not `pad`; the shapes are the caller's to check.

    `label_smoothing` is the share of the truth that all tokens of the vocabulary get alike (Szegedy et al. 2016).
    Raises ValueError for a share that is not 0 to 1.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: got {label_smoothing}, expected 0 to 1")
    logits, answers = logits.flatten(0, -2), answers.flatten()                            # (n_tokens, vocab_size)
    return F.cross_entropy(logits, answers, ignore_index=pad, label_smoothing=label_smoothing)


def initialise(model: nn.Module) -> None:
    """Matrices by Glorot and Bengio 2010, equation 16 ("Xavier"), biases zero; tables have initialised themselves."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
